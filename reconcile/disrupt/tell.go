package disrupt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// metrics are those of disruption; names that Karpenter has are Karpenter's.
type metrics struct {
	decisions, claims          *prometheus.CounterVec
	rebooted                   *prometheus.CounterVec
	allowed, eligible, blocked *prometheus.GaugeVec
	paused                     *prometheus.GaugeVec
	evaluation                 prometheus.Histogram
	saved                      prometheus.Counter
}

// RegisterMetrics adds the metrics of disruption to what is exposed.
func RegisterMetrics(r prometheus.Registerer) error {
	_, err := newMetrics(r)
	return err
}

// newMetrics registers the metrics, or finds those that are registered.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "karpenter_voluntary_disruption_decisions_total", Help: "Commands begun, by reason and by whether machines are replaced.",
		}, []string{"decision", "reason"}),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "karpenter_nodeclaims_disrupted_total", Help: "NodeClaims taken away, by reason.",
		}, []string{"reason", "nodepool"}),
		rebooted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coppice_nodeclaims_rebooted_total", Help: "NodeClaims whose instance was rebooted to repair it.",
		}, []string{"nodepool"}),
		allowed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "karpenter_nodepools_allowed_disruptions", Help: "How many more nodes the budgets let go now.",
		}, []string{"nodepool", "reason"}),
		eligible: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "karpenter_voluntary_disruption_eligible_nodes", Help: "Nodes that go or that only a budget keeps.",
		}, []string{"reason"}),
		blocked: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "coppice_disruption_blocked_nodes", Help: "Nodes that stay, by what keeps them.",
		}, []string{"nodepool", "reason", "cause"}),
		paused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "coppice_nodepools_paused_until_timestamp_seconds", Help: "Unix time until which a NodePool is paused; absent for one that isn't.",
		}, []string{"nodepool"}),
		evaluation: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "karpenter_voluntary_disruption_decision_evaluation_duration_seconds", Help: "How long a decision takes.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		saved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coppice_consolidation_saved_usd_per_hour_total", Help: "What consolidation commands were to save, summed.",
		}),
	}
	for _, c := range []struct {
		have prometheus.Collector
		use  func(prometheus.Collector)
	}{
		{m.decisions, func(c prometheus.Collector) { m.decisions = c.(*prometheus.CounterVec) }},
		{m.claims, func(c prometheus.Collector) { m.claims = c.(*prometheus.CounterVec) }},
		{m.rebooted, func(c prometheus.Collector) { m.rebooted = c.(*prometheus.CounterVec) }},
		{m.allowed, func(c prometheus.Collector) { m.allowed = c.(*prometheus.GaugeVec) }},
		{m.eligible, func(c prometheus.Collector) { m.eligible = c.(*prometheus.GaugeVec) }},
		{m.blocked, func(c prometheus.Collector) { m.blocked = c.(*prometheus.GaugeVec) }},
		{m.paused, func(c prometheus.Collector) { m.paused = c.(*prometheus.GaugeVec) }},
		{m.evaluation, func(c prometheus.Collector) { m.evaluation = c.(prometheus.Histogram) }},
		{m.saved, func(c prometheus.Collector) { m.saved = c.(prometheus.Counter) }},
	} {
		var there prometheus.AlreadyRegisteredError
		if err := r.Register(c.have); errors.As(err, &there) {
			c.use(there.ExistingCollector)
		} else if err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) disrupted(pool string, reason karpenter.DisruptionReason) {
	m.claims.WithLabelValues(strings.ToLower(string(reason)), pool).Inc()
}

// observe shows a decision.
func (m *metrics) observe(d Decision, took time.Duration) {
	m.evaluation.Observe(took.Seconds())
	for _, c := range d.Start {
		decision := "delete"
		if len(c.Replacements) > 0 {
			decision = "replace"
		}
		m.decisions.WithLabelValues(decision, strings.ToLower(string(c.Reason))).Inc()
		if c.Reason == empty || c.Reason == underutilized {
			m.saved.Add(float64(max(c.Saves, 0)) / 1e6) // returning to a dearer pool saves nothing
		}
	}
	m.allowed.Reset()
	for pool, byReason := range d.Allowed {
		for r, n := range byReason {
			m.allowed.WithLabelValues(pool, string(r)).Set(float64(n))
		}
	}
	m.blocked.Reset()
	m.eligible.Reset()
	for _, v := range d.Verdicts {
		switch v.Code {
		case codeGoing, codeStarting:
			m.eligible.WithLabelValues(strings.ToLower(string(v.Reason))).Inc()
		case "Budget", "NoBudget":
			m.eligible.WithLabelValues(strings.ToLower(string(v.Reason))).Inc()
			m.blocked.WithLabelValues(v.Pool, string(v.Reason), v.Code).Inc()
		default:
			m.blocked.WithLabelValues(v.Pool, string(v.Reason), v.Code).Inc()
		}
	}
}

// told is what was said of a machine and when.
type told struct {
	what string
	at   time.Time
}

// repeat is how soon it is said again: an event lasts an hour.
const repeat = 15 * time.Minute

// silent are what keeps a machine without anybody having to know: it is the usual case,
// or ends by itself within moments.
func silent(code string) bool {
	switch code {
	case codeGoing, codeStarting, "NotEmpty", "NotDrifted", "Healthy", "ConsolidateAfter", "Nominated", "NotInitialized",
		"NotSearched", "NoCheaper", "Replacement", "WhenEmpty", "Never", "StaticNodePool", "Standalone", "MinNodeLifetime", "Wave", codeRebooted:
		return true
	}
	return false
}

// report says what was decided: a line in the log, metrics, the decision record, and
// an event where somebody may wonder why a node stays.
func (l *loop) report(ctx context.Context, d Decision, in Input, took time.Duration) {
	log := ctrl.LoggerFrom(ctx)
	for _, c := range d.Start {
		log.Info("begin", "command", c.ID, "reason", c.Reason, "nodeClaims", c.Claims, "replacements", c.Replacements, "movedPods", c.Moves, "savedUSDPerHour", float64(c.Saves)/1e6)
	}
	if d.Searched {
		log.V(1).Info("searched", "candidatesUSDPerHour", float64(d.Before)/1e6, "afterwardsUSDPerHour", float64(d.After)/1e6, "took", took.String())
	}
	l.metrics.observe(d, took)
	claims := map[string]cluster.Node{}
	for _, n := range in.Nodes {
		if n.Claim != nil {
			claims[n.Claim.Name] = n
		}
	}
	fresh := map[string]told{}
	for _, v := range d.Verdicts {
		message := v.Message
		if !v.Until.IsZero() {
			message += ", until " + v.Until.UTC().Format(time.RFC3339)
		}
		subject := record.Subject{Kind: "NodeClaim", Name: v.Claim}
		if v.Node != "" {
			subject = record.Subject{Kind: "Node", Name: v.Node}
		}
		l.book.Put(subject, in.Now, record.Decision{Topic: string(v.Reason), Verdict: v.Code, Message: v.Message, Until: v.Until})
		if silent(v.Code) {
			continue
		}
		key := v.Claim + "/" + string(v.Reason)
		last := l.told[key]
		if what := v.Code + v.Message; last.what != what || in.Now.Sub(last.at) >= repeat {
			last = told{what, in.Now}
			n := claims[v.Claim]
			var related *corev1.Node
			if n.Node != nil {
				related = n.Node
			}
			l.blockedEvent(n.Claim, related, v, message)
		}
		fresh[key] = last
	}
	l.told = fresh
}

// blockedEvent tells what keeps a machine. The recorder folds events of one action
// about one object into the first, whose text stays, so that each cause is an action.
func (l *loop) blockedEvent(claim *karpenter.NodeClaim, node *corev1.Node, v Verdict, message string) {
	action := string(v.Reason) + v.Code
	if node == nil {
		l.events.Eventf(claim, nil, corev1.EventTypeNormal, "DisruptionBlocked", action, "%s: %s", v.Reason, kube.OneLine(message))
		return
	}
	l.events.Eventf(claim, node, corev1.EventTypeNormal, "DisruptionBlocked", action, "%s: %s", v.Reason, kube.OneLine(message))
}
