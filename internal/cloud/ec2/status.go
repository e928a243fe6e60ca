package ec2

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/coppice-dev/coppice/internal/cloud"
)

// impairedFor is how long a status check must have failed: two of EC2's checks, which
// are a minute apart. Karpenter's value.
const impairedFor = 2 * time.Minute

// Troubled lists instances whose status checks fail, or for which EC2 has scheduled
// something that they won't survive in place, sorted by ID. Instances of others may be
// among them. It costs three calls, whose answers hold those instances alone.
func (p *Provider) Troubled(ctx context.Context) ([]cloud.Interruption, error) {
	kinds := map[string]cloud.InterruptionKind{}
	for _, f := range []struct {
		name   string
		values []string
	}{
		{"event.code", []string{"instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"}},
		{"instance-status.status", []string{"impaired"}},
		{"system-status.status", []string{"impaired"}},
	} {
		in := &ec2.DescribeInstanceStatusInput{Filters: []ec2types.Filter{{Name: aws.String(f.name), Values: f.values}}}
		pages := ec2.NewDescribeInstanceStatusPaginator(p.ec2, in)
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, failed("read instance statuses", err)
			}
			for _, s := range page.InstanceStatuses {
				if kind, is := p.trouble(s); is && kinds[aws.ToString(s.InstanceId)] != cloud.StatusCheckFailed {
					kinds[aws.ToString(s.InstanceId)] = kind
				}
			}
		}
	}
	var out []cloud.Interruption
	for id, kind := range kinds {
		out = append(out, cloud.Interruption{Kind: kind, Instances: []string{id}})
	}
	slices.SortFunc(out, func(a, b cloud.Interruption) int { return strings.Compare(a.Instances[0], b.Instances[0]) })
	return out, nil
}

// trouble reads a status. An event that is over stays in the list for a while, with
// that said in its description.
func (p *Provider) trouble(s ec2types.InstanceStatus) (cloud.InterruptionKind, bool) {
	for _, summary := range []*ec2types.InstanceStatusSummary{s.InstanceStatus, s.SystemStatus} {
		if summary == nil || summary.Status != ec2types.SummaryStatusImpaired {
			continue
		}
		for _, d := range summary.Details {
			if d.Status == ec2types.StatusTypeFailed && d.ImpairedSince != nil && p.clock.Now().Sub(*d.ImpairedSince) >= impairedFor {
				return cloud.StatusCheckFailed, true
			}
		}
	}
	for _, e := range s.Events {
		if d := aws.ToString(e.Description); !strings.HasPrefix(d, "[Completed]") && !strings.HasPrefix(d, "[Canceled]") {
			return cloud.ScheduledChange, true
		}
	}
	return "", false
}
