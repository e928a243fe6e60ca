package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/reference"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// noteBytes is the API's limit of an event's note, less room for an ellipsis.
	noteBytes = 1020
	// eventLife is how long the API server keeps an event, by its default --event-ttl.
	eventLife = time.Hour
	// eventRepeat is how soon an event that is told again is written again. Karpenter
	// says nothing again within it.
	eventRepeat = 2 * time.Minute
	// eventTexts is how many different texts in a row an object gets of one reason; then
	// one for each eventRefill. What counts pods or seconds down would write for ever.
	eventTexts  = 10
	eventRefill = 30 * time.Second
	// eventsKept bounds what is remembered of events, and eventsQueued how many wait to be
	// written. More are lost: what happens is more important than that it is told.
	eventsKept   = 4096
	eventsQueued = 4096
	// eventWriters is how many events are written at once. A few, so that a plan for
	// thousands of pods doesn't keep the API server from the work itself.
	eventWriters = 2
	// lastWords is how long the end of the process waits for what is queued.
	lastWords = time.Second
)

// Recorder writes events, each text as one of its own. (The one of client-go takes
// everything of the same reason about an object for one event: it keeps the first text
// and counts the others.) What is told again counts on the event that is there.
//
// It implements recorder.EventRecorder of controller-runtime, and runs as part of a
// manager.
type Recorder struct {
	client     client.Client
	clock      clock.PassiveClock
	controller string
	instance   string
	queue      chan writing

	mu    sync.Mutex
	told  map[[sha256.Size]byte]*telling
	spent map[allowance]*spending
}

// telling is an event that was told, and how often.
type telling struct {
	event         *eventsv1.Event
	times         int32
	last, written time.Time
}

// allowance is what has its own bound of texts.
type allowance struct {
	uid    types.UID
	reason string
}

type spending struct {
	texts float64
	at    time.Time
}

// writing is an event to be written: made, or if it has a series, counted.
type writing struct {
	event  *eventsv1.Event
	series *eventsv1.EventSeries
}

// NewRecorder returns a recorder for a controller of that name.
func NewRecorder(c client.Client, clk clock.PassiveClock, controller string) *Recorder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // it is only for people who look for the process
	}
	return &Recorder{
		client: c, clock: clk, controller: controller, instance: controller + "-" + host,
		queue: make(chan writing, eventsQueued),
		told:  map[[sha256.Size]byte]*telling{}, spent: map[allowance]*spending{},
	}
}

// Eventf tells something about an object. It never blocks; what can't be written is
// logged.
func (r *Recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.AnnotatedEventf(regarding, related, nil, kind, reason, action, note, args...)
}

// AnnotatedEventf is Eventf for an event with annotations.
func (r *Recorder) AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, kind, reason, action, note string, args ...any) {
	about, err := reference.GetReference(r.client.Scheme(), regarding)
	if err != nil {
		ctrl.Log.Error(err, "Tell an event", "reason", reason)
		return
	}
	var other *corev1.ObjectReference
	if related != nil {
		// Without it the text still says what happened.
		other, _ = reference.GetReference(r.client.Scheme(), related)
	}
	text := ClipNote(fmt.Sprintf(note, args...))
	now := r.clock.Now()
	id := identity(about, other, kind, reason, action, text)

	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.told[id]; t != nil && now.Sub(t.last) < eventLife {
		t.times++
		t.last = now
		if now.Sub(t.written) >= eventRepeat && r.put(writing{t.event, &eventsv1.EventSeries{Count: t.times, LastObservedTime: metav1.NewMicroTime(now)}}) {
			t.written = now
		}
		return
	}
	if !r.allowed(allowance{about.UID, about.Namespace + "/" + about.Name + " " + reason}, now) {
		return
	}
	e := r.event(about, other, kind, reason, action, text, id, now)
	e.Annotations = maps.Clone(annotations)
	if !r.put(writing{event: e}) {
		return
	}
	r.tidy(now)
	r.told[id] = &telling{event: e, times: 1, last: now, written: now}
}

// event makes one; its name has that of its object in front, so that people find it.
func (r *Recorder) event(about, other *corev1.ObjectReference, kind, reason, action, text string, id [sha256.Size]byte, now time.Time) *eventsv1.Event {
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	// A name may have 253 characters; ours adds 30.
	name := strings.TrimRight(about.Name[:min(len(about.Name), 200)], ".-")
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x%s", name, now.UnixNano(), hex.EncodeToString(id[:4]))},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: r.controller, ReportingInstance: r.instance[:min(len(r.instance), 128)],
		Action: action, Reason: reason, Type: kind, Note: text, Regarding: *about, Related: other,
	}
}

// identity is the same for what tells the same.
func identity(about, other *corev1.ObjectReference, words ...string) [sha256.Size]byte {
	for _, o := range []*corev1.ObjectReference{about, other} {
		if o != nil {
			words = append(words, o.APIVersion, o.Kind, o.Namespace, o.Name, string(o.UID))
		}
	}
	return sha256.Sum256([]byte(strings.Join(words, "\x00")))
}

// put queues what is to be written and reports whether there was room.
func (r *Recorder) put(w writing) bool {
	select {
	case r.queue <- w:
		return true
	default:
		ctrl.Log.V(1).Info("Too many events at once; one isn't written", "reason", w.event.Reason, "note", w.event.Note)
		return false
	}
}

// allowed takes one text from an object's allowance, if there is one left.
func (r *Recorder) allowed(a allowance, now time.Time) bool {
	s := r.spent[a]
	if s == nil {
		s = &spending{}
		r.spent[a] = s
	}
	s.texts = math.Max(0, s.texts-float64(now.Sub(s.at))/float64(eventRefill))
	s.at = now
	if s.texts > eventTexts-1 {
		return false
	}
	s.texts++
	return true
}

// tidy forgets what was told long ago, and everything if that isn't enough: an event
// that is told again is then at worst written again.
func (r *Recorder) tidy(now time.Time) {
	if len(r.told) >= eventsKept {
		for id, t := range r.told {
			if now.Sub(t.last) >= eventLife {
				delete(r.told, id)
			}
		}
		if len(r.told) >= eventsKept {
			clear(r.told)
		}
	}
	if len(r.spent) >= eventsKept {
		for a, s := range r.spent {
			if now.Sub(s.at) >= eventTexts*eventRefill {
				delete(r.spent, a)
			}
		}
		if len(r.spent) >= eventsKept {
			clear(r.spent)
		}
	}
}

// NeedLeaderElection lets a standby tell too.
func (r *Recorder) NeedLeaderElection() bool { return false }

// Start writes until ctx ends, and what is queued then within a second.
func (r *Recorder) Start(ctx context.Context) error {
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	context.AfterFunc(ctx, func() { time.AfterFunc(lastWords, cancel) })
	var wg sync.WaitGroup
	for range eventWriters {
		wg.Go(func() {
			for {
				select {
				case w := <-r.queue:
					r.write(last, w)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	wg.Wait()
	for last.Err() == nil {
		select {
		case w := <-r.queue:
			r.write(last, w)
		default:
			return nil
		}
	}
	return nil
}

func (r *Recorder) write(ctx context.Context, w writing) {
	var err error
	if w.series == nil {
		err = r.client.Create(ctx, w.event.DeepCopy())
	} else if err = r.count(ctx, w); apierrors.IsNotFound(err) {
		// Somebody has removed it.
		again := w.event.DeepCopy()
		again.Series = w.series
		err = r.client.Create(ctx, again)
	}
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || ctx.Err() != nil {
		return
	}
	ctrl.Log.Error(err, "Write an event", "reason", w.event.Reason, "note", w.event.Note)
}

func (r *Recorder) count(ctx context.Context, w writing) error {
	patch, err := json.Marshal(map[string]any{"series": w.series})
	if err != nil {
		return fmt.Errorf("encode an event's count: %w", err)
	}
	return r.client.Patch(ctx, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: w.event.Namespace, Name: w.event.Name}}, client.RawPatch(types.MergePatchType, patch))
}

// ClipNote bounds a text to what an event's note may have.
func ClipNote(s string) string {
	if len(s) <= noteBytes {
		return s
	}
	return strings.ToValidUTF8(s[:noteBytes], "") + "..."
}
