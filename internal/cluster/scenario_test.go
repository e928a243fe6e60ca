package cluster

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// scenario is a random cluster: what exists, and pods to come in batches.
type scenario struct {
	r    *rand.Rand
	name string
	// types are what the cloud sells; small are those that nodes exist of.
	types, small []cloud.InstanceType
	zones        []string

	pools   []Pool
	claims  []*karpenter.NodeClaim
	nodes   []*corev1.Node
	volumes []*corev1.PersistentVolume
	bound   []*corev1.PersistentVolumeClaim
	// running are bound by their maker, not by a scheduler. Of them, those of
	// leaving are deleted and have their grace period left.
	running []*corev1.Pod
	leaving []*corev1.Pod
	daemons []*appsv1.DaemonSet
	batches [2][]*corev1.Pod
	// unclaimed are claims that bind when their pod has a node.
	unclaimed []*corev1.PersistentVolumeClaim
}

// What is there once for all scenarios.
const (
	runtimeHeavy   = "heavy" // a RuntimeClass with overhead
	classWait      = "wait"  // StorageClasses that bind with the pod
	classZoned     = "zoned" // as classWait, but in the first zone alone
	classNow       = "now"   // binds without waiting
	provisioner    = "ebs.csi.aws.com"
	gate           = "coppice.dev/hold"
	sharedHostPort = 8080
)

var (
	namespaces = map[string]map[string]string{"red": {"team": "red", "env": "test"}, "blue": {"team": "blue", "env": "test"}, "green": {"team": "green"}}
	priorities = map[string]int32{"low": -10, "usual": 0, "high": 1000}
)

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (s *scenario) chance(percent int) bool { return s.r.IntN(100) < percent }

// newScenario makes the cluster that follows from seed.
func newScenario(seed uint64, all []cloud.InstanceType) *scenario {
	s := &scenario{r: rand.New(rand.NewPCG(seed, 4)), name: fmt.Sprintf("c%d", seed), types: all}
	zones := map[string]bool{}
	for _, t := range all {
		cpu, _ := strconv.Atoi(t.Labels[aws.LabelInstanceCPU])
		if cpu >= 2 && cpu <= 8 && t.Labels[aws.LabelInstanceCategory] != "t" && len(t.Offerings) > 0 {
			s.small = append(s.small, t)
		}
		for _, o := range t.Offerings {
			if !zones[o.Zone] {
				zones[o.Zone] = true
				s.zones = append(s.zones, o.Zone)
			}
		}
	}
	for i := range 1 + s.r.IntN(3) {
		s.pools = append(s.pools, s.pool(i))
	}
	for i := range s.r.IntN(5) {
		s.node(i)
	}
	apps := 1 + s.r.IntN(5)
	for app := range apps {
		template := s.template(app)
		ns := one(s.r, "red", "red", "blue", "green")
		// Other seeds keep the clusters that they have always made.
		if seed%10 == 9 && app%2 == 0 && template.volume == 0 {
			template.shared = fmt.Sprintf("%s-a%d", s.name, app)
			s.volume(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns}}, template.shared)
		}
		for i := range 1 + s.r.IntN(7) {
			s.pending(fmt.Sprintf("%s-a%d-%d", s.name, app, i), ns, template, s.r.IntN(4)/3)
		}
	}
	for _, n := range s.nodes {
		for i := range s.r.IntN(4) {
			s.run(fmt.Sprintf("%s-r%d", n.Name, i), n, s.r.IntN(apps))
		}
	}
	for i := range max(0, s.r.IntN(5)-2) {
		s.daemon(i)
	}
	return s
}

func need(key string, op corev1.NodeSelectorOperator, values ...string) karpenter.NodeSelectorRequirementWithMinValues {
	return karpenter.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values}
}

func (s *scenario) pool(i int) Pool {
	np := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-p%d", s.name, i), UID: types.UID(fmt.Sprintf("%s-p%d", s.name, i)), Generation: 1,
	}}
	t := &np.Spec.Template
	t.Labels = map[string]string{"pool": strconv.Itoa(i)}
	// Few nodes of a giant type would leave nothing to decide.
	t.Spec.Requirements = append(t.Spec.Requirements, need(aws.LabelInstanceCPU, "Lt", one(s.r, "5", "9", "9", "17", "33")), need(aws.LabelInstanceCPU, "Gt", "1"))
	if s.chance(30) {
		t.Spec.Requirements = append(t.Spec.Requirements, need(aws.LabelInstanceFamily, "In", "m5", "c5", "r6g", "m7i", "c7g"))
	}
	if s.chance(30) {
		t.Spec.Requirements = append(t.Spec.Requirements, need(corev1.LabelArchStable, "In", one(s.r, "amd64", "arm64")))
	}
	if s.chance(30) {
		t.Spec.Requirements = append(t.Spec.Requirements, need(karpenter.LabelCapacityType, "In", one(s.r, cloud.Spot, cloud.OnDemand)))
	}
	if s.chance(30) {
		t.Spec.Requirements = append(t.Spec.Requirements, need(corev1.LabelTopologyZone, "In", s.zones[:1+s.r.IntN(len(s.zones))]...))
	}
	if s.chance(40) {
		t.Spec.Requirements = append(t.Spec.Requirements, one(s.r, need("team", "In", "x"), need("team", "In", "x", "y"), need("team", "Exists"), need("team", "NotIn", "z")))
	}
	if s.chance(30) {
		t.Spec.Taints = append(t.Spec.Taints, corev1.Taint{Key: "dedicated", Value: one(s.r, "x", "y"), Effect: one(s.r, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule)})
	}
	if s.chance(20) {
		t.Spec.StartupTaints = []corev1.Taint{{Key: "booting", Effect: corev1.TaintEffectNoSchedule}}
	}
	if s.chance(25) {
		np.Spec.Limits = one(s.r,
			karpenter.Limits{corev1.ResourceCPU: resource.MustParse("24")},
			karpenter.Limits{corev1.ResourceMemory: resource.MustParse("96Gi")},
			karpenter.Limits{"nodes": resource.MustParse("2")})
	}
	if s.chance(15) {
		three := 3
		q := need(aws.LabelInstanceFamily, "Exists")
		q.MinValues = &three
		t.Spec.Requirements = append(t.Spec.Requirements, q)
	}
	if s.chance(40) {
		w := int32(1 + s.r.IntN(50))
		np.Spec.Weight = &w
	}
	return Pool{NodePool: np, Types: s.types}
}

// ready makes a Node as a kubelet registers it, once all its parts report.
func ready(name string, labels map[string]string, taints []corev1.Taint, capacity, allocatable corev1.ResourceList) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{Taints: taints, ProviderID: "aws:///here/" + name},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: allocatable,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
		},
	}
	for k, v := range labels {
		n.Labels[k] = v
	}
	if z := n.Labels[corev1.LabelTopologyZone]; z != "" {
		n.Labels[aws.LabelEBSTopologyZone] = z // the CSI driver's
	}
	return n
}

// bought are the labels of a node of the type, bought so.
func bought(t cloud.InstanceType, o cloud.Offering) map[string]string {
	out := map[string]string{corev1.LabelTopologyZone: o.Zone, karpenter.LabelCapacityType: o.CapacityType, aws.LabelTopologyZoneID: o.ZoneID}
	for k, v := range t.Labels {
		out[k] = v
	}
	return out
}

// node adds a node that exists: somebody else's, or one of a pool.
func (s *scenario) node(i int) {
	t := one(s.r, s.small...)
	labels := bought(t, one(s.r, t.Offerings...))
	name := fmt.Sprintf("%s-n%d", s.name, i)
	var taints []corev1.Taint
	if s.chance(20) {
		taints = append(taints, corev1.Taint{Key: one(s.r, "dedicated", "other"), Value: "x", Effect: one(s.r, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)})
	}
	if s.chance(30) {
		labels["team"] = one(s.r, "x", "y", "z")
	}
	if s.chance(50) {
		pool := one(s.r, s.pools...)
		labels[karpenter.LabelNodePool] = pool.Name
		c := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name + "-claim", UID: types.UID(name), Labels: labels}}
		c.Status.ProviderID, c.Status.Capacity, c.Status.Allocatable = "aws:///here/"+name, t.Capacity, t.Allocatable
		s.claims = append(s.claims, c)
		labels[karpenter.LabelRegistered], labels[karpenter.LabelInitialized] = "true", "true"
	} else if s.chance(15) {
		delete(labels, corev1.LabelTopologyZone)
	}
	n := ready(name, labels, taints, t.Capacity, t.Allocatable)
	n.Spec.Unschedulable = s.chance(8)
	s.nodes = append(s.nodes, n)
}

func (s *scenario) daemon(i int) {
	app := fmt.Sprintf("%s-d%d", s.name, i)
	labels := map[string]string{"daemon": app}
	spec := corev1.PodSpec{Containers: []corev1.Container{container("agent", fmt.Sprintf("%dm", 10+s.r.IntN(400)), fmt.Sprintf("%dMi", 16+s.r.IntN(500)))}}
	switch s.r.IntN(5) {
	case 0:
		spec.NodeSelector = map[string]string{corev1.LabelArchStable: "amd64"}
	case 1:
		spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: s.zones[0]}
	case 2:
		spec.NodeSelector = map[string]string{"team": "x"}
	case 3:
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s.nodeTerms()}}
	}
	if s.chance(60) {
		spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	if s.chance(25) {
		spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: sharedHostPort, HostPort: sharedHostPort}}
	}
	zero := int64(0)
	spec.TerminationGracePeriodSeconds = &zero
	s.daemons = append(s.daemons, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: app, Namespace: "green"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	})
}

func container(name, cpu, memory string) corev1.Container {
	c := corev1.Container{Name: name, Image: "none.invalid/none"}
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	return c
}

// run adds a pod that has been running on n, of the app or of its own.
func (s *scenario) run(name string, n *corev1.Node, app int) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: one(s.r, "red", "red", "blue", "green"), Labels: s.labels(app)}}
	p.Spec.Containers = []corev1.Container{container("main", fmt.Sprintf("%dm", s.r.IntN(400)), fmt.Sprintf("%dMi", s.r.IntN(1000)))}
	p.Spec.NodeName = n.Name
	if s.chance(20) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{s.podTerm(app)}}}
	}
	if s.chance(15) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: sharedHostPort, HostPort: sharedHostPort}}
	}
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	s.running = append(s.running, p)
	if s.chance(12) {
		s.leaving = append(s.leaving, p)
	}
}
