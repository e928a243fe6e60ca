package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// maxAge is how old a list of instances may be and still answer "is it gone?".
// An instance takes tens of seconds to end, so asking more often buys nothing,
// and one call answers for every claim that waits.
const maxAge = 2 * time.Second

// machines answers for many waiting claims with one list of instances.
type machines struct {
	cloud interface {
		Instances(ctx context.Context) ([]cloud.Instance, error)
	}
	clock clock.Clock

	mu   sync.Mutex
	at   time.Time
	list []cloud.Instance
}

// lag is how long an instance may be missing from a list after its launch: EC2's
// describe calls are eventually consistent, by seconds.
const lag = 10 * time.Second

// of returns the claim's instances: the one that it names, any that carry its UID
// as a tag, as after a crash between the launch and the write of its outcome, and
// what was launched so lately that a list needn't show it.
func (m *machines) of(ctx context.Context, claim *karpenter.NodeClaim, launched *launch) ([]cloud.Instance, error) {
	list, at, err := m.fresh(ctx)
	if err != nil {
		return nil, err
	}
	var out []cloud.Instance
	if launched != nil && at.Sub(launched.at) < lag &&
		!slices.ContainsFunc(list, func(i cloud.Instance) bool { return i.ID == launched.instance.ID }) {
		out = append(out, launched.instance)
	}
	for _, i := range list {
		if (claim.Status.ProviderID != "" && i.ProviderID == claim.Status.ProviderID) ||
			i.Tags[cloud.TagNodeClaimUID] == string(claim.UID) {
			out = append(out, i)
		}
	}
	return out, nil
}

// fresh returns the instances and when they were asked for.
func (m *machines) fresh(ctx context.Context) ([]cloud.Instance, time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.list != nil && m.clock.Since(m.at) < maxAge {
		return m.list, m.at, nil
	}
	at := m.clock.Now() // before the call: the answer is at least as new as this
	list, err := m.cloud.Instances(ctx)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("list instances: %w", err)
	}
	if list == nil {
		list = []cloud.Instance{}
	}
	m.at, m.list = at, list
	return list, at, nil
}
