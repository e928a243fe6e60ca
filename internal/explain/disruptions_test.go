package explain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/internal/snapshot"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fleet is a snapshot in the making.
type fleet struct{ *snapshot.Snapshot }

func (f fleet) pool(name string, options map[string]string, budgets ...karpenter.Budget) {
	p := karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: options}}
	p.Spec.Disruption.Budgets = budgets
	f.NodePools = append(f.NodePools, p)
}

// machine adds a claim with its Node and pods, up for an hour; "" as node is none yet.
func (f fleet) machine(pool, claim, node string, pods int, alter ...func(*karpenter.NodeClaim)) {
	up := metav1.NewTime(noon.Add(-time.Hour))
	c := karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: claim, CreationTimestamp: up, Labels: map[string]string{karpenter.LabelNodePool: pool}, Annotations: map[string]string{},
	}}
	set := func(condition string) {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: condition, LastTransitionTime: up})
	}
	set(karpenter.ConditionLaunched)
	if node != "" {
		set(karpenter.ConditionRegistered)
		set(karpenter.ConditionInitialized)
		c.Status.ProviderID = "id/" + node
		f.Nodes = append(f.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: corev1.NodeSpec{ProviderID: "id/" + node}})
	}
	for i := range pods {
		f.Pods = append(f.Pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: node + "-" + string(rune('a'+i)), Labels: map[string]string{"on": node}}, Spec: corev1.PodSpec{NodeName: node},
		})
	}
	for _, a := range alter {
		a(&c)
	}
	f.NodeClaims = append(f.NodeClaims, c)
}

func (f fleet) says(node string, reason karpenter.DisruptionReason, code, message string, until time.Duration) {
	d := record.Decision{Topic: string(reason), Verdict: code, Message: message, Since: noon.Add(-time.Minute), Last: noon, Times: 9}
	if until > 0 {
		d.Until = noon.Add(until)
	}
	f.Decisions = append(f.Decisions, record.Entry{Subject: record.Subject{Kind: "Node", Name: node}, Decisions: []record.Decision{d}})
}

// TestOngoing has one machine for each thing that can be said. UPDATE=1 rewrites the
// answers.
func TestOngoing(t *testing.T) {
	f := fleet{&snapshot.Snapshot{TakenAt: noon}}
	drift := func(c *karpenter.NodeClaim) {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: karpenter.ConditionDrifted, Status: metav1.ConditionTrue, Reason: "NodePoolDrifted"})
	}
	deleted := func(c *karpenter.NodeClaim) { c.DeletionTimestamp = &metav1.Time{Time: noon.Add(-20 * time.Second)} }
	f.pool("batch", map[string]string{sugar.AnnotationPause: `{"until":"2026-03-02T08:00:00Z","author":"ops","reason":"month end"}`})
	f.pool("general", nil, karpenter.Budget{Nodes: "1", Reasons: []karpenter.DisruptionReason{karpenter.DisruptionReasonDrifted}})
	command := coppice.Disruption{ID: "c1", Reason: karpenter.DisruptionReasonUnderutilized, Claims: []string{"general-a", "general-b"}, Replacements: []string{"general-c1-0"}, Since: noon.Add(-40 * time.Second)}
	carries := func(c *karpenter.NodeClaim) { c.Annotations[coppice.AnnotationDisruption] = command.Encode() }
	f.machine("general", "general-a", "n-a", 1, carries)
	f.machine("general", "general-b", "n-b", 1, carries)
	f.machine("general", "general-c1-0", "", 0)
	f.machine("general", "general-d", "n-d", 2, deleted)
	f.machine("general", "general-e", "n-e", 1, drift)
	f.machine("general", "general-f", "n-f", 0)
	f.machine("general", "general-g", "n-g", 1, drift)
	f.machine("general", "general-h", "n-h", 1, func(c *karpenter.NodeClaim) { c.Spec.ExpireAfter = karpenter.After(4 * time.Hour) })
	for _, x := range []string{"1", "2", "3", "4"} {
		f.machine("batch", "batch-"+x, "n-"+x, 1, drift)
	}
	for i := range f.Pods {
		if f.Pods[i].Name == "n-g-a" {
			f.Pods[i].Annotations = map[string]string{karpenter.AnnotationDoNotDisrupt: "true"}
		}
	}
	f.Budgets = []policyv1.PodDisruptionBudget{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "two"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"on": "n-d"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 2, DesiredHealthy: 2},
	}}
	f.Events = []eventsv1.Event{{Regarding: corev1.ObjectReference{Kind: "NodeClaim", Name: "general-d"}, Reason: "TerminatingOnInterruption"}}

	ask := func(file string) {
		t.Helper()
		var text strings.Builder
		if err := Ongoing(f.Snapshot).WriteText(&text); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", file)
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if text.String() != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, text.String(), want)
		}
	}
	ask("disruptions-unrecorded.txt")

	const under, empty, old = karpenter.DisruptionReasonUnderutilized, karpenter.DisruptionReasonEmpty, karpenter.DisruptionReasonDrifted
	f.says("n-e", old, "Budget", "NodePool general's budget for Drifted (1) is used up: nodes that are going or not ready count", 0)
	f.says("n-e", under, "NoCheaper", "its pods find no cheaper place", 0)
	f.says("n-f", empty, "ConsolidateAfter", "pods came or went less than 30s ago", 20*time.Second)
	f.says("n-g", old, "PodDoNotDisrupt", "pod web/n-g-a has the annotation karpenter.sh/do-not-disrupt", 0)
	f.says("n-g", under, "PodDoNotDisrupt", "pod web/n-g-a has the annotation karpenter.sh/do-not-disrupt", 0)
	f.says("n-h", empty, "NotEmpty", "pods run on it that would have to move", 0)
	for _, x := range []string{"1", "2", "3", "4"} {
		for _, r := range []karpenter.DisruptionReason{old, under, empty} {
			f.says("n-"+x, r, "Paused", "NodePool batch is paused by ops: month end", 20*time.Hour)
		}
	}
	f.says("n-gone", old, "Budget", "of a node that isn't there any more", 0)
	ask("disruptions.txt")

	got := Ongoing(f.Snapshot)
	if len(got.UnderWay) != 2 || len(got.UnderWay[0].Nodes) != 2 || got.UnderWay[1].Reason != "Interrupted" {
		t.Errorf("under way: %+v", got.UnderWay)
	}
	f.Decisions = append(f.Decisions, record.Entry{
		Subject: record.Subject{Kind: "Node", Name: "n-g"}, Decisions: []record.Decision{{Topic: string(old), Verdict: "NoPlace", Last: noon.Add(2 * time.Minute)}},
	})
	if got := Ongoing(f.Snapshot); len(got.Blocked) != 1 || got.Blocked[0].Code != "NoPlace" {
		t.Errorf("what nobody stands by any more is told: %+v", got.Blocked)
	}
}
