package source

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/coppice"
)

// The conditions of a source. Ready, Reconciling and Stalled are those of
// kstatus; the others are there only while they are true or unknown.
const (
	conditionReady        = "Ready"
	conditionReconciling  = "Reconciling"
	conditionStalled      = "Stalled"
	conditionReportFailed = "ReportFailed"
	conditionAdoptFailed  = "AdoptionFailed"
)

// patience is how many passes in a row may fail for now before anybody is told:
// a server that restarts is back before the third.
const patience = 3

// The pause after a failure doubles from firstRetry to lastRetry.
const (
	firstRetry = 2 * time.Second
	lastRetry  = 2 * time.Minute
)

// soonest is the least pause between two passes.
const soonest = 100 * time.Millisecond

// messageBytes bounds a condition's message. Findings are many and long; the
// events hold all of them.
const messageBytes = 1500

// decision is what settle makes of a pass.
type decision struct {
	status coppice.NodeSourceStatus
	// failures counts what failed for now, this pass included.
	failures failures
	// requeue is when the next pass is due, zero for never.
	requeue time.Duration
}

// failures counts for each part of a pass how often it failed for now, one time after
// another: a part that goes wrong says nothing about the others.
type failures struct{ change, drift, report, adopt int }

func (f failures) worst() int { return max(f.change, f.drift, f.report, f.adopt) }

// again is a part's count after another try.
func again(n int, err error) int {
	if err != nil && classified(err, "").class == retry {
		return n + 1
	}
	return 0
}

// settle turns the outcome of a pass into conditions, history and the time of
// the next pass. src carries the status as the steps left it, poll is how long
// the repository may rest, before how often each part failed before this pass.
//
//	change            Ready    Reconciling             Stalled
//	done              True     -                       -
//	nothing to do     as it was
//	terminal failure  False    -                       True
//	waiting           False    True, the reason        -
//	failed for now    as it was, from the third time on False and Reconciling True
//
// It is a function of its arguments, and nothing in the status that it returns
// changes while nothing happens.
func settle(src *coppice.NodeSource, res result, before failures, poll time.Duration, now time.Time) decision {
	out := decision{status: *src.Status.DeepCopy(), requeue: max(poll, soonest)}
	status := &out.status
	status.ObservedGeneration = src.Generation
	c := conditions{list: status.Conditions, generation: src.Generation, now: now}
	if src.Spec.Suspend {
		c.drop(conditionReconciling)
		status.Conditions = c.sorted()
		out.requeue = 0
		return out
	}
	status.LastHandledReconcileAt = request(src)

	for _, err := range []error{res.change, res.drift, res.report, res.adopt} {
		switch f := classified(err, ""); {
		case err == nil:
		case f.class == wait:
			out.requeue = min(out.requeue, f.after)
		}
	}
	out.failures = failures{change: again(before.change, res.change), drift: again(before.drift, res.drift), report: before.report, adopt: before.adopt}
	if res.drift == nil {
		// They aren't tried otherwise.
		out.failures.report, out.failures.adopt = again(before.report, res.report), again(before.adopt, res.adopt)
	}
	for _, n := range []int{out.failures.change, out.failures.drift, out.failures.report, out.failures.adopt} {
		if n > 0 {
			out.requeue = min(out.requeue, backoff(n))
		}
	}
	if !res.wake.IsZero() {
		out.requeue = min(out.requeue, max(res.wake.Sub(now), soonest))
	}

	c.change(status, res, out.failures.change)
	c.drift(status, res.drift, out.failures.drift)
	back := src.Spec.WriteBack
	c.optional(conditionReportFailed, reasonReportFailed, back != nil, res.drift, res.report, out.failures.report)
	c.optional(conditionAdoptFailed, reasonAdoptFailed, back != nil && back.Adopt != nil, res.drift, res.adopt, out.failures.adopt)
	status.Conditions = c.sorted()
	return out
}

func backoff(failures int) time.Duration {
	d := firstRetry
	for i := 1; i < failures && d < lastRetry; i++ {
		d *= 2
	}
	return min(d, lastRetry)
}

// conditions is a list under change.
type conditions struct {
	list       []metav1.Condition
	generation int64
	now        time.Time
}

func (c *conditions) change(status *coppice.NodeSourceStatus, res result, failures int) {
	if res.skipped {
		return
	}
	if res.change == nil {
		c.set(conditionReady, metav1.ConditionTrue, reasonApplied, "Applied "+status.LastAppliedRevision)
		c.drop(conditionReconciling)
		c.drop(conditionStalled)
		c.remember(status, status.LastAppliedRevision, coppice.OutcomeApplied, res.summary)
		return
	}
	f := classified(res.change, reasonApply)
	if f.reason == reasonRollout {
		c.remember(status, status.LastAppliedRevision, coppice.OutcomeApplied, res.summary)
	}
	text := clip(f.Error(), messageBytes)
	outcome := coppice.OutcomeFailed
	switch f.class {
	case terminal:
		c.set(conditionReady, metav1.ConditionFalse, f.reason, text)
		c.set(conditionStalled, metav1.ConditionTrue, f.reason, text)
		c.drop(conditionReconciling)
		if f.reason == reasonInvalid {
			outcome = coppice.OutcomeRefused
		}
	case wait:
		c.set(conditionReady, metav1.ConditionFalse, f.reason, text)
		c.set(conditionReconciling, metav1.ConditionTrue, f.reason, text)
		c.drop(conditionStalled)
	default:
		if failures < patience {
			// What was said of an earlier spec isn't true of this one.
			if before := meta.FindStatusCondition(c.list, conditionReady); before == nil || before.ObservedGeneration != c.generation {
				c.set(conditionReady, metav1.ConditionUnknown, reasonProgressing, text)
				c.set(conditionReconciling, metav1.ConditionTrue, reasonRetrying, text)
				c.drop(conditionStalled)
			}
			return
		}
		c.set(conditionReady, metav1.ConditionFalse, f.reason, text)
		c.set(conditionReconciling, metav1.ConditionTrue, reasonRetrying, text)
		c.drop(conditionStalled)
	}
	// What couldn't be fetched is no outcome of a revision.
	if about(f.reason) {
		c.remember(status, status.LastAttemptedRevision, outcome, clip(f.Error(), valueBytes))
	}
}

// about reports whether a failure speaks of the commit that was attempted, and
// not of the way to it.
func about(reason string) bool {
	switch reason {
	case reasonFetch, reasonAuth, reasonSecret, reasonRepository, reasonEvaluation, reasonArtifact, reasonDependency, reasonIdentity, reasonRollout:
		return false
	}
	return true
}

func (c *conditions) drift(status *coppice.NodeSourceStatus, err error, failures int) {
	f := classified(err, reasonDriftCheck)
	switch {
	case err != nil && (f.class != retry || failures >= patience):
		c.set(coppice.ConditionDrifted, metav1.ConditionUnknown, reasonDriftCheck, clip(f.Error(), messageBytes))
	case err != nil:
	case status.Drift != nil:
		c.set(coppice.ConditionDrifted, metav1.ConditionTrue, reasonDrift, describe(status.Drift))
	default:
		c.drop(coppice.ConditionDrifted)
	}
}

// describe says in a line what a summary holds.
func describe(d *coppice.DriftSummary) string {
	var parts []string
	for _, item := range d.Items {
		part := item.Object + " " + item.Field
		switch {
		case item.Field == "":
			part = item.Object + " is missing"
		case item.Live == "":
			part += " (removed)"
		case item.Manager != "":
			part += " (by " + item.Manager + ")"
		}
		parts = append(parts, part)
	}
	head := plural(int(d.Fields), "field", "fields") + " of " + plural(int(d.Objects), "object", "objects") + " not as in Git: "
	return enumerate(head, parts, ", ", valueBytes)
}

// enumerate joins as many parts as a text of limit bytes holds, and counts the
// rest. The first part is always there, clipped if need be.
func enumerate(head string, parts []string, sep string, limit int) string {
	text := head
	for i, part := range parts {
		if i > 0 {
			part = sep + part
		}
		rest := ""
		if left := len(parts) - i; left > 1 {
			rest = fmt.Sprintf(" and %d more", left)
		}
		if len(text)+len(part)+len(rest) <= limit {
			text += part
			continue
		}
		if i > 0 {
			return text + fmt.Sprintf(" and %d more", len(parts)-i)
		}
		text += clip(part, max(limit-len(text)-len(rest), 1))
	}
	return text
}

// optional keeps the condition of a part that is there only if it is asked for.
func (c *conditions) optional(kind, reason string, asked bool, drift, err error, failures int) {
	f := classified(err, reason)
	switch {
	case drift != nil && asked:
		// Without a look at the cluster there was nothing to do.
	case err != nil && (f.class != retry || failures >= patience):
		c.set(kind, metav1.ConditionTrue, f.reason, clip(f.Error(), messageBytes))
	case err == nil || !asked:
		c.drop(kind)
	}
}

func (c *conditions) set(kind string, value metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&c.list, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: message,
		ObservedGeneration: c.generation, LastTransitionTime: metav1.NewTime(c.now.UTC().Truncate(time.Second)),
	})
}

func (c *conditions) drop(kind string) { meta.RemoveStatusCondition(&c.list, kind) }

func (c *conditions) sorted() []metav1.Condition {
	slices.SortFunc(c.list, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return c.list
}

// historyLength is the API's limit.
const historyLength = 5

// remember puts an outcome in front of the history, unless it stands there.
func (c *conditions) remember(status *coppice.NodeSourceStatus, revision string, outcome coppice.Outcome, message string) {
	if revision == "" {
		return
	}
	if h := status.History; len(h) > 0 && h[0].Revision == revision && h[0].Outcome == outcome {
		return
	}
	entry := coppice.HistoryEntry{
		Revision: revision, Outcome: outcome, Message: message,
		Time: metav1.NewTime(c.now.UTC().Truncate(time.Second)),
	}
	status.History = append([]coppice.HistoryEntry{entry}, status.History...)
	status.History = status.History[:min(len(status.History), historyLength)]
}

// withProgress returns conditions that say that work is under way.
func withProgress(list []metav1.Condition, generation int64, message string, now time.Time) []metav1.Condition {
	c := conditions{list: slices.Clone(list), generation: generation, now: now}
	c.set(conditionReconciling, metav1.ConditionTrue, reasonProgressing, message)
	if meta.FindStatusCondition(c.list, conditionReady) == nil {
		c.set(conditionReady, metav1.ConditionUnknown, reasonProgressing, message)
	}
	return c.sorted()
}

// clip cuts a text to a number of bytes, at the end of a character.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const mark = "…"
	return strings.ToValidUTF8(s[:max(limit-len(mark), 0)], "") + mark
}

// changedDrift reports whether two summaries tell of different drift.
func changedDrift(a, b *coppice.DriftSummary) bool {
	if a == nil || b == nil {
		return a != b
	}
	return a.Fields != b.Fields || a.Objects != b.Objects || !slices.Equal(a.Items, b.Items)
}
