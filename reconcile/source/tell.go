package source

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// note is an event to be written.
type note struct {
	kind   string
	reason string
	// key makes the event one of a kind: the same reason and key is told once.
	key  string
	text string
}

func (p *pass) info(reason, key, format string, args ...any) {
	p.notes = append(p.notes, note{corev1.EventTypeNormal, reason, key, fmt.Sprintf(format, args...)})
}

func (p *pass) warn(reason, key, format string, args ...any) {
	p.notes = append(p.notes, note{corev1.EventTypeWarning, reason, key, fmt.Sprintf(format, args...)})
}

// noteBytes is the API's limit of an event's note, noteCount bounds how many one
// commit may cause.
const (
	noteBytes = 1000
	noteCount = 20
)

// refuse returns the failure that tells as many findings as fit a condition, and
// tells all of them as events if the condition doesn't stand already.
func (p *pass) refuse(findings diag.List) error {
	var lines []string
	for _, f := range findings {
		if f.Severity == diag.Error {
			lines = append(lines, p.line(f))
		}
	}
	head := fmt.Sprintf("%s is refused, %s: ", p.head.Short(), plural(len(lines), "finding", "findings"))
	text := enumerate(head, lines, "; ", messageBytes)
	if before, _ := find(p.read.Status.Conditions, conditionReady); before.Message != text {
		p.tellFindings(lines)
	}
	return terminally(reasonInvalid, errors.New(text))
}

// tellFindings makes events of lines, as few as hold them.
func (p *pass) tellFindings(lines []string) {
	chunk, n := "", 0
	flush := func() {
		if chunk != "" && n < noteCount {
			n++
			p.warn(reasonInvalid, fmt.Sprintf("%s %d", p.try.revision, n), "%s", chunk)
		}
		chunk = ""
	}
	for _, line := range lines {
		line = clip(line, noteBytes)
		if len(chunk)+len(line)+1 > noteBytes {
			flush()
		}
		if chunk != "" {
			chunk += "\n"
		}
		chunk += line
	}
	flush()
}

// line says a finding in one line, with its place in the repository.
func (p *pass) line(f diag.Finding) string {
	pos := f.Pos
	if pos.IsValid() {
		pos.File = path.Join(p.src.Spec.Path, pos.File)
	}
	var b strings.Builder
	if pos.IsValid() {
		b.WriteString(pos.String() + ": ")
	}
	if f.Object != "" {
		b.WriteString(f.Object + ": ")
	}
	b.WriteString(plan.Unquoted(f.Path, f.Message))
	if f.Help != "" {
		b.WriteString(" (" + f.Help + ")")
	}
	if f.Code != "" {
		b.WriteString(" [" + f.Code + "]")
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// tellDrift adds the event for drift that began, changed or ended in this pass.
func (p *pass) tellDrift() {
	before, now := p.read.Status.Drift, p.src.Status.Drift
	switch {
	case !changedDrift(before, now):
	case now == nil:
		p.info(reasonSettled, p.clock.Now().String(), "nothing differs from Git any more")
	default:
		p.warn(reasonDrift, identify(string(plan.Report{Differences: p.memory.diffs}.Encode())), "%s", plan.Summary(p.memory.diffs))
	}
}

// tellFailures adds an event for each part that failed and is told by a
// condition that changed in this pass.
func (p *pass) tellFailures() {
	for _, kind := range []string{conditionReady, coppice.ConditionDrifted, conditionReportFailed, conditionAdoptFailed} {
		now, ok := find(p.src.Status.Conditions, kind)
		before, _ := find(p.read.Status.Conditions, kind)
		bad := kind == conditionReady && now.Status == metav1.ConditionFalse ||
			kind == coppice.ConditionDrifted && now.Status == metav1.ConditionUnknown ||
			(kind == conditionReportFailed || kind == conditionAdoptFailed) && now.Status == metav1.ConditionTrue
		if ok && bad && now.Reason != reasonInvalid && (before.Status != now.Status || before.Reason != now.Reason || before.Message != now.Message) {
			p.warn(now.Reason, now.Message, "%s", now.Message)
		}
	}
}

func find(list []metav1.Condition, kind string) (metav1.Condition, bool) {
	for _, c := range list {
		if c.Type == kind {
			return c, true
		}
	}
	return metav1.Condition{}, false
}

// announce writes the pass's events. An event's name follows from what it says,
// so that it is written once, by whichever process; the API server forgets it
// after an hour. (A recorder would fold events of the same reason into the first
// one and lose the text of the others.)
func (p *pass) announce(ctx context.Context) {
	p.tellDrift()
	p.tellFailures()
	for _, n := range p.notes {
		id := identify(string(p.src.UID), n.kind, n.reason, n.key, n.text)
		if p.memory.announced[id] {
			continue
		}
		event := p.event(n, id)
		switch err := p.client.Create(ctx, event); {
		case err == nil:
			p.notify.tell(ctx, event)
		case !apierrors.IsAlreadyExists(err):
			ctrllog.FromContext(ctx).Error(err, "Write event", "reason", n.reason)
			continue
		}
		if len(p.memory.announced) >= announcedMax {
			clear(p.memory.announced)
		}
		p.memory.announced[id] = true
	}
}

// announcedMax bounds how many events are remembered; one forgotten is at worst
// written again.
const announcedMax = 1000

func (p *pass) event(n note, id string) *eventsv1.Event {
	return &eventsv1.Event{
		// A name may have 253 characters, a source's name is left readable in it.
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.src.Namespace, Name: strings.TrimRight(p.src.Name[:min(len(p.src.Name), 200)], ".-") + "." + id,
			Annotations: p.metadata(),
		},
		EventTime:           metav1.NewMicroTime(p.clock.Now()),
		ReportingController: "coppice.dev/source",
		ReportingInstance:   "coppice",
		Action:              "Reconcile",
		Reason:              n.reason,
		Type:                n.kind,
		Note:                clip(plan.Redact(n.text), noteBytes),
		Regarding: corev1.ObjectReference{
			APIVersion: coppice.GroupVersion.String(), Kind: "NodeSource",
			Namespace: p.src.Namespace, Name: p.src.Name, UID: p.src.UID, ResourceVersion: p.src.ResourceVersion,
		},
	}
}

// fluxMetadata begins the annotations that Flux's notification-controller passes on
// with an event.
const fluxMetadata = "event.toolkit.fluxcd.io/"

// metadata is what an event carries beside its text, in the way of Flux: the
// revision under our own group, and what the source is annotated with for events.
func (p *pass) metadata() map[string]string {
	out := map[string]string{}
	if rev := p.src.Status.LastAttemptedRevision; rev != "" {
		out[coppice.Group+"/revision"] = rev
	}
	for k, v := range p.src.Annotations {
		if strings.HasPrefix(k, fluxMetadata) {
			out[k] = v
		}
	}
	return out
}
