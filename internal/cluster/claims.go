package cluster

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// lag is how far behind the watch may be: what was created here and hasn't been seen
// after so long doesn't exist, and what was seen to end so long ago isn't told of any
// more. A watch that breaks is up again within seconds.
const lag = time.Minute

// graves are the objects whose end was seen within lag. Whoever has written an object
// tells the state of it, and may be overtaken by the watch that tells of its end: it
// would come back and never go.
type graves struct {
	at    map[types.UID]time.Time
	swept time.Time
}

func (g *graves) has(uid types.UID) bool {
	_, ok := g.at[uid]
	return ok
}

func (g *graves) bury(uid types.UID, now time.Time) {
	if uid == "" {
		return // no object of an API server
	}
	if now.Sub(g.swept) >= lag {
		g.swept = now
		for k, at := range g.at {
			if now.Sub(at) >= lag {
				delete(g.at, k)
			}
		}
	}
	g.at[uid] = now
}

// Expect records a NodeClaim that was created a moment ago, so that the next plan
// counts on it before the watch has told of it. If the watch doesn't within a minute,
// as when the claim was deleted in a gap of the watch, it is forgotten.
func (s *State) Expect(c *karpenter.NodeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[c.Name] == nil && !s.gone.has(c.UID) {
		s.unseen[c.Name] = s.clock.Now()
	}
	s.setClaim(c)
}

// SetClaim records a NodeClaim as it is now. A claim that starts to go wakes the
// planner, since the pods on its node will want another. What is older than what is
// known changes nothing.
func (s *State) SetClaim(c *karpenter.NodeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unseen, c.Name)
	s.setClaim(c)
}

func (s *State) setClaim(c *karpenter.NodeClaim) {
	old := s.claims[c.Name]
	if s.gone.has(c.UID) || old != nil && old.UID == c.UID && Newer(old.ResourceVersion, c.ResourceVersion) {
		return
	}
	if old != nil && old.Status.ProviderID != c.Status.ProviderID {
		s.unlinkClaim(old)
	}
	s.claims[c.Name] = c
	if id := c.Status.ProviderID; id != "" {
		s.claimOf[id] = c.Name
	}
	s.touchClaim(c)
	if c.DeletionTimestamp != nil && (old == nil || old.DeletionTimestamp == nil) {
		s.moment++
		s.went[c.Name] = s.moment
		s.notify()
	}
}

func (s *State) touchClaim(c *karpenter.NodeClaim) {
	s.touchMachine(claimKey(c.Name))
	if n, ok := s.nodeOf[c.Status.ProviderID]; ok {
		s.touchMachine(nodeKey(n))
	}
}

func (s *State) unlinkClaim(c *karpenter.NodeClaim) {
	s.touchClaim(c)
	if s.claimOf[c.Status.ProviderID] == c.Name {
		delete(s.claimOf, c.Status.ProviderID)
	}
}

// Newer reports whether resource version a is later than b. Both are decimal, as
// etcd gives them, so the longer or else the greater string is the later one.
func Newer(a, b string) bool {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) > 0
}

// DeleteClaim forgets a NodeClaim, and wakes the planner: pods that it was to
// carry may need another.
func (s *State) DeleteClaim(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.claims[name]; old != nil {
		s.gone.bury(old.UID, s.clock.Now())
	}
	s.forgetClaim(name)
}

func (s *State) forgetClaim(name string) {
	if old := s.claims[name]; old != nil {
		s.unlinkClaim(old)
	}
	delete(s.claims, name)
	delete(s.unseen, name)
	delete(s.went, name)
	delete(s.nominated, name)
	s.notify()
}

// dropUnseen forgets the claims that the watch should have told of by now.
func (s *State) dropUnseen() {
	now := s.clock.Now()
	for name, since := range s.unseen {
		if now.Sub(since) >= lag {
			s.forgetClaim(name)
		}
	}
}
