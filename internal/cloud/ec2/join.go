package ec2

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// joinRetry is how soon a fleet is tried again after a failure: each of its claims comes
// again by itself, and all would send the same call.
const joinRetry = time.Second

// join returns the claim's instance of its fleet, alone in a list, or nothing if it has
// to be launched by itself. The first of the claims to come launches the fleet, the
// others wait for that.
//
// The instances go by the order of their IDs to the claims in the order of their places.
// A repeated call with the same token has the same answer, so that all who ask find the
// same, whoever launched. Where the answer can't be had again all instances must be seen.
func (p *Provider) join(ctx context.Context, req cloud.LaunchRequest) ([]cloud.Instance, error) {
	f := req.Fleet
	l := p.launches.of(f.Token, p.clock.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		if l.err != nil && p.clock.Since(l.failed) < joinRetry {
			return nil, l.err
		}
		if l.err = p.launchFleet(ctx, req, l); l.err != nil {
			l.failed = p.clock.Now()
		}
	}
	if l.err != nil {
		return nil, l.err
	}
	if f.Index >= len(l.instances) {
		return nil, nil
	}
	mine := l.instances[f.Index]
	if mine.ClaimUID != "" && mine.ClaimUID != req.Token {
		return nil, nil // it was another's, whose place the claim has taken over
	}
	for n, m := range f.Members {
		// AWS says that a repeated answer may be newer than the first. Should it have
		// come to lack instances, places would have moved.
		if n != f.Index && m != nil && m.Status.ProviderID == mine.ProviderID {
			return nil, nil
		}
	}
	mine.ClaimUID = req.Token
	return []cloud.Instance{mine}, nil
}

// launchFleet launches for all claims of a fleet. If some are missing or have instances
// before anything is known to have been launched for it, there will be no fleet; what was
// launched counts whoever is missing since.
func (p *Provider) launchFleet(ctx context.Context, req cloud.LaunchRequest, l *launchState) error {
	f := req.Fleet
	late := !f.Complete() || slices.ContainsFunc(f.Members, func(m *karpenter.NodeClaim) bool { return m.Status.ProviderID != "" })
	if err := p.lookBack(ctx, req, l, f.Token, f.Count, late && !l.begun); err != nil {
		return err
	}
	if len(l.instances) > 0 || late && !l.begun {
		l.over = true
		return nil
	}
	tags := p.sharedTags(req.Class, req.Claim)
	tags[cloud.TagFleet] = f.Token
	var err error
	l.instances, err = p.launch(ctx, req, l, order{token: f.Token, count: f.Count, tags: tags})
	if errors.Is(err, errGivenUp) {
		// Each claim is launched by itself, and what no claim holds is collected.
		l.over = true
		return nil
	}
	// What isn't to be had is so for all: each claim is given up and planned for anew.
	l.over = err == nil || errors.As(err, new(*cloud.InsufficientCapacityError))
	return err
}

// launchState is what is known of one token, a claim's or a fleet's. Its lock is held
// while it launches, so that a token launches once at a time.
type launchState struct {
	mu     sync.Mutex
	since  time.Time
	looked bool
	// begun is set once EC2 may have been asked to launch.
	begun bool
	// instances are what it launched, sorted by ID: a claim's one, or as many of a
	// fleet's as there were.
	instances []cloud.Instance
	// fleets counts those that are known to have launched nothing.
	fleets int
	// missing is since when an earlier launch's instances are looked for.
	missing time.Time
	// over is set once nothing more comes of a fleet, err is why the last attempt came
	// to nothing, and failed when.
	over   bool
	err    error
	failed time.Time
}

// launchLog holds the states of recent tokens.
type launchLog struct {
	mu     sync.Mutex
	states map[string]*launchState
	pruned time.Time
}

func (l *launchLog) of(token string, now time.Time) *launchState {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.states == nil {
		l.states = map[string]*launchState{}
	}
	if now.Sub(l.pruned) > launchMemory {
		maps.DeleteFunc(l.states, func(_ string, s *launchState) bool { return now.Sub(s.since) > launchMemory })
		l.pruned = now
	}
	s := l.states[token]
	if s == nil {
		s = &launchState{since: now}
		l.states[token] = s
	}
	return s
}

// launched returns the instance that the claim's token got, if it is known.
func (l *launchLog) launched(token string) (cloud.Instance, bool) {
	l.mu.Lock()
	s := l.states[token]
	l.mu.Unlock()
	if s == nil {
		return cloud.Instance{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.instances) == 0 {
		return cloud.Instance{}, false
	}
	return s.instances[0], true
}
