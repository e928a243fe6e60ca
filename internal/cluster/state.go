package cluster

import (
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// State is the watch-fed copy. The zero value is not usable; call NewState. All
// methods may be called concurrently. Objects handed in are kept and never changed.
type State struct {
	mu    sync.RWMutex
	pods  map[types.NamespacedName]*corev1.Pod
	bound map[string]map[types.NamespacedName]*corev1.Pod // by Node name
	// siblings are pods without a Node, by the UID of their owner.
	siblings map[types.UID]*siblings
	// order has bound's pods sorted, as far as somebody has asked since they changed.
	order map[string][]*corev1.Pod
	// expected are unbound pods by the Node that they are nominated to.
	expected map[string]map[types.NamespacedName]bool
	// since says when these were nominated, or first seen to be.
	since          map[types.NamespacedName]time.Time
	nodes          map[string]*corev1.Node
	claims         map[string]*karpenter.NodeClaim
	claimOf        map[string]string // claim name by providerID
	nodeOf         map[string]string // Node name by providerID
	daemonSets     map[types.NamespacedName]*appsv1.DaemonSet
	namespaces     map[string]map[string]string // labels by name
	volumeClaims   map[types.NamespacedName]*corev1.PersistentVolumeClaim
	volumes        map[string]*corev1.PersistentVolume
	storageClasses map[string]*storagev1.StorageClass
	csiNodes       map[string]*storagev1.CSINode
	attach         attachments
	// claimants are the pods that use a PersistentVolumeClaim, claimOn the claim that
	// names a PersistentVolume.
	claimants map[types.NamespacedName]map[types.NamespacedName]struct{}
	claimOn   map[string]types.NamespacedName
	budgets   map[types.NamespacedName]*policyv1.PodDisruptionBudget

	// places is the planner's last plan, see SetPlan. Moments are numbered: planned is
	// when that plan looked at the state, went when claims were first seen to be on
	// their way out.
	places  map[string]string
	onto    map[string][]string // places by machine
	moment  uint64
	planned uint64
	went    map[string]uint64

	// gone are the pods and claims whose end was seen, see graves; unseen the claims that
	// somebody here created and the watch hasn't told of, with when they were expected.
	gone   graves
	unseen map[string]time.Time

	// nominated says until when pods are expected on a machine, by Node or claim name.
	nominated map[string]time.Time
	// moved says when a pod last came to a Node or left it, by Node name.
	moved map[string]time.Time
	clock clock.PassiveClock

	// dirty is what has changed since each Model last caught up.
	dirty map[*Model]dirty

	// changed wakes whoever plans, once however many changes came.
	changed chan struct{}
}

// machineKey names a machine for as long as it exists: by its claim, or by its Node
// when nobody has claimed it.
func claimKey(claim string) string { return "claim/" + claim }
func nodeKey(node string) string   { return "node/" + node }

// NewState returns an empty state that reads the time from c.
func NewState(c clock.PassiveClock) *State {
	return &State{
		clock:          c,
		siblings:       map[types.UID]*siblings{},
		since:          map[types.NamespacedName]time.Time{},
		gone:           graves{at: map[types.UID]time.Time{}},
		unseen:         map[string]time.Time{},
		nominated:      map[string]time.Time{},
		moved:          map[string]time.Time{},
		pods:           map[types.NamespacedName]*corev1.Pod{},
		bound:          map[string]map[types.NamespacedName]*corev1.Pod{},
		order:          map[string][]*corev1.Pod{},
		expected:       map[string]map[types.NamespacedName]bool{},
		nodes:          map[string]*corev1.Node{},
		claims:         map[string]*karpenter.NodeClaim{},
		claimOf:        map[string]string{},
		nodeOf:         map[string]string{},
		dirty:          map[*Model]dirty{},
		daemonSets:     map[types.NamespacedName]*appsv1.DaemonSet{},
		namespaces:     map[string]map[string]string{},
		volumeClaims:   map[types.NamespacedName]*corev1.PersistentVolumeClaim{},
		volumes:        map[string]*corev1.PersistentVolume{},
		storageClasses: map[string]*storagev1.StorageClass{},
		csiNodes:       map[string]*storagev1.CSINode{},
		claimants:      map[types.NamespacedName]map[types.NamespacedName]struct{}{},
		claimOn:        map[string]types.NamespacedName{},
		attach:         attachments{reports: map[string]map[string]map[int]int{}, least: map[string]map[string]int{}},
		budgets:        map[types.NamespacedName]*policyv1.PodDisruptionBudget{},
		went:           map[string]uint64{},
		changed:        make(chan struct{}, 1),
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

// SetPod records a pod as it is now. What is older than what is known, or of a pod
// whose end was seen, changes nothing: whoever has written a pod tells of it here
// without waiting for the watch, and may be overtaken by it.
func (s *State) SetPod(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key(p)
	old := s.pods[k]
	if s.gone.has(p.UID) || old != nil && old.UID == p.UID && Newer(old.ResourceVersion, p.ResourceVersion) {
		return
	}
	wanted := old != nil && old.UID == p.UID && s.provisionable(old)
	since := s.since[k]
	s.dropPod(k)
	s.pods[k] = p
	s.use(p, true)
	s.meet(k, p)
	s.touchPod(k)
	if p.Spec.NodeName != "" && !Terminal(p) {
		on := s.bound[p.Spec.NodeName]
		if on == nil {
			on = map[types.NamespacedName]*corev1.Pod{}
			s.bound[p.Spec.NodeName] = on
		}
		on[k] = p
		delete(s.order, p.Spec.NodeName)
		if (old == nil || old.Spec.NodeName == "" || old.UID != p.UID) && !OwnedByDaemonSet(p) {
			at := s.clock.Now()
			if old == nil {
				at = scheduled(p, at) // possibly read after a restart
			}
			if at.After(s.moved[p.Spec.NodeName]) {
				s.moved[p.Spec.NodeName] = at
			}
		}
	}
	if n := p.Status.NominatedNodeName; n != "" && p.Spec.NodeName == "" {
		if s.expected[n] == nil {
			s.expected[n] = map[types.NamespacedName]bool{}
		}
		s.expected[n][k] = true
		if old == nil || old.UID != p.UID || old.Status.NominatedNodeName != n {
			since = s.clock.Now()
		}
		s.since[k] = since
	}
	if old != nil && p.Spec.NodeName != "" && Terminal(p) && !Terminal(old) && !OwnedByDaemonSet(p) {
		s.moved[p.Spec.NodeName] = s.clock.Now()
	}
	if !wanted && s.provisionable(p) {
		s.notify()
	}
}

// scheduled is when the pod was given its Node, or else if it doesn't say.
func scheduled(p *corev1.Pod, or time.Time) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	return or
}

// DeletePod forgets a pod.
func (s *State) DeletePod(k types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[k]; p != nil {
		s.gone.bury(p.UID, s.clock.Now())
		if p.Spec.NodeName != "" && !OwnedByDaemonSet(p) && !Terminal(p) {
			s.moved[p.Spec.NodeName] = s.clock.Now()
		}
	}
	s.dropPod(k)
	s.touchPod(k)
}

// NodeName returns the name of the Node that a machine has become, the machine being
// named as its claim or as its Node, or "" while there is none.
func (s *State) NodeName(machine string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.nodes[machine] != nil {
		return machine
	}
	if c := s.claims[machine]; c != nil && c.Status.ProviderID != "" {
		return s.nodeOf[c.Status.ProviderID]
	}
	return ""
}

// Claim returns the NodeClaim of a name, or nil. It is shared and read-only.
func (s *State) Claim(name string) *karpenter.NodeClaim {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.claims[name]
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
	s.use(old, false)
	s.part(k, old)
	delete(s.since, k)
	if n := old.Status.NominatedNodeName; s.expected[n] != nil {
		delete(s.expected[n], k)
		if len(s.expected[n]) == 0 {
			delete(s.expected, n)
		}
	}
	if on := s.bound[old.Spec.NodeName]; on[k] != nil {
		delete(on, k)
		delete(s.order, old.Spec.NodeName)
		if len(on) == 0 {
			delete(s.bound, old.Spec.NodeName)
		}
	}
}

// SetNode records a Node as it is now.
func (s *State) SetNode(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.nodes[n.Name]
	if old != nil && old.Spec.ProviderID != n.Spec.ProviderID {
		s.unlinkNode(old)
	}
	if old == nil && s.claimOf[n.Spec.ProviderID] != "" {
		s.notify() // pods that were planned onto the claim can be nominated now
	}
	s.recount(n.Name, func() { s.nodes[n.Name] = n })
	if id := n.Spec.ProviderID; id != "" {
		s.nodeOf[id] = n.Name
	}
	s.touchNode(n)
}

// touchNode marks the machine that a Node is, and the one that it was before a
// claim was found for it.
func (s *State) touchNode(n *corev1.Node) {
	s.touchMachine(nodeKey(n.Name))
	if c, ok := s.claimOf[n.Spec.ProviderID]; ok {
		s.touchMachine(claimKey(c))
	}
}

func (s *State) unlinkNode(n *corev1.Node) {
	s.touchNode(n)
	if s.nodeOf[n.Spec.ProviderID] == n.Name {
		delete(s.nodeOf, n.Spec.ProviderID)
	}
}

// DeleteNode forgets a Node.
func (s *State) DeleteNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.nodes[name]; old != nil {
		s.unlinkNode(old)
	}
	if len(s.expected[name]) > 0 {
		s.notify()
	}
	s.recount(name, func() { delete(s.nodes, name) })
	delete(s.moved, name)
	delete(s.nominated, name)
}

// SetDaemonSet records a DaemonSet as it is now.
func (s *State) SetDaemonSet(d *appsv1.DaemonSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.daemonSets[key(d)] = d
	s.touchDaemons()
}

// DeleteDaemonSet forgets a DaemonSet.
func (s *State) DeleteDaemonSet(k types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.daemonSets, k)
	s.touchDaemons()
}

// touchNamed marks the machine whose Node has a name.
func (s *State) touchNamed(node string) {
	if n := s.nodes[node]; n != nil {
		s.touchNode(n)
	}
}
