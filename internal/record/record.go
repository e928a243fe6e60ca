// Package record keeps what the controllers decided and why, so that it can be
// asked for later: by "coppice explain" over an endpoint, or in a snapshot.
//
// A decision that is made again, unchanged, is counted, not repeated: planning runs
// every second while pods wait. The record lives in memory and forgets the subjects
// that have been silent for longest; what must survive a restart is an object in
// the API server, never an entry here.
package record

import (
	"container/list"
	"slices"
	"strings"
	"sync"
	"time"
)

// Subject is the object that a decision is about.
type Subject struct {
	// Kind is a Kubernetes kind: Pod, Node, NodeClaim or NodePool.
	Kind string `json:"kind"`
	// Namespace is empty for cluster-scoped kinds.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func (s Subject) String() string {
	if s.Namespace == "" {
		return s.Kind + " " + s.Name
	}
	return s.Kind + " " + s.Namespace + "/" + s.Name
}

// Decision is one answer to "what about this object, and why?".
type Decision struct {
	// Topic says what was decided on: Placement for a pod, a disruption reason for a
	// node.
	Topic string `json:"topic"`
	// Verdict is one CamelCase word for programs, as in NoPlace.
	Verdict string `json:"verdict"`
	// Message says it for people.
	Message string `json:"message"`
	// Target is the node or claim that was chosen, if one was.
	Target string `json:"target,omitempty"`
	// Reasons are what stood in the way, in the order in which it was tried.
	Reasons []Reason `json:"reasons,omitempty"`
	// Until is when what was decided ends by itself, zero if that isn't known.
	Until time.Time `json:"until,omitzero"`
	// Since is when it was first decided so, Last when it was last confirmed, Times
	// how often in all.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	Times int       `json:"times"`
}

// Reason is one constraint that binds.
type Reason struct {
	// Scope is what the constraint belongs to, as in "NodePool general".
	Scope string `json:"scope,omitempty"`
	// Code is one CamelCase word for programs.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Remedy is what would change the decision, where that is known.
	Remedy string `json:"remedy,omitempty"`
}

// Entry is all that is known about one subject, the latest decision last.
type Entry struct {
	Subject   Subject    `json:"subject"`
	Decisions []Decision `json:"decisions"`
}

const (
	// history is how many decisions a subject keeps: enough to see the last change of
	// each reason, and of what it was before.
	history = 12
	// subjects is how many subjects are kept. At some 500 bytes each the book stays
	// below 20 MiB.
	subjects = 20_000
)

// Book is the record. Its zero value is not usable; see NewBook. All methods may be
// called from several goroutines. A nil Book takes notes of nothing.
type Book struct {
	mu      sync.Mutex
	entries map[Subject]*list.Element // of *Entry
	// recent has the entry that changed last at its front.
	recent *list.List
	limit  int
}

// NewBook returns an empty record.
func NewBook() *Book {
	return &Book{entries: map[Subject]*list.Element{}, recent: list.New(), limit: subjects}
}

// Put notes a decision made at time now. Since, Last and Times of d are filled in.
func (b *Book) Put(s Subject, now time.Time, d Decision) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entry(s)
	for i := len(e.Decisions) - 1; i >= 0; i-- {
		last := &e.Decisions[i]
		if last.Topic != d.Topic {
			continue
		}
		if last.Verdict == d.Verdict && last.Message == d.Message && last.Target == d.Target && last.Until.Equal(d.Until) && slices.Equal(last.Reasons, d.Reasons) {
			last.Last = now
			last.Times++
			return
		}
		break
	}
	d.Since, d.Last, d.Times = now, now, 1
	if len(e.Decisions) == history {
		e.Decisions = slices.Delete(e.Decisions, 0, 1)
	}
	e.Decisions = append(e.Decisions, d)
}

func (b *Book) entry(s Subject) *Entry {
	if el, ok := b.entries[s]; ok {
		b.recent.MoveToFront(el)
		return el.Value.(*Entry)
	}
	e := &Entry{Subject: s}
	b.entries[s] = b.recent.PushFront(e)
	if b.recent.Len() > b.limit {
		oldest := b.recent.Back()
		b.recent.Remove(oldest)
		delete(b.entries, oldest.Value.(*Entry).Subject)
	}
	return e
}

// All returns a copy of the record, sorted by subject.
func (b *Book) All() []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Entry, 0, len(b.entries))
	for el := b.recent.Front(); el != nil; el = el.Next() {
		e := el.Value.(*Entry)
		out = append(out, Entry{Subject: e.Subject, Decisions: slices.Clone(e.Decisions)})
	}
	slices.SortFunc(out, func(x, y Entry) int { return strings.Compare(x.Subject.String(), y.Subject.String()) })
	return out
}
