package cluster

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Snapshot is the state at one moment, in a fixed order. Its objects are shared
// and read-only.
type Snapshot struct {
	// Nodes has machines with and without a Node or a claim, sorted by name.
	Nodes []Node
	// Pending are the pods that wait for a node, sorted by namespace and name.
	Pending []*corev1.Pod
	// Unbound counts the pods that have no node, whatever the reason.
	Unbound    int
	DaemonSets []*appsv1.DaemonSet
}

// Snapshot copies the state's index, not its objects.
func (s *State) Snapshot() Snapshot {
	s.mu.Lock() // sorting is remembered
	defer s.mu.Unlock()
	var out Snapshot

	for name := range s.nodes {
		if n, ok := s.machine(nodeKey(name)); ok {
			out.Nodes = append(out.Nodes, n)
		}
	}
	for name := range s.claims {
		if n, ok := s.machine(claimKey(name)); ok {
			out.Nodes = append(out.Nodes, n)
		}
	}
	slices.SortFunc(out.Nodes, func(a, b Node) int { return strings.Compare(a.Name(), b.Name()) })

	for _, p := range s.pods {
		if p.Spec.NodeName == "" && p.DeletionTimestamp == nil && !Terminal(p) {
			out.Unbound++
		}
		if Provisionable(p) {
			out.Pending = append(out.Pending, p)
		}
	}
	slices.SortFunc(out.Pending, comparePods)
	for _, d := range s.daemonSets {
		out.DaemonSets = append(out.DaemonSets, d)
	}
	slices.SortFunc(out.DaemonSets, func(a, b *appsv1.DaemonSet) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// Of returns the machines of a NodePool, sorted by name, at a cost of what the pool has.
func (s *State) Of(pool string) []Node {
	s.mu.Lock() // sorting is remembered
	defer s.mu.Unlock()
	var out []Node
	for name, c := range s.claims {
		if c.Labels[karpenter.LabelNodePool] != pool {
			continue
		}
		if n, ok := s.machine(claimKey(name)); ok {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}

// Moved returns the claims that have a Node, with when a pod other than a daemon's last
// came to it or left it, zero if this process hasn't seen that.
func (s *State) Moved() map[*karpenter.NodeClaim]time.Time {
	s.mu.Lock() // sorting is remembered
	defer s.mu.Unlock()
	out := make(map[*karpenter.NodeClaim]time.Time, len(s.claims))
	for _, c := range s.claims {
		if node := s.nodeOf[c.Status.ProviderID]; c.Status.ProviderID != "" && node != "" {
			out[c] = s.moved[node]
		}
	}
	return out
}

// machine returns what a key stands for now. A Node that a claim has been found for
// is the claim's machine and no longer one of its own.
func (s *State) machine(k string) (Node, bool) {
	var c *karpenter.NodeClaim
	var n *corev1.Node
	if name, ok := strings.CutPrefix(k, claimKey("")); ok {
		if c = s.claims[name]; c == nil {
			return Node{}, false
		}
		if id := c.Status.ProviderID; id != "" && s.claimOf[id] == name {
			n = s.nodes[s.nodeOf[id]]
		}
	} else {
		name := strings.TrimPrefix(k, nodeKey(""))
		if n = s.nodes[name]; n == nil {
			return Node{}, false
		}
		if _, claimed := s.claimOf[n.Spec.ProviderID]; claimed && s.nodeOf[n.Spec.ProviderID] == name {
			return Node{}, false
		}
	}
	out := Node{Claim: c, Node: n, NominatedUntil: s.nominatedUntil(c, n)}
	if n != nil {
		out.Pods, out.Moved = s.podsOn(n.Name), s.moved[n.Name]
	}
	return out, true
}

func (s *State) nominatedUntil(c *karpenter.NodeClaim, n *corev1.Node) time.Time {
	var until time.Time
	if c != nil {
		until = s.nominated[c.Name]
	}
	if n != nil && s.nominated[n.Name].After(until) {
		until = s.nominated[n.Name]
	}
	return until
}

// podsOn returns the pods bound to a Node, sorted. The caller doesn't change the result.
func (s *State) podsOn(node string) []*corev1.Pod {
	if got, ok := s.order[node]; ok || len(s.bound[node]) == 0 {
		return got
	}
	out := slices.SortedFunc(maps.Values(s.bound[node]), comparePods)
	s.order[node] = out
	return out
}

func comparePods(a, b *corev1.Pod) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
