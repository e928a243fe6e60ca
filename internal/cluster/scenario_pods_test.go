package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// template is what the pods of an app have in common.
type template struct {
	app    int
	spec   corev1.PodSpec
	volume int // per cent of pods that have a volume
	// shared is the claim that all of the pods use, "" for none.
	shared string
}

func (s *scenario) labels(app int) map[string]string {
	return map[string]string{"app": strconv.Itoa(app), "rev": strconv.Itoa(s.r.IntN(2)), "tier": one(s.r, "front", "back")}
}

func (s *scenario) template(app int) template {
	spec := corev1.PodSpec{Containers: []corev1.Container{container("main", one(s.r, "50m", "100m", "250m", "500m", "900m", "1", "1900m", "2500m", "3500m"), one(s.r, "64Mi", "256Mi", "1Gi", "1500M", "2Gi", "4Gi", "7Gi"))}}
	always := corev1.ContainerRestartPolicyAlways
	if s.chance(15) {
		spec.InitContainers = append(spec.InitContainers, container("init", one(s.r, "100m", "1500m", "3"), "512Mi"))
	}
	if s.chance(15) {
		c := container("sidecar", "200m", "128Mi")
		c.RestartPolicy = &always
		spec.InitContainers = append(spec.InitContainers, c)
		if s.chance(50) {
			spec.InitContainers = append(spec.InitContainers, container("late", "1200m", "1Gi"))
		}
	}
	if s.chance(10) {
		c := container("second", "100m", "100Mi")
		c.Resources.Requests[corev1.ResourceEphemeralStorage] = resource.MustParse("3Gi")
		spec.Containers = append(spec.Containers, c)
	}
	if s.chance(10) {
		spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}}
	}
	if s.chance(10) {
		heavy := runtimeHeavy
		spec.RuntimeClassName = &heavy
	}
	if s.chance(25) {
		spec.NodeSelector = one(s.r,
			map[string]string{corev1.LabelTopologyZone: one(s.r, s.zones...)},
			map[string]string{corev1.LabelArchStable: one(s.r, "amd64", "arm64")},
			map[string]string{karpenter.LabelCapacityType: one(s.r, cloud.Spot, cloud.OnDemand)},
			map[string]string{"team": one(s.r, "x", "y")},
			map[string]string{"pool": one(s.r, "0", "1")},
			map[string]string{aws.LabelInstanceFamily: one(s.r, "m5", "c5")})
	}
	spec.Affinity = &corev1.Affinity{}
	if s.chance(20) {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s.nodeTerms()}
	}
	if s.chance(20) {
		if spec.Affinity.NodeAffinity == nil {
			spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
		}
		spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: int32(1 + s.r.IntN(100)), Preference: s.nodeTerm()}}
	}
	if s.chance(40) {
		spec.Tolerations = append(spec.Tolerations, one(s.r,
			corev1.Toleration{Operator: corev1.TolerationOpExists},
			corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists},
			corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "x", Effect: corev1.TaintEffectNoSchedule},
			corev1.Toleration{Key: "dedicated", Value: "y"}))
	}
	if s.chance(22) {
		x := &corev1.PodAffinity{}
		spec.Affinity.PodAffinity = x
		if s.chance(70) {
			x.RequiredDuringSchedulingIgnoredDuringExecution = append(x.RequiredDuringSchedulingIgnoredDuringExecution, s.podTerm(app))
		} else {
			x.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{{Weight: 50, PodAffinityTerm: s.podTerm(app)}}
		}
	}
	if s.chance(28) {
		x := &corev1.PodAntiAffinity{}
		spec.Affinity.PodAntiAffinity = x
		if s.chance(70) {
			x.RequiredDuringSchedulingIgnoredDuringExecution = append(x.RequiredDuringSchedulingIgnoredDuringExecution, s.podTerm(app))
		} else {
			x.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{{Weight: 50, PodAffinityTerm: s.podTerm(app)}}
		}
	}
	for n := s.r.IntN(5) - 2; n > 0; n-- {
		c := s.spread(app)
		if !slices.ContainsFunc(spec.TopologySpreadConstraints, func(o corev1.TopologySpreadConstraint) bool {
			return o.TopologyKey == c.TopologyKey && o.WhenUnsatisfiable == c.WhenUnsatisfiable
		}) {
			spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, c)
		}
	}
	if s.chance(12) {
		spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: sharedHostPort, HostPort: sharedHostPort, HostIP: one(s.r, "", "", "127.0.0.1", "0.0.0.0"), Protocol: one(s.r, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP)}}
	}
	spec.PriorityClassName = one(s.r, "usual", "usual", "usual", "low", "high")
	t := template{app: app, spec: spec}
	if s.chance(20) {
		t.volume = one(s.r, 30, 100)
	}
	return t
}

func (s *scenario) nodeTerms() *corev1.NodeSelector {
	out := &corev1.NodeSelector{}
	for range 1 + s.r.IntN(3) {
		out.NodeSelectorTerms = append(out.NodeSelectorTerms, s.nodeTerm())
	}
	return out
}

func (s *scenario) nodeTerm() corev1.NodeSelectorTerm {
	var out corev1.NodeSelectorTerm
	for range 1 + s.r.IntN(2) {
		r := func(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
			return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
		}
		out.MatchExpressions = append(out.MatchExpressions, one(s.r,
			r(corev1.LabelTopologyZone, one(s.r, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), one(s.r, s.zones...)),
			r(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, s.zones...),
			r(aws.LabelInstanceCPU, corev1.NodeSelectorOpGt, one(s.r, "1", "3", "7")),
			r(aws.LabelInstanceMemory, corev1.NodeSelectorOpLt, one(s.r, "9000", "40000")),
			r(corev1.LabelArchStable, corev1.NodeSelectorOpNotIn, one(s.r, "arm64", "amd64")),
			r(karpenter.LabelCapacityType, corev1.NodeSelectorOpIn, one(s.r, cloud.Spot, cloud.OnDemand)),
			r("team", one(s.r, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), one(s.r, "x", "y", "z")),
			r("team", one(s.r, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist)),
			r(aws.LabelInstanceLocalNVME, one(s.r, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist)),
			r(aws.LabelInstanceCategory, corev1.NodeSelectorOpIn, "c", "m", "r"),
		))
	}
	if len(s.nodes) > 0 && s.chance(6) {
		out.MatchFields = []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: one(s.r, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), Values: []string{one(s.r, s.nodes...).Name}}}
	}
	return out
}

// selector selects pods of the app, of another, or by what apps share.
func (s *scenario) selector(app int) *metav1.LabelSelector {
	return one(s.r,
		&metav1.LabelSelector{MatchLabels: map[string]string{"app": strconv.Itoa(app)}},
		&metav1.LabelSelector{MatchLabels: map[string]string{"app": strconv.Itoa(app)}},
		&metav1.LabelSelector{MatchLabels: map[string]string{"app": strconv.Itoa(s.r.IntN(app + 1))}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{strconv.Itoa(app), "0"}}}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"front"}}, {Key: "app", Operator: metav1.LabelSelectorOpExists}}},
	)
}

func (s *scenario) podTerm(app int) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{
		TopologyKey:   one(s.r, corev1.LabelHostname, corev1.LabelHostname, corev1.LabelTopologyZone, karpenter.LabelCapacityType, "team"),
		LabelSelector: s.selector(app),
	}
	switch s.r.IntN(6) {
	case 0:
		t.Namespaces = []string{"blue", "red"}
	case 1:
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "test"}}
	case 2:
		t.NamespaceSelector = &metav1.LabelSelector{}
	}
	switch s.r.IntN(8) {
	case 0:
		t.MatchLabelKeys = []string{"rev"}
	case 1:
		t.MismatchLabelKeys = []string{"rev"}
	}
	return t
}

func (s *scenario) spread(app int) corev1.TopologySpreadConstraint {
	c := corev1.TopologySpreadConstraint{
		TopologyKey:       one(s.r, corev1.LabelTopologyZone, corev1.LabelTopologyZone, corev1.LabelHostname, karpenter.LabelCapacityType, "team"),
		MaxSkew:           int32(1 + s.r.IntN(2)),
		WhenUnsatisfiable: one(s.r, corev1.DoNotSchedule, corev1.DoNotSchedule, corev1.DoNotSchedule, corev1.ScheduleAnyway),
		LabelSelector:     s.selector(app),
	}
	honor, ignore := corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore
	c.NodeAffinityPolicy = one(s.r, nil, nil, &honor, &ignore)
	c.NodeTaintsPolicy = one(s.r, nil, nil, &honor, &ignore)
	if c.WhenUnsatisfiable == corev1.DoNotSchedule && s.chance(25) {
		n := int32(1 + s.r.IntN(4))
		c.MinDomains = &n
	}
	if s.chance(20) {
		c.MatchLabelKeys = []string{"rev"}
	}
	return c
}

// pending adds a pod to a batch. It is held by a gate until all is ready for it.
func (s *scenario) pending(name, ns string, t template, batch int) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns, Labels: s.labels(t.app)}, Spec: *t.spec.DeepCopy()}
	no := false
	p.Spec.AutomountServiceAccountToken = &no
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gate}}
	if s.r.IntN(100) < t.volume {
		s.volume(p, name)
	}
	if t.shared != "" {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "shared", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: t.shared}}})
	}
	s.batches[batch] = append(s.batches[batch], p)
}

// volume gives the pod a volume by a claim of that name: one that exists in a zone, or
// one that will be made where the pod goes.
func (s *scenario) volume(p *corev1.Pod, name string) {
	class := one(s.r, classWait, classWait, classZoned, classNow)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.Namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}}}
	if class != classNow {
		s.unclaimed = append(s.unclaimed, claim)
		return
	}
	pv := persistentVolume(claim, one(s.r, s.zones...))
	claim.Spec.VolumeName = pv.Name
	s.volumes, s.bound = append(s.volumes, pv), append(s.bound, claim)
}

// persistentVolume is an EBS volume in a zone, made for the claim.
func persistentVolume(claim *corev1.PersistentVolumeClaim, zone string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pv-%s", claim.Name)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: maps.Clone(claim.Spec.Resources.Requests), AccessModes: claim.Spec.AccessModes, StorageClassName: *claim.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: provisioner, VolumeHandle: "vol-" + claim.Name}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: aws.LabelEBSTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
			}}}},
		},
	}
}

// written is the pending pod of the key as its maker wrote it.
func (s *scenario) written(key string) *corev1.Pod {
	for _, p := range slices.Concat(s.batches[0], s.batches[1]) {
		if PodKey(p) == key {
			return p
		}
	}
	panic("no pod " + key)
}
