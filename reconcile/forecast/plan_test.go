package forecast

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/internal/snapshot"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// taken is when the picture of every test was taken: a Monday at noon.
var taken = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

var judge = sync.OnceValue(func() *admission.Judge {
	j, err := admission.New(schemas.CRDs())
	if err != nil {
		panic(err)
	}
	return j
})

const declared = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@v20250101}]
  role: KarpenterNodeRole
  subnetSelectorTerms: [{tags: {discovery: x}}]
  securityGroupSelectorTerms: [{tags: {discovery: x}}]
  userData: "#!/bin/sh"
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  limits: {cpu: 100}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1h, budgets: [{nodes: "2"}]}
  template:
    metadata: {annotations: {team: web}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m5.xlarge]}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: other}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1h}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      taints: [{key: other, effect: NoSchedule}]
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [spot]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
`

func bundle(t testing.TB, text string) render.Bundle {
	t.Helper()
	b, findings := render.Manifest("nodes.yaml", []byte(text))
	if findings.HasErrors() {
		t.Fatal(findings)
	}
	return b
}

// picture is a cluster to which the declared objects are applied, by a NodeSource, with
// nodes of one or two pods in each pool.
func picture(t testing.TB, general, other int) *snapshot.Snapshot {
	t.Helper()
	b := bundle(t, declared)
	s := &snapshot.Snapshot{APIVersion: snapshot.APIVersion, Kind: snapshot.Kind, TakenAt: taken}
	source := coppice.NodeSource{ObjectMeta: metav1.ObjectMeta{Namespace: "coppice-system", Name: "fleet"}}
	source.Status.LastAppliedRevision = "main@sha1:0123456789012345678901234567890123456789"
	source.Status.Inventory = &coppice.Inventory{}
	for i, o := range b.Objects {
		live := judge().Stored(o.Value)
		meta := live["metadata"].(map[string]any)
		meta["resourceVersion"] = fmt.Sprint(i + 1)
		read := func(into any) {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live, into); err != nil {
				t.Fatal(err)
			}
		}
		source.Status.Inventory.Entries = append(source.Status.Inventory.Entries, coppice.InventoryEntry{
			ID: "_" + o.Name + "_" + o.GVK.Group + "_" + o.GVK.Kind, Version: o.GVK.Version, Digest: "then",
		})
		ready := []metav1.Condition{{Type: karpenter.ConditionReady, Status: metav1.ConditionTrue}}
		switch o.GVK.Kind {
		case "NodePool":
			var p karpenter.NodePool
			read(&p)
			p.Status.Conditions = ready
			s.NodePools = append(s.NodePools, p)
		case "EC2NodeClass":
			var c aws.EC2NodeClass
			read(&c)
			c.Status = aws.EC2NodeClassStatus{
				Conditions: ready, AMIs: []aws.AMI{{ID: "ami-1"}},
				Subnets: []aws.Subnet{{ID: "subnet-1", Zone: "us-west-2a", ZoneID: "usw2-az1"}},
			}
			s.NodeClasses = append(s.NodeClasses, c)
			live["spec"].(map[string]any)["userData"] = snapshot.Veiled("#!/bin/sh")
		}
		s.Declared = append(s.Declared, unstructured.Unstructured{Object: live})
	}
	s.NodeSources = []coppice.NodeSource{source}
	for i := range general {
		machine(s, "general", fmt.Sprintf("g%02d", i), "m5.xlarge", "on-demand", 4)
		run(s, fmt.Sprintf("g%02d", i), fmt.Sprintf("web-%02d", i), 2)
	}
	for i := range other {
		machine(s, "other", fmt.Sprintf("o%02d", i), "m5.large", "spot", 2)
		run(s, fmt.Sprintf("o%02d", i), fmt.Sprintf("batch-%02d", i), 1, func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "other", Operator: corev1.TolerationOpExists}}
			p.Spec.NodeSelector = map[string]string{karpenter.LabelNodePool: "other"}
		})
	}
	return s
}

func machine(s *snapshot.Snapshot, pool, name, kind, capacity string, cpu int64) {
	var p *karpenter.NodePool
	for i := range s.NodePools {
		if s.NodePools[i].Name == pool {
			p = &s.NodePools[i]
		}
	}
	up := metav1.NewTime(taken.Add(-time.Hour))
	size := corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(cpu<<31, resource.BinarySI),
		corev1.ResourcePods: *resource.NewQuantity(29, resource.DecimalSI),
	}
	labels := map[string]string{
		karpenter.LabelNodePool: pool, corev1.LabelInstanceTypeStable: kind, corev1.LabelTopologyZone: "us-west-2a", corev1.LabelTopologyRegion: "us-west-2",
		karpenter.LabelCapacityType: capacity, karpenter.LabelInitialized: "true", karpenter.LabelRegistered: "true", corev1.LabelHostname: name, corev1.LabelArchStable: "amd64",
	}
	s.NodeClaims = append(s.NodeClaims, karpenter.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "claim-" + name, UID: types.UID(name), Labels: labels, CreationTimestamp: metav1.NewTime(up.Add(-40 * time.Second)),
			Annotations: map[string]string{
				karpenter.AnnotationNodePoolHash: p.Hash(), karpenter.AnnotationNodePoolHashVersion: karpenter.NodePoolHashVersion,
				aws.AnnotationEC2NodeClassHash: s.NodeClasses[0].Hash(), aws.AnnotationEC2NodeClassHashVersion: aws.EC2NodeClassHashVersion,
			},
		},
		Spec: karpenter.NodeClaimSpec{NodeClassRef: p.Spec.Template.Spec.NodeClassRef, Taints: p.Spec.Template.Spec.Taints},
		Status: karpenter.NodeClaimStatus{ProviderID: "id/" + name, ImageID: "ami-1", Capacity: size, Conditions: []metav1.Condition{
			{Type: karpenter.ConditionInitialized, Status: metav1.ConditionTrue, LastTransitionTime: up},
		}},
	})
	s.Nodes = append(s.Nodes, corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{ProviderID: "id/" + name, Taints: p.Spec.Template.Spec.Taints},
		Status: corev1.NodeStatus{Capacity: size, Allocatable: size, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
}

func run(s *snapshot.Snapshot, node, name string, cpu int64, alter ...func(*corev1.Pod)) {
	yes := true
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "d", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "x"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Controller: &yes}},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI)}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, f := range alter {
		f(&p)
	}
	s.Pods = append(s.Pods, p)
}

// elsewhere lets somebody else have set a pool's limit.
func elsewhere(s *snapshot.Snapshot, pool, manager, cpu string) {
	for _, u := range s.Declared {
		if u.GetKind() != "NodePool" || u.GetName() != pool {
			continue
		}
		u.Object["spec"].(map[string]any)["limits"] = map[string]any{"cpu": cpu}
		u.Object["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{
			"manager": manager, "operation": "Update", "time": "2026-11-30T11:00:00Z",
			"fieldsV1": map[string]any{"f:spec": map[string]any{"f:limits": map[string]any{"f:cpu": map[string]any{}}}},
		}}
	}
}

// TestPlan: each case is a change of what is declared, and its plan as people read it.
func TestPlan(t *testing.T) {
	replace := func(pairs ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			out := declared
			for i := 0; i < len(pairs); i += 2 {
				if !strings.Contains(out, pairs[i]) {
					t.Fatalf("%q isn't declared", pairs[i])
				}
				out = strings.Replace(out, pairs[i], pairs[i+1], 1)
			}
			return out
		}
	}
	for name, tc := range map[string]struct {
		why   string
		head  func(*testing.T) string
		alter func(*snapshot.Snapshot)
	}{
		"nothing":    {"what is applied changes nothing", replace(), nil},
		"types":      {"nodes of a type that is no longer allowed go, two at a time", replace("[m5.large, m5.xlarge]", "[m6i.large, m6i.xlarge]"), nil},
		"annotation": {"the hash of the template stands for all of it", replace("{team: web}", "{team: shop}"), nil},
		"budget":     {"budgets, limits and weight drift nothing", replace(`[{nodes: "2"}]`, `[{nodes: "1"}]`, "cpu: 100", "cpu: 10"), nil},
		"user data":  {"user data is in the class's hash, and stays hidden", replace("#!/bin/sh", "#!/bin/zs"), nil},
		"image":      {"another alias is taken to mean another image", replace("v20250101", "v20250601"), nil},
		"image id":   {"an image by id is judged exactly", replace("{alias: al2023@v20250101}", "{id: ami-1}", "  role:", "  amiFamily: AL2023\n  role:"), nil},
		"window": {
			"what a window keeps goes at its end",
			replace("[m5.large, m5.xlarge]", "[m6i.large, m6i.xlarge]", `[{nodes: "2"}]`, `[{nodes: "2"}, {nodes: "0", schedule: "0 9 * * 1-5", duration: 8h}]`), nil,
		},
		"held": {
			"pods that forbid it, and budgets of pods, keep their nodes",
			replace("[m5.large, m5.xlarge]", "[m6i.large, m6i.xlarge]"),
			func(s *snapshot.Snapshot) {
				s.Pods[0].Annotations = map[string]string{karpenter.AnnotationDoNotDisrupt: "true"}
				s.Pods[1].Labels = map[string]string{"app": "db"}
				s.Budgets = []policyv1.PodDisruptionBudget{{
					ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "db"},
					Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
				}}
			},
		},
		"too small": {"pods that no type holds keep their nodes, and it is said which", replace("[m5.large, m5.xlarge]", "[m6i.large]"), nil},
		"limit":     {"a limit below what is used stops replacements", replace("[m5.large, m5.xlarge]", "[m6i.large, m6i.xlarge]", "cpu: 100", "cpu: 8"), nil},
		"deleted":   {"a pool's nodes go with it at once, and pods that want it have no place", func(t *testing.T) string { return declared[:strings.LastIndex(declared, "---")] }, nil},
		"new pool": {
			"a pool whose class isn't resolved is no place to foretell",
			func(*testing.T) string {
				fresh := strings.NewReplacer("name: other", "name: third", "name: default", "name: fresh")
				return declared + "---" + fresh.Replace(declared[:strings.Index(declared, "---")]+declared[strings.LastIndex(declared, "---"):])
			}, nil,
		},
		"prices": {
			"the controller's own prices count, of spot by zone, and its flags are known",
			replace("[m5.large, m5.xlarge]", "[m6i.large, m6i.xlarge]"),
			func(s *snapshot.Snapshot) {
				s.Controller = &snapshot.Controller{Settings: snapshot.DefaultSettings(), Market: cloud.Market{
					Region: "us-west-2", At: taken.Add(-time.Hour), OnDemand: map[string]int64{"m5.xlarge": 200_000, "m6i.large": 90_000, "m6i.xlarge": 180_000},
					Spot: map[string]map[string]int64{"m5.large": {"us-west-2a": 30_000, "us-west-2b": 20_000}},
				}}
			},
		},
		"cluster limits": {
			"nothing is launched for pods above what the controller lets all pools have",
			replace("metadata: {name: general}", "metadata: {name: spare}"),
			func(s *snapshot.Snapshot) {
				s.Controller = &snapshot.Controller{Settings: snapshot.DefaultSettings()}
				s.Controller.Settings.ClusterLimits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("12")}
			},
		},
		"min values": {"a pool that can't have as many types as it wants launches none", replace("values: [m5.large, m5.xlarge]", "values: [m6i.large, m6i.xlarge], minValues: 2"), nil},
		"min values as far as possible": {
			"unless the controller runs with that flag",
			replace("values: [m5.large, m5.xlarge]", "values: [m6i.large, m6i.xlarge], minValues: 2"),
			func(s *snapshot.Snapshot) {
				s.Controller = &snapshot.Controller{Settings: snapshot.DefaultSettings()}
				s.Controller.Settings.MinValuesPolicy = "BestEffort"
			},
		},
		"yield": {
			"a field that a rule leaves to others isn't planned as a change, nor told as drift",
			replace("cpu: 100", "cpu: 200"),
			func(s *snapshot.Snapshot) {
				elsewhere(s, "general", "capacity-bot", "50")
				s.NodeSources[0].Spec.Conflicts = []coppice.ConflictRule{{Paths: []string{"/spec/limits"}, Managers: []string{"capacity-*"}, Policy: coppice.ConflictYield}}
			},
		},
		"yield to others": {
			"a rule about somebody else leaves nothing to this one",
			replace("cpu: 100", "cpu: 200"),
			func(s *snapshot.Snapshot) {
				elsewhere(s, "general", "kubectl-edit", "50")
				s.NodeSources[0].Spec.Conflicts = []coppice.ConflictRule{{Paths: []string{"/spec/limits"}, Managers: []string{"capacity-*"}, Policy: coppice.ConflictYield}}
			},
		},
		"yield is over": {
			"a rule that has expired holds no more",
			replace("cpu: 100", "cpu: 200"),
			func(s *snapshot.Snapshot) {
				elsewhere(s, "general", "capacity-bot", "50")
				s.NodeSources[0].Spec.Conflicts = []coppice.ConflictRule{{Paths: []string{"/spec/limits"}, Policy: coppice.ConflictYield, Expires: &metav1.Time{Time: taken}}}
			},
		},
		"fail": {
			"a commit that would set what a rule protects is refused as a whole",
			replace("cpu: 100", "cpu: 200", "{team: web}", "{team: shop}"),
			func(s *snapshot.Snapshot) {
				elsewhere(s, "general", "capacity-bot", "50")
				s.NodeSources[0].Spec.Conflicts = []coppice.ConflictRule{{Paths: []string{"/spec/limits"}, Policy: coppice.ConflictFail}}
			},
		},
		"corrected": {
			"an object that says so itself gets Git's values back, whatever its source does",
			replace("metadata: {name: general}", "metadata: {name: general, annotations: {coppice.dev/drift: correct}}"),
			func(s *snapshot.Snapshot) {
				elsewhere(s, "general", "kubectl-edit", "50")
				elsewhere(s, "other", "kubectl-edit", "50")
				head := bundle(t, strings.Replace(declared, "metadata: {name: general}", "metadata: {name: general, annotations: {coppice.dev/drift: correct}}", 1))
				s.NodeSources[0].Status.Inventory = &coppice.Inventory{}
				for _, o := range head.Objects {
					s.NodeSources[0].Status.Inventory.Entries = append(s.NodeSources[0].Status.Inventory.Entries, kube.Entry(kube.Object(o.GVK, o.Value)))
				}
			},
		},
		"already": {
			"what was out of date before is told apart",
			replace("{team: web}", "{team: shop}"),
			func(s *snapshot.Snapshot) {
				c := &s.NodeClaims[0]
				c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: karpenter.ConditionDrifted, Status: metav1.ConditionTrue, Reason: "AMIDrift", LastTransitionTime: metav1.NewTime(taken)})
				d := &s.NodeClaims[4]
				d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{Type: karpenter.ConditionDrifted, Status: metav1.ConditionTrue, Reason: "AMIDrift", LastTransitionTime: metav1.NewTime(taken)})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := picture(t, 4, 2)
			if tc.alter != nil {
				tc.alter(s)
			}
			base := bundle(t, declared)
			in := Input{Picture: s, Head: bundle(t, tc.head(t)), Base: &base, BaseCommit: s.NodeSources[0].Status.LastAppliedRevision, Source: &s.NodeSources[0], Judge: judge()}
			p, err := Plan(in)
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			fmt.Fprintf(&text, "# %s.\n\n", tc.why)
			if err := p.WriteText(&text, plan.TextOptions{}); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "_")+".txt")
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), text.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

// TestBareClaim: a claim may have lost its annotations, as one that was restored has.
func TestBareClaim(t *testing.T) {
	s := picture(t, 2, 1)
	s.NodeClaims[0].Annotations = nil
	in := Input{Picture: s, Head: bundle(t, strings.Replace(declared, "{team: web}", "{team: shop}", 1)), Judge: judge()}
	if p, err := Plan(in); err != nil || p.Fleet.Nodes != 3 {
		t.Errorf("%v, %+v", err, p)
	}
}

// TestPlanLeavesThePictureAlone: the picture is as it was, and a second plan is the same.
func TestPlanLeavesThePictureAlone(t *testing.T) {
	s := picture(t, 3, 1)
	head := bundle(t, strings.Replace(declared, "[m5.large, m5.xlarge]", "[m6i.xlarge]", 1))
	var before, after bytes.Buffer
	if err := s.Write(&before); err != nil {
		t.Fatal(err)
	}
	text := func() string {
		p, err := Plan(Input{Picture: s, Head: head, Source: &s.NodeSources[0], Judge: judge()})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := p.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if a, b := text(), text(); a != b {
		t.Errorf("two plans differ:\n%s", cmp.Diff(a, b))
	}
	if err := s.Write(&after); err != nil || before.String() != after.String() {
		t.Errorf("the picture was changed (%v):\n%s", err, cmp.Diff(before.String(), after.String()))
	}
}

func TestSourceFor(t *testing.T) {
	source := func(name, cluster string) coppice.NodeSource {
		s := coppice.NodeSource{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
		s.Spec.Cluster = cluster
		return s
	}
	for name, tc := range map[string]struct {
		why           string
		all           []coppice.NodeSource
		cluster, name string
		want          string
	}{
		"none":    {"no source, no deletions", nil, "one", "", "none"},
		"only":    {"the only one is meant", []coppice.NodeSource{source("a", "")}, "one", "", "a"},
		"cluster": {"the cluster says which", []coppice.NodeSource{source("a", "one"), source("b", "two")}, "two", "", "b"},
		"other":   {"another cluster's isn't this one's", []coppice.NodeSource{source("a", "one")}, "two", "", "none"},
		"several": {"several must be told apart by name", []coppice.NodeSource{source("a", "one"), source("b", "one")}, "one", "", "error"},
		"named":   {"by name", []coppice.NodeSource{source("a", "one"), source("b", "one")}, "one", "n/b", "b"},
		"unknown": {"a name that isn't there", []coppice.NodeSource{source("a", "one")}, "one", "n/x", "error"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := SourceFor(tc.all, tc.cluster, tc.name)
			got := "none"
			if err != nil {
				got = "error"
			} else if s != nil {
				got = s.Name
			}
			if got != tc.want {
				t.Errorf("%s: got %s (%v), want %s", tc.why, got, err, tc.want)
			}
		})
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			s := picture(b, n, 0)
			head := bundle(b, strings.NewReplacer("[m5.large, m5.xlarge]", "[m6i.xlarge]", `nodes: "2"`, `nodes: "10%"`, "cpu: 100", "cpu: 100000").Replace(declared))
			for b.Loop() {
				p, err := Plan(Input{Picture: s, Head: head, Source: &s.NodeSources[0], Judge: judge()})
				if err != nil || p.Fleet.Replace != n {
					b.Fatal(p.Fleet.Replace, err)
				}
			}
		})
	}
}
