package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/cmd/sandbox/stack"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// deployment is a Deployment of pods that do nothing.
type deployment struct {
	name     string
	replicas int
	cpu      string
	memory   string
	// zoneSpread keeps zones even, hostSpread prefers it of hosts; apart allows
	// no two pods of the scenario on one host.
	zoneSpread, hostSpread, apart bool
	// budget is a PodDisruptionBudget with maxUnavailable 1.
	budget bool
}

// mixed is n pods of five shapes.
func mixed(n int) []deployment {
	shapes := [][2]string{{"100m", "128Mi"}, {"500m", "1Gi"}, {"1", "2Gi"}, {"2", "8Gi"}, {"4", "16Gi"}}
	var out []deployment
	for i, s := range shapes {
		out = append(out, deployment{name: fmt.Sprintf("mixed-%d", i+1), replicas: n / len(shapes), cpu: s[0], memory: s[1]})
	}
	return out
}

// constrained is n Deployments of 2 to 20 pods, of many sizes, spread over zones
// and if possible over hosts, of which one pod at a time may be disrupted.
func constrained(n int) []deployment {
	rng := rand.New(rand.NewPCG(5, 40))
	milliCPU := []int{250, 500, 750, 1000, 1500, 2000}
	mibPerCore := []int{1024, 2048, 4096, 7168}
	var out []deployment
	for i := range n {
		cpu := milliCPU[rng.IntN(len(milliCPU))]
		out = append(out, deployment{
			name: fmt.Sprintf("trough-%02d", i+1), replicas: 2 + rng.IntN(19),
			cpu: fmt.Sprintf("%dm", cpu), memory: fmt.Sprintf("%dMi", cpu*mibPerCore[rng.IntN(len(mibPerCore))]/1000),
			zoneSpread: true, hostSpread: true, budget: true,
		})
	}
	return out
}

func alter(ds []deployment, change func(*deployment)) []deployment {
	for i := range ds {
		change(&ds[i])
	}
	return ds
}

const (
	namespace = "default"
	// scenarioLabel is on every pod of a scenario.
	scenarioLabel = "compare"
)

// template is what the deployment's pods look like.
func (d deployment) template() corev1.PodTemplateSpec {
	labels := map[string]string{"app": d.name, scenarioLabel: "true"}
	own := &metav1.LabelSelector{MatchLabels: map[string]string{"app": d.name}}
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "pause", Image: "public.ecr.aws/eks-distro/kubernetes/pause:3.7",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(d.cpu), corev1.ResourceMemory: resource.MustParse(d.memory),
			}},
		}}},
	}
	if d.zoneSpread {
		t.Spec.TopologySpreadConstraints = append(t.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: own,
		})
	}
	if d.hostSpread {
		t.Spec.TopologySpreadConstraints = append(t.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: own,
		})
	}
	if d.apart {
		t.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{scenarioLabel: "true"}},
			}},
		}}
	}
	return t
}

func (d deployment) object() *appsv1.Deployment {
	n := int32(d.replicas)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: d.name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": d.name}},
			Template: d.template(),
		},
	}
}

func (d deployment) disruptionBudget() *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: d.name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": d.name}},
		},
	}
}

// share is how many of the replicas are left, at least one.
func (d deployment) share(part float64) int {
	return max(1, int(math.Round(part*float64(d.replicas))))
}

// poolSpec is what differs between the scenarios' NodePools.
type poolSpec struct {
	// minCPU and maxCPU bound the vCPUs of instance types; zero doesn't.
	minCPU, maxCPU int
	// spot allows both capacity types; without it all is on demand.
	spot          bool
	policy, after string
	// budget is how many nodes may go at once; empty for the default of 10 %.
	budget string
}

const poolName = "default"

// poolYAML is the NodePool of every scenario, without what differs.
const poolYAML = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      expireAfter: Never
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: kubernetes.io/os, operator: In, values: [linux]}
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
      - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
      - {key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ["4"]}
`

func nodeClass() (*aws.EC2NodeClass, error) {
	c := &aws.EC2NodeClass{}
	if err := yaml.UnmarshalStrict([]byte(stack.NodeClass), c); err != nil {
		return nil, fmt.Errorf("read the EC2NodeClass: %w", err)
	}
	return c, nil
}

func (s poolSpec) nodePool() (*karpenter.NodePool, error) {
	p := &karpenter.NodePool{}
	if err := yaml.UnmarshalStrict([]byte(poolYAML), p); err != nil {
		return nil, fmt.Errorf("read the NodePool: %w", err)
	}
	require := func(key string, op corev1.NodeSelectorOperator, values ...string) {
		p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements,
			karpenter.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values})
	}
	capacity := []string{karpenter.CapacityTypeOnDemand}
	if s.spot {
		capacity = append(capacity, karpenter.CapacityTypeSpot)
	}
	require(karpenter.LabelCapacityType, corev1.NodeSelectorOpIn, capacity...)
	if s.minCPU > 0 {
		require(aws.LabelInstanceCPU, corev1.NodeSelectorOpGt, strconv.Itoa(s.minCPU-1))
	}
	if s.maxCPU > 0 {
		require(aws.LabelInstanceCPU, corev1.NodeSelectorOpLt, strconv.Itoa(s.maxCPU+1))
	}
	p.Spec.Disruption.ConsolidationPolicy = karpenter.ConsolidationPolicy(s.policy)
	var err error
	if p.Spec.Disruption.ConsolidateAfter, err = karpenter.ParseNillableDuration(s.after); err != nil {
		return nil, fmt.Errorf("read consolidateAfter: %w", err)
	}
	if s.budget != "" {
		p.Spec.Disruption.Budgets = []karpenter.Budget{{Nodes: s.budget}}
	}
	return p, nil
}
