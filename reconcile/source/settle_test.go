package source

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

func TestSettle(t *testing.T) {
	now := time.Date(2026, 11, 30, 10, 0, 0, 5, time.UTC)
	boom := errors.New("boom")
	ready := metav1.Condition{Type: conditionReady, Status: metav1.ConditionTrue, Reason: reasonApplied, Message: "Applied main@sha1:1", ObservedGeneration: 3}
	for name, tc := range map[string]struct {
		why      string
		edit     func(*coppice.NodeSource)
		res      result
		failures int
		// conditions are type=status/reason, sorted.
		conditions []string
		requeue    time.Duration
		history    string
	}{
		"applied": {
			why: "the cluster matches", conditions: []string{"Ready=True/Applied"},
			requeue: time.Minute, history: "Applied main@sha1:1",
		},
		"skipped": {
			why:  "a pass without news leaves what was said of the last",
			edit: func(s *coppice.NodeSource) { s.Status.Conditions = []metav1.Condition{ready} },
			res:  result{skipped: true}, conditions: []string{"Ready=True/Applied"}, requeue: time.Minute,
		},
		"terminal": {
			why:        "a person has to act",
			res:        result{change: fmt.Errorf("wrapped: %w", terminally(reasonPruneGuard, boom))},
			conditions: []string{"Ready=False/PruneGuard", "Stalled=True/PruneGuard"},
			requeue:    time.Minute, history: "Failed main@sha1:2",
		},
		"refused": {
			why: "findings are the commit's", res: result{change: terminally(reasonInvalid, boom)},
			conditions: []string{"Ready=False/InvalidCommit", "Stalled=True/InvalidCommit"},
			requeue:    time.Minute, history: "Refused main@sha1:2",
		},
		"waiting": {
			why: "something else comes first", res: result{change: waiting(reasonNoKind, 15*time.Second, boom)},
			conditions: []string{"Ready=False/KindNotInstalled", "Reconciling=True/KindNotInstalled"},
			requeue:    15 * time.Second, history: "Failed main@sha1:2",
		},
		"first failure": {
			why:  "a blip is nobody's business",
			edit: func(s *coppice.NodeSource) { s.Status.Conditions = []metav1.Condition{ready} },
			res:  result{change: retrying(reasonFetch, boom)}, conditions: []string{"Ready=True/Applied"}, requeue: firstRetry,
		},
		"another spec": {
			why: "what was said of the former spec isn't said of this one",
			edit: func(s *coppice.NodeSource) {
				old := ready
				old.ObservedGeneration = 2
				s.Status.Conditions = []metav1.Condition{old}
			},
			res: result{change: retrying(reasonFetch, boom)}, requeue: firstRetry,
			conditions: []string{"Ready=Unknown/Progressing", "Reconciling=True/ProgressingWithRetry"},
		},
		"very first failure": {
			why: "a source of which nothing is known yet says why", res: result{change: boom},
			conditions: []string{"Ready=Unknown/Progressing", "Reconciling=True/ProgressingWithRetry"}, requeue: firstRetry,
		},
		"third failure": {
			why:  "then it is told",
			edit: func(s *coppice.NodeSource) { s.Status.Conditions = []metav1.Condition{ready} },
			res:  result{change: retrying(reasonFetch, boom)}, failures: 2,
			conditions: []string{"Ready=False/FetchFailed", "Reconciling=True/ProgressingWithRetry"}, requeue: 4 * firstRetry,
		},
		"many failures": {
			why: "the pause is bounded by the interval", res: result{change: retrying(reasonApply, boom)}, failures: 50,
			conditions: []string{"Ready=False/ApplyFailed", "Reconciling=True/ProgressingWithRetry"},
			requeue:    time.Minute, history: "Failed main@sha1:2",
		},
		"drift": {
			why:        "drift doesn't make a source unready",
			edit:       func(s *coppice.NodeSource) { s.Status.Drift = &coppice.DriftSummary{Objects: 1, Fields: 1} },
			conditions: []string{"Drifted=True/ConfigDrift", "Ready=True/Applied"}, requeue: time.Minute, history: "Applied main@sha1:1",
		},
		"no look": {
			why:        "a look that failed for good is told",
			res:        result{drift: terminally(reasonSecret, boom)},
			conditions: []string{"Drifted=Unknown/DriftCheckFailed", "Ready=True/Applied"}, requeue: time.Minute, history: "Applied main@sha1:1",
		},
		"no report": {
			why:        "a report that failed is told beside",
			edit:       func(s *coppice.NodeSource) { s.Spec.WriteBack = &coppice.WriteBack{} },
			res:        result{report: terminally(reasonAuth, boom)},
			conditions: []string{"Ready=True/Applied", "ReportFailed=True/AuthenticationFailed"}, requeue: time.Minute, history: "Applied main@sha1:1",
		},
		"put off": {
			why: "what was put off is woken for", res: result{wake: now.Add(7 * time.Second)},
			conditions: []string{"Ready=True/Applied"}, requeue: 7 * time.Second, history: "Applied main@sha1:1",
		},
		"overdue": {
			why: "what is overdue comes soon, not at once", res: result{wake: now.Add(-time.Second)},
			conditions: []string{"Ready=True/Applied"}, requeue: soonest, history: "Applied main@sha1:1",
		},
		"suspended": {
			why: "a paused source keeps what was said and isn't looked at",
			edit: func(s *coppice.NodeSource) {
				s.Spec.Suspend = true
				s.Status.Conditions = []metav1.Condition{ready, {Type: conditionReconciling, Status: metav1.ConditionTrue, Reason: reasonProgressing}}
			},
			conditions: []string{"Ready=True/Applied"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			src := &coppice.NodeSource{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			src.Status.LastAppliedRevision, src.Status.LastAttemptedRevision = "main@sha1:1", "main@sha1:2"
			if tc.edit != nil {
				tc.edit(src)
			}
			before := src.DeepCopy()
			got := settle(src, tc.res, failures{tc.failures, tc.failures, tc.failures, 0}, time.Minute, now)
			if diff := cmp.Diff(before, src); diff != "" {
				t.Errorf("the argument was changed: %s", diff)
			}
			var conditions []string
			for _, c := range got.status.Conditions {
				conditions = append(conditions, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
			}
			if diff := cmp.Diff(tc.conditions, conditions); diff != "" {
				t.Errorf("%s: %s", tc.why, diff)
			}
			if got.requeue != tc.requeue {
				t.Errorf("%s: next pass in %s, want %s", tc.why, got.requeue, tc.requeue)
			}
			history := ""
			if len(got.status.History) > 0 {
				history = string(got.status.History[0].Outcome) + " " + got.status.History[0].Revision
			}
			if history != tc.history {
				t.Errorf("%s: history is %q, want %q", tc.why, history, tc.history)
			}
			// The same again changes nothing.
			src.Status = got.status
			again := settle(src, tc.res, got.failures, time.Minute, now.Add(time.Hour))
			if got.failures.worst() == 0 || got.failures.worst() >= patience {
				if diff := cmp.Diff(got.status, again.status); diff != "" {
					t.Errorf("%s: the same outcome an hour later changes the status: %s", tc.why, diff)
				}
			}
		})
	}
}

// TestFailuresAreCountedApart: a source whose drift can't be looked at for long is not
// unready at the first blip of its repository, and a blip forgets nothing.
func TestFailuresAreCountedApart(t *testing.T) {
	now := time.Unix(0, 0)
	src := &coppice.NodeSource{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	src.Status.LastAppliedRevision = "main@sha1:1"
	src.Status = settle(src, result{}, failures{}, time.Minute, now).status
	boom := errors.New("boom")
	var count failures
	for i := range 3 * patience {
		res := result{drift: boom}
		if i%patience == 0 {
			res.change = boom
		}
		got := settle(src, res, count, time.Minute, now)
		src.Status, count = got.status, got.failures
		if ready, _ := find(src.Status.Conditions, conditionReady); ready.Status != metav1.ConditionTrue {
			t.Errorf("pass %d: %+v", i, ready)
		}
	}
	if count != (failures{drift: 3 * patience}) {
		t.Errorf("%+v", count)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	src := &coppice.NodeSource{}
	for i := range 9 {
		src.Status.LastAppliedRevision = fmt.Sprint("r", i)
		src.Status = settle(src, result{}, failures{}, time.Minute, time.Unix(int64(i), 0)).status
	}
	var got []string
	for _, h := range src.Status.History {
		got = append(got, h.Revision)
	}
	if diff := cmp.Diff([]string{"r8", "r7", "r6", "r5", "r4"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestManyFindings: a thousand findings fit a condition and a few events.
func TestManyFindings(t *testing.T) {
	p := &pass{read: &coppice.NodeSource{}, src: &coppice.NodeSource{}, head: git.Revision{Ref: "main", Hash: strings.Repeat("0", 40)}}
	p.src.Spec.Path = "infra"
	var findings diag.List
	for i := range 1000 {
		findings = append(findings, diag.Finding{Code: "X1", Message: "wrong\nin many ways", Pos: diag.Position{File: "a.cue", Line: i + 1, Col: 2}, Object: "NodePool/a", Help: "mend it"})
	}
	findings = append(findings, diag.Finding{Severity: diag.Warning, Message: "only a warning"})
	text := p.refuse(findings).Error()
	if len(text) > messageBytes || !strings.HasPrefix(text, "main@sha1:000000000000 is refused, 1000 findings: infra/a.cue:1:2: NodePool/a: wrong in many ways (mend it) [X1]; infra/a.cue:2:2: ") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	if !strings.HasSuffix(text, " more") || strings.Contains(text, "only a warning") {
		t.Error(text)
	}
	if len(p.notes) != noteCount {
		t.Errorf("%d events", len(p.notes))
	}
	for _, n := range p.notes {
		if len(n.text) > noteBytes {
			t.Errorf("an event has %d bytes", len(n.text))
		}
	}
	long := diag.List{{Message: strings.Repeat("ä", 5000), Pos: diag.Position{File: "a.cue", Line: 1}}}
	if text := p.refuse(long).Error(); len(text) > messageBytes || !strings.HasSuffix(text, "…") {
		t.Errorf("%d bytes", len(text))
	}
}

// TestHush: whatever a message repeats of user data stays in the pass.
func TestHush(t *testing.T) {
	const script = "#!/bin/sh\nexport TOKEN=\"s3cr3t\"\n"
	object := render.Object{Name: "a", Value: map[string]any{"spec": map[string]any{"userData": script}}}
	object.GVK.Kind = "EC2NodeClass"
	for name, text := range map[string]string{
		"as it is":  "bad: " + script,
		"quoted":    fmt.Sprintf("Invalid value: %q: too long", script),
		"as JSON":   `Invalid value: "#!/bin/sh\nexport TOKEN=\"s3cr3t\"\n": too long`,
		"in a line": "bad: " + strings.Join(strings.Fields(script), " "),
	} {
		p := &pass{read: &coppice.NodeSource{}, src: &coppice.NodeSource{}, memory: &memory{head: evaluated{objects: []declared{{Object: object}}}}}
		p.result.change = terminally(reasonInvalid, errors.New(text))
		p.result.drift = kubeFailure(reasonDriftCheck, errors.New(text))
		p.warn(reasonInvalid, "", "%s", text)
		p.hush()
		for _, got := range []string{p.result.change.Error(), p.result.drift.Error(), p.notes[0].text} {
			if strings.Contains(got, "s3cr3t") || !strings.Contains(got, "***") {
				t.Errorf("%s: %s", name, got)
			}
		}
		if f := classified(p.result.change, ""); f.class != terminal || f.reason != reasonInvalid {
			t.Errorf("%s: the class is lost: %+v", name, f)
		}
	}
	p := &pass{read: &coppice.NodeSource{}, src: &coppice.NodeSource{}}
	got := p.line(diag.Finding{Path: "spec.userData", Message: `conflicting values "TOKEN=s3cr3t" and 3`})
	if got != "conflicting values *** and 3" {
		t.Error(got)
	}
}
