package sugar

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// check finds what is wrong with the options. expiry is the pool's own expireAfter,
// 0 for never or unknown.
func (o Options) check(expiry time.Duration) []Fault {
	var faults []Fault
	report := func(message string, path ...any) {
		faults = append(faults, Fault{Path: append([]any{Field}, path...), Message: message})
	}
	for i, b := range o.Budgets {
		b.check(func(message, field string) { report(message, "budgets", i, field) })
	}
	soft, err := time.ParseDuration(o.SoftExpireAfter)
	switch {
	case o.SoftExpireAfter == "":
	case err != nil || soft <= 0:
		report("write a duration such as 240h", "softExpireAfter")
	case expiry > 0 && soft >= expiry:
		report(fmt.Sprintf("must be shorter than expireAfter, which is %s: nodes go then without regard to budgets", expiry), "softExpireAfter")
	}
	if p := o.Pause; p != nil {
		if _, err := time.Parse(time.RFC3339, p.Until); err != nil {
			report("write a time such as 2026-12-24T18:00:00Z", "pause", "until")
		}
		if p.Author == "" {
			report("say who wants the pause", "pause", "author")
		}
		if p.Reason == "" {
			report("say why there is a pause", "pause", "reason")
		}
	}
	if o.MinSavings != "" && !savings().MatchString(o.MinSavings) {
		report("write a percentage such as 5%, or dollars per hour such as 0.05", "minSavings")
	}
	if d, err := time.ParseDuration(o.MinNodeLifetime); o.MinNodeLifetime != "" && (err != nil || d <= 0) {
		report("write a duration such as 1h", "minNodeLifetime")
	}
	if o.DriftApproval != "" && !approval().MatchString(o.DriftApproval) {
		report("write 'required', or the revision that the condition NodeClaimsDrifted names, such as 3f29ab04c1", "driftApproval")
	}
	if p := o.InPlace; p != nil {
		for _, f := range []struct {
			name string
			keys []string
		}{{"labels", p.Labels}, {"annotations", p.Annotations}, {"taints", p.Taints}, {"tags", p.Tags}} {
			for i, k := range f.keys {
				if k == "" || strings.Contains(strings.TrimSuffix(k, "*"), "*") {
					report("write a key, or the beginning of keys with a * at its end", "inPlace", f.name, i)
				} else if message := unchangeable(f.name, k); message != "" {
					report(message, "inPlace", f.name, i)
				}
			}
		}
	}
	switch o.PreferencePolicy {
	case "", "Priced", "Respect", "Ignore":
	default:
		report("write Priced, Respect or Ignore", "preferencePolicy")
	}
	if r := o.Repair; r != nil {
		for _, condition := range slices.Sorted(maps.Keys(r.Tolerate)) {
			if !slices.Contains(RepairConditions(), condition) {
				report("there is no repair for this condition; write one of "+strings.Join(RepairConditions(), ", "), "repair", "tolerate", condition)
			} else if d, err := time.ParseDuration(r.Tolerate[condition]); err != nil || d <= 0 {
				report("write a duration such as 10m", "repair", "tolerate", condition)
			}
		}
	}
	if c := o.ConsolidateAfter; c != nil {
		for _, f := range []struct{ name, text string }{{"empty", c.Empty}, {"underutilized", c.Underutilized}} {
			if f.text == "" {
				continue
			}
			if d, err := karpenter.ParseNillableDuration(f.text); err != nil || d.Duration != nil && *d.Duration < 0 {
				report("write a duration such as 30s, or Never", "consolidateAfter", f.name)
			}
		}
	}
	return faults
}

// unchangeable says why nothing can be changed in place by the name of a key, "" if it
// can. A key that ends in * isn't judged by what else it stands for.
func unchangeable(field, key string) string {
	name, all := strings.CutSuffix(key, "*")
	switch {
	case field == "tags":
		if strings.HasPrefix(key, "aws:") || len(name) > 128 { // The limit of EC2.
			return fmt.Sprintf("no tag of one's own has the key %s", key)
		}
	case all:
	case field == "labels" && Fixed(key):
		return fmt.Sprintf("%s says what a node is, which can't change while it runs", key)
	case len(validation.IsQualifiedName(strings.ToLower(key))) > 0:
		return fmt.Sprintf("%q can't be a key: write one such as team or example.com/team", key)
	}
	return ""
}

// Fixed reports whether a label says what a node is. Whatever the options name, it isn't
// changed while the node runs.
func Fixed(label string) bool {
	label = karpenter.NormalizedLabel(label)
	switch domain, _, _ := strings.Cut(label, "/"); domain {
	case karpenter.Group, "topology.kubernetes.io", "karpenter.k8s.aws", "topology.k8s.aws":
		return true
	}
	switch label {
	case corev1.LabelInstanceTypeStable, corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelHostname, karpenter.LabelWindowsBuild:
		return true
	}
	return false
}

func (b Budget) check(report func(message, field string)) {
	if !nodes().MatchString(b.Nodes) {
		report("write a count such as 5, or a percentage such as 10%", "nodes")
	}
	for _, r := range b.Reasons {
		switch r {
		case karpenter.DisruptionReasonDrifted, karpenter.DisruptionReasonEmpty,
			karpenter.DisruptionReasonUnderutilized, karpenter.DisruptionReasonUnhealthy:
		default:
			report(fmt.Sprintf("%q is no reason", r), "reasons")
		}
	}
	if b.Schedule != "" {
		if _, err := cron.ParseStandard(b.Schedule); err != nil {
			report("write five cron fields or a macro such as @daily", "schedule")
		}
	}
	if d, err := time.ParseDuration(b.Duration); b.Duration != "" && (err != nil || d <= 0) {
		report("write a duration such as 8h", "duration")
	}
	if (b.Schedule == "") != (b.Duration == "") {
		report("a budget has both 'schedule' and 'duration', or neither", "schedule")
	}
	// LoadLocation also knows "" and Local, which depend on the machine.
	if b.TimeZone != "" {
		if _, err := time.LoadLocation(b.TimeZone); err != nil || b.TimeZone == "Local" {
			report(fmt.Sprintf("%q is no time zone: write one such as Europe/Berlin", b.TimeZone), "timeZone")
		}
	}
	for _, f := range []struct{ name, text string }{{"from", b.From}, {"until", b.Until}} {
		if _, err := time.Parse(time.DateOnly, f.text); f.text != "" && err != nil {
			report("write a date such as 2026-12-24", f.name)
		}
	}
	if b.From != "" && b.Until != "" && b.From > b.Until {
		report("must not be before 'from'", "until")
	}
}

func approval() *regexp.Regexp { return regexp.MustCompile(`^(required|[0-9a-f]{10})$`) }
func nodes() *regexp.Regexp    { return regexp.MustCompile(`^((100|[0-9]{1,2})%|[0-9]+)$`) }
func savings() *regexp.Regexp {
	return regexp.MustCompile(`^((100|[0-9]{1,2})(\.[0-9]+)?%|[0-9]+(\.[0-9]+)?)$`)
}
