package cluster

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// State is the watch-fed copy. The zero value is not usable; call NewState. All
// methods may be called concurrently. Objects handed in are kept and never changed.
type State struct {
	mu         sync.RWMutex
	pods       map[types.NamespacedName]*corev1.Pod
	bound      map[string]map[types.NamespacedName]*corev1.Pod // by Node name
	nodes      map[string]*corev1.Node
	claims     map[string]*karpenter.NodeClaim
	daemonSets map[types.NamespacedName]*appsv1.DaemonSet
	// nominated says until when pods are expected on a machine, by Node or claim name.
	nominated map[string]time.Time
	// moved says when a pod last came to a Node or left it, by Node name.
	moved map[string]time.Time
	clock clock.PassiveClock

	// changed wakes whoever plans, once however many changes came.
	changed chan struct{}
}

// NewState returns an empty state that reads the time from c.
func NewState(c clock.PassiveClock) *State {
	return &State{
		clock:      c,
		nominated:  map[string]time.Time{},
		moved:      map[string]time.Time{},
		pods:       map[types.NamespacedName]*corev1.Pod{},
		bound:      map[string]map[types.NamespacedName]*corev1.Pod{},
		nodes:      map[string]*corev1.Node{},
		claims:     map[string]*karpenter.NodeClaim{},
		daemonSets: map[types.NamespacedName]*appsv1.DaemonSet{},
		changed:    make(chan struct{}, 1),
	}
}

// Changed delivers a value after pods that need a node have appeared. Several
// changes may share one value.
func (s *State) Changed() <-chan struct{} { return s.changed }

func (s *State) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func key(o interface {
	GetNamespace() string
	GetName() string
}) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// SetPod records a pod as it is now.
func (s *State) SetPod(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key(p)
	old := s.pods[k]
	s.dropPod(k)
	s.pods[k] = p
	if p.Spec.NodeName != "" && !Terminal(p) {
		on := s.bound[p.Spec.NodeName]
		if on == nil {
			on = map[types.NamespacedName]*corev1.Pod{}
			s.bound[p.Spec.NodeName] = on
		}
		on[k] = p
		if (old == nil || old.Spec.NodeName == "" || old.UID != p.UID) && !OwnedByDaemonSet(p) {
			s.moved[p.Spec.NodeName] = s.clock.Now()
		}
	}
	if Provisionable(p) && (old == nil || old.UID != p.UID || !Provisionable(old)) {
		s.notify()
	}
}

// DeletePod forgets a pod.
func (s *State) DeletePod(k types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[k]; p != nil && p.Spec.NodeName != "" && !OwnedByDaemonSet(p) {
		s.moved[p.Spec.NodeName] = s.clock.Now()
	}
	s.dropPod(k)
}

// Nominate protects a machine from being taken for empty until the given time,
// because pods were planned onto it. It is named as its Node or its claim.
func (s *State) Nominate(name string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nominated[name] = until
}

func (s *State) dropPod(k types.NamespacedName) {
	old, ok := s.pods[k]
	if !ok {
		return
	}
	delete(s.pods, k)
	if on := s.bound[old.Spec.NodeName]; on[k] != nil {
		delete(on, k)
		if len(on) == 0 {
			delete(s.bound, old.Spec.NodeName)
		}
	}
}

// SetNode records a Node as it is now.
func (s *State) SetNode(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[n.Name] = n
}

// DeleteNode forgets a Node.
func (s *State) DeleteNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
	delete(s.moved, name)
	delete(s.nominated, name)
}

// SetClaim records a NodeClaim as it is now. A claim that starts to go wakes the
// planner, since the pods on its node will want another.
func (s *State) SetClaim(c *karpenter.NodeClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.claims[c.Name]
	if old != nil && old.UID == c.UID && newer(old.ResourceVersion, c.ResourceVersion) {
		return
	}
	s.claims[c.Name] = c
	if c.DeletionTimestamp != nil && (old == nil || old.DeletionTimestamp == nil) {
		s.notify()
	}
}

// newer reports whether resource version a is later than b. Both are decimal, as
// etcd gives them, so the longer or else the greater string is the later one.
func newer(a, b string) bool {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) > 0
}

// DeleteClaim forgets a NodeClaim, and wakes the planner: pods that it was to
// carry may need another.
func (s *State) DeleteClaim(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, name)
	delete(s.nominated, name)
	s.notify()
}

// SetDaemonSet records a DaemonSet as it is now.
func (s *State) SetDaemonSet(d *appsv1.DaemonSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.daemonSets[key(d)] = d
}

// DeleteDaemonSet forgets a DaemonSet.
func (s *State) DeleteDaemonSet(k types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.daemonSets, k)
}

// Snapshot is the state at one moment, in a fixed order. Its objects are shared
// and read-only.
type Snapshot struct {
	// Nodes has machines with and without a Node or a claim, sorted by name.
	Nodes []Node
	// Pending are the pods that wait for a node, sorted by namespace and name.
	Pending    []*corev1.Pod
	DaemonSets []*appsv1.DaemonSet
}

// Snapshot copies the state's index, not its objects.
func (s *State) Snapshot() Snapshot {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out Snapshot

	claimOf := make(map[string]*karpenter.NodeClaim, len(s.claims))
	for _, c := range s.claims {
		if c.Status.ProviderID != "" {
			claimOf[c.Status.ProviderID] = c
		}
	}
	joined := make(map[string]bool, len(s.claims))
	for _, n := range s.nodes {
		c := claimOf[n.Spec.ProviderID]
		if c != nil {
			joined[c.Name] = true
		}
		out.Nodes = append(out.Nodes, Node{
			Claim: c, Node: n, Pods: sortedPods(s.bound[n.Name]),
			Moved: s.moved[n.Name], NominatedUntil: s.nominatedUntil(c, n),
		})
	}
	for _, c := range s.claims {
		if !joined[c.Name] {
			out.Nodes = append(out.Nodes, Node{Claim: c, NominatedUntil: s.nominatedUntil(c, nil)})
		}
	}
	slices.SortFunc(out.Nodes, func(a, b Node) int { return strings.Compare(a.Name(), b.Name()) })

	for _, p := range s.pods {
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

func sortedPods(m map[types.NamespacedName]*corev1.Pod) []*corev1.Pod {
	out := make([]*corev1.Pod, 0, len(m))
	for _, p := range m {
		out = append(out, p)
	}
	slices.SortFunc(out, comparePods)
	return out
}

func comparePods(a, b *corev1.Pod) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
