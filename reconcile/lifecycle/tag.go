package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	// tagPeriod is how often it is looked for instances without their claims' tags, and
	// tagAfter how old these must be: nothing waits for tags, pods do for other calls, and
	// EC2 may not know a new instance everywhere yet.
	tagPeriod = 10 * time.Second
	tagAfter  = 10 * time.Second
	// tagPause keeps to half the pace that EC2 lets CreateTags through at, 10 calls a
	// second after 100. It takes one for each instance, as the tags differ.
	// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
	tagPause = 200 * time.Millisecond
)

// tagger gives instances that were launched with others the tags that a launch gives to a
// single one: its claim's name and UID. They are for people; who has which instance is on
// the claims.
type tagger struct {
	kube  client.Client
	cloud Cloud
	clock clock.Clock
	// done are the claims whose instances are known to have them.
	done map[types.UID]bool
}

// NeedLeaderElection keeps a standby from tagging what the leader does.
func (t *tagger) NeedLeaderElection() bool { return true }

// Start runs until ctx ends.
func (t *tagger) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("tagger")
	for {
		if err := t.pass(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "tag instances")
		}
		if !t.sleep(ctx, tagPeriod) {
			return nil
		}
	}
}

func (t *tagger) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-t.clock.After(d):
		return true
	}
}

// pass tags what lacks its tags. What it finds tagged it doesn't ask for again.
func (t *tagger) pass(ctx context.Context) error {
	var list karpenter.NodeClaimList
	if err := t.kube.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list NodeClaims: %w", err)
	}
	done, due := map[types.UID]bool{}, map[string]*karpenter.NodeClaim{}
	for i := range list.Items {
		c := &list.Items[i]
		if _, ok := cloud.FleetOf(c); !ok || c.Status.ProviderID == "" {
			continue
		}
		if t.done[c.UID] {
			done[c.UID] = true
		} else {
			due[c.Status.ProviderID] = c
		}
	}
	t.done = done
	if len(due) == 0 {
		return nil
	}
	instances, err := t.cloud.Instances(ctx)
	if err != nil {
		return fmt.Errorf("list instances: %w", err)
	}
	var errs []error
	for _, i := range instances {
		c := due[i.ProviderID]
		switch {
		case c == nil || i.State == "shutting-down":
			continue
		case i.Tags[cloud.TagNodeClaimUID] == string(c.UID):
			t.done[c.UID] = true
			continue
		case t.clock.Since(i.LaunchTime) < tagAfter:
			continue
		}
		tags := map[string]string{cloud.TagNodeClaim: c.Name, cloud.TagNodeClaimUID: string(c.UID)}
		if i.Tags[aws.TagName] == "" {
			tags[aws.TagName] = c.Name
		}
		err := t.cloud.Tag(ctx, i.ID, tags)
		t.done[c.UID] = err == nil
		errs = append(errs, err)
		// One that is gone holds up no other; a missing permission would meet all.
		if errors.As(err, new(*cloud.TerminalError)) || !t.sleep(ctx, tagPause) {
			break
		}
	}
	return errors.Join(errs...)
}
