// Package explain answers "why?" about one object from a snapshot: what state it is
// in, what the controllers decided and why, what holds it up and what would help.
//
// It is pure. It reports what the snapshot and the decision record in it say, and
// judges only what needs no decision of its own: whether a PodDisruptionBudget lets
// a pod go now, when a node expires, how much of a limit is left.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/internal/snapshot"
)

// Answer is all that can be said about a subject.
type Answer struct {
	Subject record.Subject `json:"subject"`
	// Summary is one line.
	Summary string `json:"summary"`
	// Facts are what is so now, in reading order.
	Facts []Fact `json:"facts,omitempty"`
	// Holds are what keeps the subject from moving on.
	Holds []record.Reason `json:"holds,omitempty"`
	// Decisions are the controllers', the latest last.
	Decisions []record.Decision `json:"decisions,omitempty"`
	// Events are Coppice's own about the subject, the latest last.
	Events []Event `json:"events,omitempty"`
}

// Fact is one named value.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Event is one thing that was told.
type Event struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	Note   string    `json:"note"`
}

// NotFoundError says that a snapshot has no such object.
type NotFoundError struct {
	Subject record.Subject
	// Near are names of the same kind, the most similar first, at most three.
	Near []string
}

func (e *NotFoundError) Error() string {
	text := fmt.Sprintf("there is no %s", e.Subject)
	if len(e.Near) > 0 {
		text += "; there is " + strings.Join(e.Near, ", ")
	}
	return text
}

// asker answers for one snapshot. Ages are as of when it was taken.
type asker struct {
	*snapshot.Snapshot
}

// Explain answers about a Pod, Node, NodeClaim or NodePool.
func Explain(s *snapshot.Snapshot, about record.Subject) (*Answer, error) {
	a := asker{s}
	var out *Answer
	var err error
	switch about.Kind {
	case "Pod":
		out, err = a.pod(about)
	case "Node":
		out, err = a.node(about)
	case "NodeClaim":
		out, err = a.nodeClaim(about)
	case "NodePool":
		out, err = a.nodePool(about)
	default:
		return nil, fmt.Errorf("explain %s: only a Pod, Node, NodeClaim or NodePool can be explained", about)
	}
	if err != nil {
		return nil, err
	}
	out.Subject = about
	return out, nil
}

// told returns what the record and the events have about any of several subjects,
// which are one thing under several names, as a Node and its claim are.
func (a asker) told(out *Answer, subjects ...record.Subject) {
	for _, e := range a.Decisions {
		if slices.Contains(subjects, e.Subject) {
			out.Decisions = append(out.Decisions, e.Decisions...)
		}
	}
	slices.SortStableFunc(out.Decisions, func(x, y record.Decision) int { return x.Last.Compare(y.Last) })
	for _, e := range a.Events {
		r := e.Regarding
		if slices.Contains(subjects, record.Subject{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}) {
			out.Events = append(out.Events, Event{At: when(e), Reason: e.Reason, Note: e.Note})
		}
	}
	slices.SortStableFunc(out.Events, func(x, y Event) int { return x.At.Compare(y.At) })
}

func when(e eventsv1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return e.EventTime.Time
}

func find[T any, P interface {
	*T
	metav1.Object
}](items []T, s record.Subject) (*T, error) {
	var names []string
	for i := range items {
		o := P(&items[i])
		if o.GetName() == s.Name && o.GetNamespace() == s.Namespace {
			return &items[i], nil
		}
		if o.GetNamespace() == s.Namespace {
			names = append(names, o.GetName())
		}
	}
	slices.SortStableFunc(names, func(x, y string) int { return cmp.Compare(alike(y, s.Name), alike(x, s.Name)) })
	return nil, &NotFoundError{Subject: s, Near: names[:min(3, len(names))]}
}

// alike is the length of the common prefix: names are generated with their owner's
// at the front.
func alike(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func (a asker) age(t metav1.Time) string { return span(a.TakenAt.Sub(t.Time)) }

// span prints a duration in its two largest units.
func span(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// conditions turns those that aren't True, or are about trouble, into facts.
func conditions(list []metav1.Condition) []Fact {
	var out []Fact
	for _, c := range list {
		value := string(c.Status)
		if c.Reason != "" && c.Reason != c.Type {
			value += ", " + c.Reason
		}
		if c.Message != "" {
			value += ": " + c.Message
		}
		out = append(out, Fact{c.Type, value})
	}
	slices.SortFunc(out, func(x, y Fact) int { return strings.Compare(x.Name, y.Name) })
	return out
}

// pod explains why a pod is where it is, or isn't anywhere.
func (a asker) pod(s record.Subject) (*Answer, error) {
	p, err := find(a.Pods, s)
	if err != nil {
		return nil, err
	}
	out := &Answer{}
	a.told(out, s)
	switch {
	case p.Spec.NodeName != "":
		out.Summary = fmt.Sprintf("%s on Node %s", strings.ToLower(cmp.Or(string(p.Status.Phase), "bound")), p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) > 0:
		out.Summary = "pending, and held by scheduling gates; nothing is planned for it until they are gone"
		for _, g := range p.Spec.SchedulingGates {
			out.Holds = append(out.Holds, record.Reason{Scope: "scheduling gate", Code: "Gated", Message: g.Name, Remedy: "whoever set the gate has to remove it"})
		}
	default:
		out.Summary = "pending for " + a.age(p.CreationTimestamp)
		if last := latest(out.Decisions); last != nil {
			out.Summary += ", " + verdictText(last)
			if last.Verdict == "NoPlace" {
				out.Holds = last.Reasons
			}
		} else {
			out.Summary += "; no decision about it is known"
		}
		if n := p.Status.NominatedNodeName; n != "" {
			out.Facts = append(out.Facts, Fact{"Nominated to", n})
		}
		out.Facts = append(out.Facts, Fact{"Scheduler", schedulerSays(p)})
	}
	return out, nil
}

func latest(d []record.Decision) *record.Decision {
	if len(d) == 0 {
		return nil
	}
	return &d[len(d)-1]
}

func verdictText(d *record.Decision) string {
	switch d.Verdict {
	case "NoPlace":
		return "and no NodePool has a place for it"
	case "NewNode":
		return "planned onto a new node, NodeClaim " + d.Target
	case "ExistingNode":
		return "planned onto " + d.Target
	}
	return d.Verdict
}

func schedulerSays(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	return "hasn't tried it yet; nodes are opened for pods that it has found no place for"
}
