package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	// joinWithin is how long a claim waits for the others of its fleet to be there: they
	// are created at the same moment, and unless the API server is slow the watch delivers
	// them within milliseconds.
	joinWithin = 10 * time.Second
	// pollSoonest and pollLatest bound how soon to look for them again: who comes last
	// needn't, and launches for all. In between it is half of the time waited so far.
	pollSoonest, pollLatest = 50 * time.Millisecond, 500 * time.Millisecond
)

// fleets are the launches of several claims that are waited for or under way.
type fleets struct {
	mu sync.Mutex
	// flying counts the claims that are waiting for the launch with a token.
	flying map[string]int
	// since is when a claim was first seen to miss others of its fleet.
	since map[types.UID]time.Time
}

// enter counts a claim as waiting for the launch until the function returned is called.
func (f *fleets) enter(token string) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flying == nil {
		f.flying = map[string]int{}
	}
	f.flying[token]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.flying[token]--; f.flying[token] == 0 {
			delete(f.flying, token)
		}
	}
}

// under reports whether the claim's fleet is being launched, so that it isn't known yet
// whether the claim has an instance.
func (f *fleets) under(claim *karpenter.NodeClaim) bool {
	fleet, ok := cloud.FleetOf(claim)
	f.mu.Lock()
	defer f.mu.Unlock()
	return ok && claim.Status.ProviderID == "" && f.flying[fleet.Token] > 0
}

// wait says how soon the claim is to look again for others of its fleet, 0 once it has
// waited for joinWithin, here or before this process began. The second is told by
// another's clock.
func (f *fleets) wait(c *karpenter.NodeClaim, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since == nil {
		f.since = map[types.UID]time.Time{}
	}
	if _, ok := f.since[c.UID]; !ok {
		f.since[c.UID] = now
	}
	waited := now.Sub(f.since[c.UID])
	if waited >= joinWithin || now.Sub(c.CreationTimestamp.Time) >= joinWithin {
		return 0
	}
	return min(max(waited/2, pollSoonest), pollLatest)
}

func (f *fleets) forget(claim types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.since, claim)
}

// fleetToken is what claims of a fleet have in common, "" of one that is in none.
func fleetToken(claim *karpenter.NodeClaim) string {
	f, _ := cloud.FleetOf(claim)
	return f.Token
}

// fleet returns the claim's fleet, nil if it is to be launched alone, and how long to
// wait if others of it aren't there yet.
func (r *Reconciler) fleet(ctx context.Context, claim *karpenter.NodeClaim) (*cloud.Fleet, time.Duration, error) {
	f, ok := cloud.FleetOf(claim)
	if !ok {
		return nil, 0, nil
	}
	var list karpenter.NodeClaimList
	if err := r.kube.List(ctx, &list, client.MatchingFields{indexFleet: f.Token}); err != nil {
		return nil, 0, fmt.Errorf("list NodeClaims of fleet %s: %w", f.Token, err)
	}
	var absent bool
	f.Members, absent = members(list.Items, f)
	if m := f.Members[f.Index]; m == nil || m.UID != claim.UID {
		return nil, 0, nil // a copy of another claim's annotation
	}
	if absent {
		if wait := r.fleets.wait(claim, r.clock.Now()); wait > 0 {
			return nil, wait, nil
		}
	}
	r.fleets.forget(claim.UID)
	return &f, 0, nil
}

// members puts the claims of a fleet into their places. One that goes without an instance
// has none, and where several say that a place is theirs the oldest has it. It reports
// whether for some place no claim was seen, not even one that goes.
func members(claims []karpenter.NodeClaim, f cloud.Fleet) (out []*karpenter.NodeClaim, absent bool) {
	slices.SortFunc(claims, func(a, b karpenter.NodeClaim) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(string(a.UID), string(b.UID)))
	})
	out = make([]*karpenter.NodeClaim, f.Count)
	seen := make([]bool, f.Count)
	for i := range claims {
		of, ok := cloud.FleetOf(&claims[i])
		if !ok || of.Token != f.Token || of.Count != f.Count || out[of.Index] != nil {
			continue
		}
		seen[of.Index] = true
		if claims[i].DeletionTimestamp == nil || claims[i].Status.ProviderID != "" {
			out[of.Index] = &claims[i]
		}
	}
	return out, slices.Contains(seen, false)
}
