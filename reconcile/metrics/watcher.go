package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Indexes into definitions.
const (
	nodesAllocatable = iota
	nodesPodRequests
	nodesDaemonRequests
	nodesPodLimits
	nodesDaemonLimits
	nodesOverhead
	nodesAge
	poolLimit
	poolUsage
	poolFailures
	poolHeld
	claimsByPhase
	clusterNodes
	clusterSynced
	clusterUtilization
	clusterUnsynced
	podsState
	claimConditions
	poolConditions
	classConditions
)

// definition is a gauge that is read from the state.
type definition struct {
	name, help string
	labels     []string
}

// definitions are the gauges that are read from the state, in the order of the
// indexes.
func definitions() []definition {
	node := []string{"node_name", labelNodePool, "instance_type", labelZone, labelCapacityType, "arch"}
	resources := append(append([]string(nil), node...), labelResource)
	return []definition{
		{"karpenter_nodes_allocatable", "What a Node's pods may request in all.", resources},
		{"karpenter_nodes_total_pod_requests", "What the pods on a Node request, daemons aside.", resources},
		{"karpenter_nodes_total_daemon_requests", "What the daemons on a Node request.", resources},
		{"karpenter_nodes_total_pod_limits", "What the pods on a Node are limited to, daemons aside.", resources},
		{"karpenter_nodes_total_daemon_limits", "What the daemons on a Node are limited to.", resources},
		{"karpenter_nodes_system_overhead", "What the system keeps of a Node: its capacity less what is allocatable.", resources},
		{"karpenter_nodes_current_lifetime_seconds", "A Node's age.", node},
		{"karpenter_nodepools_limit", "What a NodePool's nodes may add up to.", []string{labelNodePool, labelResource}},
		{"karpenter_nodepools_usage", "What a NodePool's nodes add up to.", []string{labelNodePool, labelResource}},
		{"coppice_nodepools_launch_failures", "A NodePool's launches that failed in a row; above 0 it is held back.", []string{labelNodePool}},
		{"coppice_nodepools_held_seconds", "How long until a NodePool that is held back is tried again.", []string{labelNodePool}},
		{"coppice_nodeclaims", "NodeClaims by how far they have come: Pending, Launched, Registered, Initialized, Deleting.", []string{labelNodePool, "phase"}},
		{"karpenter_cluster_state_node_count", "Nodes and NodeClaims that the controller knows of.", nil},
		{"karpenter_cluster_state_synced", "1 once the controller has seen all that there is.", nil},
		{"karpenter_cluster_utilization_percent", "What pods request of what Nodes have allocatable, in percent.", []string{labelResource}},
		{"karpenter_cluster_state_unsynced_time_seconds", "How long the controller has not seen all that there is, 0 once it has.", nil},
		{"karpenter_pods_state", "Pods by phase and by what they run on. Karpenter has a series of 1 for each pod, with name and owner; a sum is the same.",
			[]string{"namespace", labelNodePool, labelZone, "arch", labelCapacityType, "instance_type", "phase"}},
		{"operator_nodeclaim_status_condition_count", "NodeClaims by the status and reason of each condition.", []string{"type", "status", labelReason}},
		{"operator_nodepool_status_condition_count", "NodePools by the status and reason of each condition.", []string{"type", "status", labelReason}},
		{"operator_ec2nodeclass_status_condition_count", "EC2NodeClasses by the status and reason of each condition.", []string{"type", "status", labelReason}},
	}
}

// Watcher reads gauges from the cluster's state whenever they are asked for.
type Watcher struct {
	state  *cluster.State
	synced func() bool
	kube   client.Reader
	health *health.Tracker
	clock  clock.PassiveClock
	since  time.Time
	// elected is closed once this replica leads: what it alone is to tell is of the
	// whole cluster, and two of them would make twice as much.
	elected <-chan struct{}
	descs   []*prometheus.Desc
	loads   loads
}

// NewWatcher returns a watcher that is yet to be registered. The client reads from a
// cache, and elected is closed once this replica leads.
func NewWatcher(state *cluster.State, synced func() bool, kube client.Reader, tracker *health.Tracker, clk clock.PassiveClock, elected <-chan struct{}) *Watcher {
	w := &Watcher{state: state, synced: synced, kube: kube, health: tracker, clock: clk, elected: elected}
	if clk != nil {
		w.since = clk.Now()
	}
	for _, d := range definitions() {
		w.descs = append(w.descs, prometheus.NewDesc(d.name, d.help, d.labels, nil))
	}
	return w
}

// Describe implements prometheus.Collector.
func (w *Watcher) Describe(out chan<- *prometheus.Desc) {
	for _, d := range w.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (w *Watcher) Collect(out chan<- prometheus.Metric) {
	put := func(index int, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(w.descs[index], prometheus.GaugeValue, value, labels...)
	}
	now := w.clock.Now()
	if !w.synced() {
		put(clusterSynced, 0)
		put(clusterUnsynced, now.Sub(w.since).Seconds())
		return // what is known so far would look like a cluster that shrank
	}
	put(clusterSynced, 1)
	put(clusterUnsynced, 0)
	select {
	case <-w.elected:
	default:
		return
	}
	var pools karpenter.NodePoolList
	if err := w.kube.List(context.Background(), &pools); err != nil {
		return // the cache is stopping
	}
	s := w.state.Snapshot()
	put(clusterNodes, float64(len(s.Nodes)))
	w.nodes(s, now, put)
	w.pools(s, pools.Items, now, put)
	w.pods(s, put)
	w.conditions(s, pools.Items, put)
}

func (w *Watcher) nodes(s cluster.Snapshot, now time.Time, put func(int, float64, ...string)) {
	requested, allocatable := corev1.ResourceList{}, corev1.ResourceList{}
	loads := w.loads.begin()
	defer loads.end()
	for _, n := range s.Nodes {
		if n.Claim == nil || n.Node == nil {
			continue
		}
		l := n.Node.Labels
		labels := []string{n.Node.Name, n.Pool(), l[corev1.LabelInstanceTypeStable], l[corev1.LabelTopologyZone], l[karpenter.LabelCapacityType], l[corev1.LabelArchStable]}
		each := func(index int, list corev1.ResourceList) {
			for name, q := range list {
				if q.IsZero() && name != corev1.ResourceCPU && name != corev1.ResourceMemory {
					continue // a thousand nodes without huge pages are thousands of series
				}
				put(index, q.AsApproximateFloat64(), append(append([]string(nil), labels...), string(name))...)
			}
		}
		system, have, x := corev1.ResourceList{}, n.Allocatable(), loads.of(n)
		for name, q := range n.Capacity() {
			q.Sub(have[name])
			system[name] = q
		}
		each(nodesAllocatable, have)
		each(nodesPodRequests, x.pods)
		each(nodesDaemonRequests, x.daemons)
		each(nodesPodLimits, x.podLimits)
		each(nodesDaemonLimits, x.daemonLimits)
		each(nodesOverhead, system)
		put(nodesAge, now.Sub(n.Node.CreationTimestamp.Time).Seconds(), labels...)
		add(allocatable, have)
		add(requested, x.pods)
		add(requested, x.daemons)
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if have := allocatable[name]; !have.IsZero() {
			used := requested[name]
			put(clusterUtilization, 100*used.AsApproximateFloat64()/have.AsApproximateFloat64(), string(name))
		}
	}
}

func (w *Watcher) pools(s cluster.Snapshot, pools []karpenter.NodePool, now time.Time, put func(int, float64, ...string)) {
	phases := map[[2]string]int{}
	for _, n := range s.Nodes {
		if n.Claim != nil {
			phases[[2]string{n.Pool(), phase(n)}]++
		}
	}
	for k, n := range phases {
		put(claimsByPhase, float64(n), k[0], k[1])
	}
	for i := range pools {
		p := &pools[i]
		for name, q := range p.Spec.Limits {
			put(poolLimit, q.AsApproximateFloat64(), p.Name, string(name))
		}
		for name, q := range p.Status.Resources {
			put(poolUsage, q.AsApproximateFloat64(), p.Name, string(name))
		}
		h := w.health.Hold(p.Name)
		put(poolFailures, float64(h.Failures), p.Name)
		put(poolHeld, max(0, h.Until.Sub(now).Seconds()), p.Name)
	}
}

// pods counts the pods that are bound, and those that wait for a node.
func (w *Watcher) pods(s cluster.Snapshot, put func(int, float64, ...string)) {
	counts := map[[7]string]int{}
	for _, n := range s.Nodes {
		l := n.Labels()
		for _, p := range n.Pods {
			counts[[7]string{p.Namespace, n.Pool(), l[corev1.LabelTopologyZone], l[corev1.LabelArchStable], l[karpenter.LabelCapacityType], l[corev1.LabelInstanceTypeStable], string(p.Status.Phase)}]++
		}
	}
	for _, p := range s.Pending {
		counts[[7]string{p.Namespace, 6: string(p.Status.Phase)}]++
	}
	for k, n := range counts {
		put(podsState, float64(n), k[:]...)
	}
}

func (w *Watcher) conditions(s cluster.Snapshot, pools []karpenter.NodePool, put func(int, float64, ...string)) {
	counts := map[[3]string]int{}
	count := func(conditions []metav1.Condition) {
		for _, c := range conditions {
			counts[[3]string{c.Type, string(c.Status), c.Reason}]++
		}
	}
	flush := func(index int) {
		for k, n := range counts {
			put(index, float64(n), k[:]...)
		}
		clear(counts)
	}
	for _, n := range s.Nodes {
		if n.Claim != nil {
			count(n.Claim.Status.Conditions)
		}
	}
	flush(claimConditions)
	for i := range pools {
		count(pools[i].Status.Conditions)
	}
	flush(poolConditions)
	var classes aws.EC2NodeClassList
	if err := w.kube.List(context.Background(), &classes); err != nil {
		return // the cache is stopping
	}
	for i := range classes.Items {
		count(classes.Items[i].Status.Conditions)
	}
	flush(classConditions)
}

// phase is how far a claim has come.
func phase(n cluster.Node) string {
	switch {
	case n.Deleting():
		return "Deleting"
	case n.Initialized():
		return karpenter.ConditionInitialized
	case n.Registered():
		return karpenter.ConditionRegistered
	case n.Claim.Status.ProviderID != "":
		return karpenter.ConditionLaunched
	}
	return "Pending"
}

func add(into, more corev1.ResourceList) {
	for name, q := range more {
		have, ok := into[name]
		if !ok {
			have = resource.Quantity{}
		}
		have.Add(q)
		into[name] = have
	}
}
