package disrupt

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestAllowed(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	schedule := func(nodes, cron string, d time.Duration) karpenter.Budget {
		return karpenter.Budget{Nodes: nodes, Schedule: &cron, Duration: &metav1.Duration{Duration: d}}
	}
	empty, drifted := karpenter.DisruptionReasonEmpty, karpenter.DisruptionReasonDrifted
	tests := map[string]struct {
		why     string
		budgets []karpenter.Budget
		nodes   int
		now     time.Time
		want    int
		wantErr bool
	}{
		"none":               {"no budget bounds nothing", nil, 10, at("2026-01-01T00:00:00Z"), math.MaxInt, false},
		"percent rounds up":  {"a small pool must be able to move at all", []karpenter.Budget{{Nodes: "10%"}}, 11, at("2026-01-01T00:00:00Z"), 2, false},
		"percent of nothing": {"no nodes, none to take", []karpenter.Budget{{Nodes: "10%"}}, 0, at("2026-01-01T00:00:00Z"), 0, false},
		"zero":               {"a switch that turns disruption off", []karpenter.Budget{{Nodes: "0"}}, 10, at("2026-01-01T00:00:00Z"), 0, false},
		"least wins":         {"budgets only restrict", []karpenter.Budget{{Nodes: "5"}, {Nodes: "3"}}, 100, at("2026-01-01T00:00:00Z"), 3, false},
		"another reason":     {"a budget with reasons leaves others alone", []karpenter.Budget{{Nodes: "0", Reasons: []karpenter.DisruptionReason{drifted}}}, 10, at("2026-01-01T00:00:00Z"), math.MaxInt, false},
		"inside the window":  {"09:00 for 8 h", []karpenter.Budget{schedule("0", "0 9 * * *", 8*time.Hour)}, 10, at("2026-01-05T12:00:00Z"), 0, false},
		"opens at its minute": {"the first instant belongs to the window",
			[]karpenter.Budget{schedule("0", "0 9 * * *", 8*time.Hour)}, 10, at("2026-01-05T09:00:00Z"), 0, false},
		"closes at its end": {"the last instant doesn't", []karpenter.Budget{schedule("0", "0 9 * * *", 8*time.Hour)}, 10, at("2026-01-05T17:00:00Z"), math.MaxInt, false},
		"UTC whatever the clock's zone": {"17:00 in UTC-8 is 01:00 UTC",
			[]karpenter.Budget{schedule("0", "0 1 * * *", time.Hour)}, 10, at("2026-01-05T17:30:00-08:00"), 0, false},
		"macro":         {"@daily is midnight", []karpenter.Budget{schedule("1", "@daily", 10*time.Minute)}, 10, at("2026-01-05T00:05:00Z"), 1, false},
		"bad cron":      {"what can't be read allows nothing", []karpenter.Budget{schedule("5", "0 9 * * sat-sun", time.Hour)}, 10, at("2026-01-05T00:05:00Z"), 0, true},
		"bad cron hour": {"hour 25", []karpenter.Budget{schedule("5", "0 25 * * *", time.Hour)}, 10, at("2026-01-05T00:05:00Z"), 0, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Allowed(tc.budgets, empty, tc.nodes, tc.now)
			if got != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("Allowed() = %d, %v; want %d (%s)", got, err, tc.want, tc.why)
			}
		})
	}
}
