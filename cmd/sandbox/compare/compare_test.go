package compare

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func result(scenario, who string, round int, seconds, usd float64, disturbed bool) Result {
	return Result{Scenario: scenario, Controller: who, Round: round, BoundSeconds: seconds, USDPerHour: usd, LowerBound: 10, EC2Calls: 70, Disturbed: disturbed}
}

func TestPairs(t *testing.T) {
	all := func(disturbed ...bool) *report {
		r := &report{}
		for i, d := range disturbed {
			r.Results = append(r.Results, result("s", coppice, i+1, 1, 1, false), result("s", peer, i+1, 2, 2, d))
		}
		return r
	}
	tests := map[string]struct {
		why             string
		report          *report
		want, disturbed int
	}{
		"quiet":     {"all count", all(false, false, false), 3, 0},
		"one loud":  {"either's disturbance spoils the round", all(false, true, false), 2, 1},
		"all loud":  {"better told with a warning than not at all", all(true, true), 2, 2},
		"half":      {"a round that only one has finished is none", &report{Results: []Result{result("s", coppice, 1, 1, 1, false)}}, 0, 0},
		"elsewhere": {"other scenarios don't count", &report{Results: []Result{result("x", coppice, 1, 1, 1, false), result("x", peer, 1, 1, 1, false)}}, 0, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			rounds, disturbed := tc.report.pairs("s")
			if len(rounds) != tc.want || disturbed != tc.disturbed {
				t.Errorf("%s: %d rounds and %d disturbed, want %d and %d", tc.why, len(rounds), disturbed, tc.want, tc.disturbed)
			}
		})
	}
}

func TestTable(t *testing.T) {
	r := &report{Karpenter: "v1.14.1", Kubernetes: "v1.37.2", CPUs: 2}
	for round, seconds := range []float64{1, 2, 3} {
		r.Results = append(r.Results,
			result("s", coppice, round+1, seconds, 9.8, false),
			result("s", peer, round+1, 4, 10, false))
	}
	got := r.markdown([]scenario{{name: "s", about: "some pods"}, {name: "other"}})
	for _, want := range []string{
		"### s: some pods\n",
		"| time to all pods bound, s   | 2.0 (1.0–3.0) | 4.0       | 0.50 (0.25–0.75) | ≤ 0.50 | met    |\n",
		"| $/h                         | 9.800         | 10.000    | 0.98             | ≤ 0.97 | missed |\n",
		"| $/h over lower bound        | 0.980         | 1.000     | 0.98             |        |        |\n",
		"| EC2 calls                   | 70            | 70        | 1.00             | ≤ 0.70 | missed |\n",
		"| pods not bound              | 0             | 0         | –                |        |        |\n",
		"\n3 rounds.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "pods moved") || strings.Contains(got, "other") {
		t.Errorf("rows or tables that don't belong there:\n%s", got)
	}
	// Where all rounds were disturbed, no time is said to be good.
	for i := range r.Results {
		r.Results[i].Disturbed = true
	}
	got = r.markdown([]scenario{{name: "s", about: "some pods"}})
	if !strings.Contains(got, "| met, disturbed |") || !strings.Contains(got, "not to be relied on") || strings.Contains(got, "| missed, disturbed |") {
		t.Errorf("disturbed rounds are not told apart:\n%s", got)
	}
	// A price above the peer's in any round misses its bar, whatever the median.
	m := metrics()[3]
	if m.met([]float64{0.9, 0.9, 1.01}) || !m.met([]float64{0.9, 0.9, 1}) {
		t.Error("the worst round of the price does not count")
	}
}

func TestChoose(t *testing.T) {
	all := scenarios(Config{Window: time.Minute, Trough: time.Minute})
	chosen, proof, err := choose(all, nil)
	if err != nil || !proof || len(chosen) != len(all) {
		t.Errorf("no name chooses %d of %d, %t, %v", len(chosen), len(all), proof, err)
	}
	chosen, proof, err = choose(all, []string{"trough", "proof", "mixed-100"})
	if err != nil || !proof || len(chosen) != 2 || chosen[0].name != "trough" {
		t.Errorf("got %v, %t, %v", chosen, proof, err)
	}
	if _, _, err := choose(all, []string{"mixed"}); err == nil || !strings.Contains(err.Error(), "mixed-100") {
		t.Errorf("an unknown name: %v", err)
	}
	for _, s := range all {
		if _, err := s.pool.nodePool(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		for _, d := range s.pods() {
			if d.replicas < 1 {
				t.Errorf("%s: %s has no pods", s.name, d.name)
			}
		}
	}
	if _, err := nodeClass(); err != nil {
		t.Error(err)
	}
}

// TestWorkload holds the workloads to the sizes that others were measured with.
func TestWorkload(t *testing.T) {
	r := &run{pods: mixed(500)}
	if n := total(r.counts()); n != 500 {
		t.Errorf("%d pods", n)
	}
	var milli, mib int64
	for i, n := range r.remaining(0.4) {
		req := r.pods[i].template().Spec.Containers[0].Resources.Requests
		milli += int64(n) * req.Cpu().MilliValue()
		mib += int64(n) * req.Memory().Value() >> 20
	}
	if milli != 304_000 || mib != 1_111_040 {
		t.Errorf("what remains asks for %d mCPU, %d MiB, not for 304 cores and 1,085 GiB", milli, mib)
	}
	pods := constrained(40)
	if diff := cmp.Diff(pods, constrained(40), cmp.AllowUnexported(deployment{})); diff != "" {
		t.Error(diff)
	}
	for _, d := range pods {
		if d.replicas < 2 || d.replicas > 20 {
			t.Errorf("%s has %d replicas", d.name, d.replicas)
		}
		if n := d.share(0.45); n < 1 || n > d.replicas {
			t.Errorf("%d of %d replicas are left", n, d.replicas)
		}
	}
}

func TestPool(t *testing.T) {
	p, err := poolSpec{minCPU: 2, maxCPU: 32, spot: true, policy: "WhenEmpty", after: "Never", budget: "100%"}.nodePool()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, q := range p.Spec.Template.Spec.Requirements {
		got = append(got, q.Key+" "+string(q.Operator)+" "+strings.Join(q.Values, ","))
	}
	want := []string{
		"kubernetes.io/os In linux", "kubernetes.io/arch In amd64", "karpenter.k8s.aws/instance-category In c,m,r",
		"karpenter.k8s.aws/instance-generation Gt 4", "karpenter.sh/capacity-type In on-demand,spot",
		"karpenter.k8s.aws/instance-cpu Gt 1", "karpenter.k8s.aws/instance-cpu Lt 33",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if d := p.Spec.Disruption; d.ConsolidateAfter.Duration != nil || d.ConsolidationPolicy != karpenter.ConsolidationPolicyWhenEmpty || d.Budgets[0].Nodes != "100%" {
		t.Errorf("disruption %+v", d)
	}
}

func TestTally(t *testing.T) {
	n, calls, refused := tally([]ec2sim.Calls{
		{Action: "ec2:CreateFleet", Calls: 3, Errors: map[string]int{"DryRunOperation": 1}},
		{Action: "ec2:CreateTags", Calls: 2},
		{Action: "sqs:ReceiveMessage", Calls: 9},
	})
	if n != 5 || calls["sqs:ReceiveMessage"] != 9 || len(refused) != 1 || refused["ec2:CreateFleet DryRunOperation"] != 1 {
		t.Errorf("%d, %v, %v", n, calls, refused)
	}
	if got := commonest(calls, 4); got != "CreateFleet 3, CreateTags 2" {
		t.Errorf("commonest: %s", got)
	}
}

func TestCheckPeer(t *testing.T) {
	if _, err := checkPeer(os.Args[0]); err == nil || !strings.Contains(err.Error(), "make karpenter") {
		t.Errorf("this test is taken for Karpenter: %v", err)
	}
}
