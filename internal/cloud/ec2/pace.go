package ec2

import (
	"context"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
)

// maxAttempts is how often a call is sent before its failure is the caller's, who
// comes again by itself, later, unless AWS_MAX_ATTEMPTS says otherwise. The SDK's waits
// between them double up to 20 s.
const maxAttempts = 5

// pace is how a client's calls are retried. AWS counts requests by operation, so that
// each operation keeps a token bucket of its own: one that AWS throttles is held back
// to the rate that it is let through at, before it is sent and for all callers
// together, while the others go on. A bucket is idle until its operation is throttled.
//
// The retries of all operations draw on one further budget, the SDK's: when AWS
// refuses much, most calls are sent once.
type pace struct {
	aws.RetryerV2
	mu      sync.Mutex
	buckets map[string]*retry.AdaptiveMode
}

// newPace is for one client: AWS throttles services apart.
func newPace(attempts int) aws.Retryer {
	return &pace{
		RetryerV2: retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts = attempts }),
		buckets:   map[string]*retry.AdaptiveMode{},
	}
}

// GetAttemptToken waits until the operation may be sent.
func (p *pace) GetAttemptToken(ctx context.Context) (func(error) error, error) {
	operation := awsmiddleware.GetOperationName(ctx)
	p.mu.Lock()
	bucket := p.buckets[operation]
	if bucket == nil {
		bucket = retry.NewAdaptiveMode()
		p.buckets[operation] = bucket
	}
	p.mu.Unlock()
	return bucket.GetAttemptToken(ctx)
}
