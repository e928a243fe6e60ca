package cluster

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/pack"
)

// Model is a State in the packing core's terms. Sync brings it up to date at a cost
// of what has changed, not of what exists. It is for one caller at a time; a State may
// have several Models, which live as long as it does.
type Model struct {
	core     *pack.State
	machines map[string]machine // by machineKey
	pods     map[types.NamespacedName]bool
	pending  map[types.NamespacedName]*corev1.Pod
	refused  map[types.NamespacedName]error
	// scoped are the pods whose meaning depends on their surroundings; they are
	// translated anew when these change.
	scoped map[types.NamespacedName]scope
	specs  translations

	pools   []poolKey
	usage   map[string]pack.Resources
	limits  pack.Resources                              // over all pools
	classes map[*cloud.InstanceType][]pack.InstanceType // by the first type of a shared list
	attach  uint64                                      // the moment of the attachments in them
	// at numbers the moment of the last Sync.
	at uint64
}

// machine is what the core was told about a machine.
type machine struct {
	node     pack.Node
	pool     string
	onNode   string // the Node's name, "" before there is one
	deleting bool
}

// poolKey tells whether a pool must be told to the core anew.
type poolKey struct {
	uid        types.UID
	generation int64
	preference string
	types      *cloud.InstanceType
	n          int
}

// NewModel returns a model that knows nothing yet.
func NewModel() *Model {
	core, err := pack.NewState(pack.Problem{})
	if err != nil {
		panic(err) // an empty problem has nothing to refuse
	}
	return &Model{
		core: core, machines: map[string]machine{}, pods: map[types.NamespacedName]bool{}, pending: map[types.NamespacedName]*corev1.Pod{},
		refused: map[types.NamespacedName]error{}, scoped: map[types.NamespacedName]scope{}, usage: map[string]pack.Resources{},
	}
}

// Limit bounds what the nodes of all pools may add up to. It is called before the
// first Sync.
func (m *Model) Limit(limits corev1.ResourceList) { m.limits = limitsOf(limits) }

// Sync takes over what has changed in s, and the pools as they are now.
func (m *Model) Sync(s *State, pools []Pool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropUnseen()
	s.moment++
	m.at = s.moment
	d := s.news(m)

	changed := m.poolsChanged(pools)
	if m.attach != s.attach.moment {
		m.attach, m.classes, changed = s.attach.moment, nil, true
	}
	if changed {
		// Prices, and what an unlaunched claim may become, depend on the types.
		for k := range m.machines {
			d.machines[k] = struct{}{}
		}
	}
	byName := map[string]Pool{}
	for _, p := range pools {
		byName[p.Name] = p
	}
	var errs []error
	usage := m.syncMachines(s, d, byName)
	if *d.around != 0 {
		for k, on := range m.scoped {
			if on&*d.around != 0 {
				d.pods[k] = struct{}{}
			}
		}
	}
	for k := range d.pods {
		errs = append(errs, m.syncPod(s, k))
	}
	if *d.daemons {
		errs = append(errs, m.syncDaemons(s))
	}
	if changed || usage {
		errs = append(errs, m.syncPools(s, pools))
	}
	return errors.Join(errs...)
}

// syncMachines reports whether any pool's usage has changed. Pods whose machine
// begins or stops to go, or gets its Node's name, are added to d.
func (m *Model) syncMachines(s *State, d dirty, pools map[string]Pool) (usage bool) {
	next := make(map[string]*machine, len(d.machines))
	for k := range d.machines {
		now, ok := s.machine(k)
		if !ok {
			next[k] = nil
			continue
		}
		x := &machine{node: s.node(now, pools[now.Pool()]), pool: now.Pool(), deleting: now.Deleting()}
		if now.Node != nil {
			x.onNode = now.Node.Name
		}
		// A pool that is held back or not ready for a moment has no types to tell. That
		// is no reason to forget what a launch under way will have room for.
		if old, had := m.machines[k]; had && now.Claim != nil && now.Claim.Status.ProviderID == "" && len(pools[x.pool].Types) == 0 {
			x.node.Capacity, x.node.Allocatable = old.node.Capacity, old.node.Allocatable
		}
		next[k] = x
	}
	// Names move from one key to another when a Node's claim is found, so all that
	// go, go before any comes.
	for k, x := range next {
		old, had := m.machines[k]
		if had && !old.deleting && (x == nil || x.deleting || x.node.Name != old.node.Name) {
			m.core.RemoveNode(old.node.Name)
		}
		if had && (x == nil || old.deleting != x.deleting || old.onNode != x.onNode) {
			s.touchPods(d, old.onNode)
		}
		if had && (x == nil || old.pool != x.pool || !reflect.DeepEqual(old.node.Capacity, x.node.Capacity)) {
			m.count(old.pool, old.node.Capacity, -1)
			usage = usage || old.pool != ""
		}
		if x == nil {
			delete(m.machines, k)
		}
	}
	for k, x := range next {
		if x == nil {
			continue
		}
		old, had := m.machines[k]
		same := had && reflect.DeepEqual(old.node, x.node) && old.deleting == x.deleting
		if !x.deleting && !same {
			m.core.SetNode(x.node)
		}
		if !had || old.deleting != x.deleting || old.onNode != x.onNode {
			s.touchPods(d, x.onNode)
		}
		if !had || old.pool != x.pool || !reflect.DeepEqual(old.node.Capacity, x.node.Capacity) {
			m.count(x.pool, x.node.Capacity, 1)
			usage = usage || x.pool != ""
		}
		m.machines[k] = *x
	}
	return usage
}

func (s *State) touchPods(d dirty, node string) {
	for k := range s.bound[node] {
		d.pods[k] = struct{}{}
	}
	for k := range s.expected[node] {
		d.pods[k] = struct{}{}
	}
}

// count adds to or takes from what a pool's machines have. A machine on its way out
// counts until it is gone: it still costs.
func (m *Model) count(pool string, capacity pack.Resources, sign int64) {
	if pool == "" {
		return
	}
	sum := m.usage[pool]
	if sum == nil {
		sum = pack.Resources{}
		m.usage[pool] = sum
	}
	for k, v := range capacity {
		sum[k] += sign * v
	}
	sum[pack.NodeCount] += sign
}

func (m *Model) syncPod(s *State, k types.NamespacedName) error {
	p := s.pods[k]
	on, counts := "", false
	if p != nil && !Terminal(p) {
		on, counts = m.place(s, p)
	}
	delete(m.pending, k)
	delete(m.refused, k)
	delete(m.scoped, k)
	if !counts {
		if p != nil && p.Spec.NodeName != "" && Reschedulable(p) {
			m.scoped[k] = scopeBudgets // one holds it
		}
		if m.pods[k] {
			m.core.RemovePod(k.Namespace + "/" + k.Name)
			delete(m.pods, k)
		}
		return nil
	}
	var depends scope
	if hasNamespaceSelector(p) {
		depends |= scopeNamespaces
	}
	if len(VolumeClaims(p)) > 0 {
		depends |= scopeClasses
	}
	if on == "" && p.Spec.NodeName != "" {
		depends |= scopeBudgets
	}
	if depends != 0 {
		m.scoped[k] = depends
	}
	spec, err := m.specs.podSpec(p, around{s})
	if err != nil && on == "" {
		m.refused[k] = err
		m.core.RemovePod(PodKey(p))
		delete(m.pods, k)
		return nil // its pod's business, said in an event
	}
	// A pod that has its node takes its room there, whatever has become of its claims.
	if on == "" {
		m.pending[k] = p
	}
	m.pods[k] = true
	out := corePod(p, on, spec)
	out.Labels = s.carrierLabels(p)
	if err := m.core.SetPod(out); err != nil {
		return fmt.Errorf("pod %s: %w", PodKey(p), err)
	}
	return nil
}

// place says where a pod counts: on a Node, or "" for wanting one. A pod that is
// nominated to a Node counts there, as the scheduler keeps room for it, unless it wasn't
// bound there for too long.
func (m *Model) place(s *State, p *corev1.Pod) (on string, counts bool) {
	if p.Spec.NodeName == "" {
		if n := p.Status.NominatedNodeName; n != "" && s.nodes[n] != nil && !m.going(s, n) && !s.lapsed(p) {
			return n, waiting(p)
		}
		return "", s.unplaced(p)
	}
	if m.going(s, p.Spec.NodeName) {
		return "", Reschedulable(p) && !s.held(p, s.clock.Now())
	}
	return p.Spec.NodeName, true
}

// going reports whether the machine of a Node is on its way out.
func (m *Model) going(s *State, node string) bool {
	k := nodeKey(node)
	if n := s.nodes[node]; n != nil && s.nodeOf[n.Spec.ProviderID] == n.Name {
		if c, ok := s.claimOf[n.Spec.ProviderID]; ok {
			k = claimKey(c)
		}
	}
	return m.machines[k].deleting
}

func corePod(p *corev1.Pod, on string, spec *pack.PodSpec) pack.Pod {
	return pack.Pod{
		Name: PodKey(p), Namespace: p.Namespace, Labels: p.Labels, Node: on,
		Priority: priority(p), Daemon: OwnedByDaemonSet(p) || static(p), Leaving: on != "" && p.DeletionTimestamp != nil, Spec: spec,
	}
}

func hasNamespaceSelector(p *corev1.Pod) bool {
	a := p.Spec.Affinity
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	var weighted []corev1.WeightedPodAffinityTerm
	if x := a.PodAffinity; x != nil {
		terms, weighted = append(terms, x.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, x.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if x := a.PodAntiAffinity; x != nil {
		terms, weighted = append(terms, x.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, x.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return t.NamespaceSelector != nil }) ||
		slices.ContainsFunc(weighted, func(t corev1.WeightedPodAffinityTerm) bool { return t.PodAffinityTerm.NamespaceSelector != nil })
}

func (m *Model) syncDaemons(s *State) error {
	var out []pack.Daemon
	for _, d := range s.daemonSets {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, Labels: d.Spec.Template.Labels},
			Spec:       d.Spec.Template.Spec,
		}
		spec, err := PodSpec(p, around{s})
		if err != nil {
			continue // its pods run nowhere, as the scheduler says of them
		}
		out = append(out, pack.Daemon{Name: PodKey(p), Spec: spec})
	}
	slices.SortFunc(out, func(a, b pack.Daemon) int { return strings.Compare(a.Name, b.Name) })
	return m.core.SetDaemons(out)
}

// poolsChanged compares the pools with those that the core was told, and remembers
// them.
func (m *Model) poolsChanged(pools []Pool) bool {
	keys := make([]poolKey, 0, len(pools))
	for _, p := range pools {
		// Annotations don't count towards the generation.
		k := poolKey{uid: p.UID, generation: p.Generation, preference: p.Annotations[AnnotationPreferencePolicy], n: len(p.Types)}
		if k.n > 0 {
			k.types = &p.Types[0]
		}
		keys = append(keys, k)
	}
	if slices.Equal(keys, m.pools) {
		return false
	}
	m.pools = keys
	return true
}

func (m *Model) syncPools(s *State, pools []Pool) error {
	fresh := map[*cloud.InstanceType][]pack.InstanceType{}
	var out []pack.Pool
	for _, p := range pools {
		if len(p.Types) == 0 {
			continue
		}
		first := &p.Types[0]
		if fresh[first] == nil {
			if got := m.classes[first]; len(got) == len(p.Types) {
				fresh[first] = got
			} else {
				fresh[first] = s.attach.instanceTypes(p.Types)
			}
		}
		q := pool(p, fresh[first])
		q.Usage = pack.Resources{}
		for k, v := range m.usage[p.Name] {
			q.Usage[k] = v
		}
		out = append(out, q)
	}
	m.classes = fresh
	return m.core.SetPools(out, m.room(out), wellKnown())
}

// room is what the limit over all pools leaves to these: nodes of pools that nothing
// can be opened from count as well.
func (m *Model) room(pools []pack.Pool) pack.Resources {
	if m.limits == nil {
		return nil
	}
	left := maps.Clone(m.limits)
	for name, usage := range m.usage {
		if slices.ContainsFunc(pools, func(p pack.Pool) bool { return p.Name == name }) {
			continue
		}
		for k := range left {
			left[k] = max(0, left[k]-usage[k])
		}
	}
	return left
}

// Pending counts the pods that want a node.
func (m *Model) Pending() int { return len(m.pending) }

// Pod returns the pending pod of a plan's name, or nil.
func (m *Model) Pod(name string) *corev1.Pod {
	return m.pending[podName(name)]
}

// Refused lists pods that can't be translated, with the reason.
func (m *Model) Refused() map[types.NamespacedName]error { return m.refused }

// Core is the model in the packing core's hands, where pods are named as by PodKey and
// machines as by Node.Name. It may be altered for as long as a decision takes, if it is
// as it was before the next Sync.
func (m *Model) Core() *pack.State { return m.core }

// Plan decides where the pending pods go.
func (m *Model) Plan(o pack.Options) *pack.Plan { return m.core.Solve(o) }
