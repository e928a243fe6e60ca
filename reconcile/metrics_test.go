package reconcile_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coppice-dev/coppice/reconcile/disrupt"
	"github.com/coppice-dev/coppice/reconcile/interrupt"
	"github.com/coppice-dev/coppice/reconcile/metrics"
)

// captured keeps what is registered.
type captured struct{ all []prometheus.Collector }

func (c *captured) Register(x prometheus.Collector) error  { c.all = append(c.all, x); return nil }
func (c *captured) MustRegister(x ...prometheus.Collector) { c.all = append(c.all, x...) }
func (c *captured) Unregister(prometheus.Collector) bool   { return false }

// TestMetricsAreDocumented holds docs/metrics.md to the code. UPDATE=1 rewrites it.
func TestMetricsAreDocumented(t *testing.T) {
	var c captured
	if err := metrics.New().Register(&c); err != nil {
		t.Fatal(err)
	}
	if err := disrupt.RegisterMetrics(&c); err != nil {
		t.Fatal(err)
	}
	if err := interrupt.RegisterMetrics(&c); err != nil {
		t.Fatal(err)
	}
	c.MustRegister(metrics.NewWatcher(nil, nil, nil, nil, nil, nil))
	table, err := metrics.Table(c.all...)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(table, "\n"); n < 30 {
		t.Errorf("the table has only %d lines:\n%s", n, table)
	}
	want := `# Metrics

The controller serves these at ` + "`--metrics-bind-address`" + ` under ` + "`/metrics`" + `, and again over TLS
at ` + "`--secure-bind-address`" + ` for users whom the API server lets get ` + "`/metrics`" + `. Names that
begin with ` + "`karpenter_`" + ` are Karpenter's, with its labels, so that its dashboards work. Those of
controller-runtime, the work queues, the Go runtime and the process come on top.

Karpenter has more that its dashboards for operators rarely show, and that aren't here:
` + "`karpenter_nodepools_nodes_consuming_budgets`" + ` and ` + "`karpenter_nodepools_cost_total`" + `;
of decisions that are taken back ` + "`karpenter_voluntary_disruption_queue_failures_total`" + `,
` + "`…_failed_validations_total`" + `, ` + "`…_consolidation_timeouts_total`" + ` and ` + "`karpenter_consolidation_score`" + `;
of pods ` + "`karpenter_pods_provisioning_*`" + `, ` + "`karpenter_pods_unbound_time_seconds`" + ` and
` + "`karpenter_pods_unstarted_time_seconds`" + `; of the cloud ` + "`karpenter_cloudprovider_instance_type_*`" + ` and
` + "`karpenter_cloudprovider_batcher_*`" + `; and
` + "`karpenter_interruption_instance_status_unhealthy_total`" + `. ` + "`coppice_disruption_blocked_nodes`" + ` and
the conditions below tell of the same troubles.

This table is written by ` + "`UPDATE=1 go test ./reconcile -run TestMetricsAreDocumented`" + `.

` + table
	const path = "../docs/metrics.md"
	if os.Getenv("UPDATE") == "1" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/metrics.md isn't what the code says (-code +file); UPDATE=1 rewrites it:\n%s", diff)
	}
}
