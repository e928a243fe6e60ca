package source

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// notifier passes events on to Flux's notification-controller, in the background: it is
// somebody else's, and nothing waits for it. Events that it doesn't take are lost to it;
// they are in the cluster all the same.
type notifier struct {
	url      string
	instance string
	client   *http.Client
	queue    chan fluxEvent
	// pause is the wait before the second try; it doubles with the third.
	pause time.Duration
}

// Bounds of the notifier. Flux's own controllers give one request five seconds.
const (
	notifyTimeout = 5 * time.Second
	notifyTries   = 3
	notifyPause   = time.Second
	notifyQueue   = 1000
)

// fluxEvent is an event as notification-controller takes it (fluxcd/pkg,
// apis/event/v1beta1).
type fluxEvent struct {
	InvolvedObject      corev1.ObjectReference `json:"involvedObject"`
	Severity            string                 `json:"severity"`
	Timestamp           metav1.Time            `json:"timestamp"`
	Message             string                 `json:"message"`
	Reason              string                 `json:"reason"`
	Metadata            map[string]string      `json:"metadata,omitempty"`
	ReportingController string                 `json:"reportingController"`
	ReportingInstance   string                 `json:"reportingInstance,omitempty"`
}

// newNotifier returns a notifier that posts to a URL.
func newNotifier(url string) *notifier {
	host, _ := os.Hostname() // "" is left out
	return &notifier{url: url, instance: host, client: &http.Client{Timeout: notifyTimeout}, queue: make(chan fluxEvent, notifyQueue), pause: notifyPause}
}

// tell queues an event that was written to the cluster; a nil notifier does nothing.
func (n *notifier) tell(ctx context.Context, e *eventsv1.Event) {
	if n == nil {
		return
	}
	out := fluxEvent{
		InvolvedObject: e.Regarding, Severity: "info", Timestamp: metav1.NewTime(e.EventTime.UTC()),
		Message: e.Note, Reason: e.Reason, Metadata: e.Annotations,
		ReportingController: "coppice", ReportingInstance: n.instance,
	}
	if e.Type == corev1.EventTypeWarning {
		out.Severity = "error"
	}
	select {
	case n.queue <- out:
	default:
		ctrllog.FromContext(ctx).Info("An event isn't passed on: too many wait for the address of --events-addr", "reason", e.Reason)
	}
}

// NeedLeaderElection is true: who reconciles tells.
func (n *notifier) NeedLeaderElection() bool { return true }

// Start posts what is queued, one after another, until ctx ends.
func (n *notifier) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-n.queue:
			if err := n.send(ctx, e); err != nil && ctx.Err() == nil {
				ctrllog.FromContext(ctx).Error(err, "Pass an event on", "reason", e.Reason)
			}
		}
	}
}

func (n *notifier) send(ctx context.Context, e fluxEvent) error {
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	pause := n.pause
	for try := 1; ; try++ {
		again, err := n.post(ctx, body)
		if err == nil || !again || try == notifyTries {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		pause *= 2
	}
}

// post sends one event. again says whether a failure may pass.
func (n *notifier) post(ctx context.Context, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "coppice")
	res, err := n.client.Do(req)
	if err != nil {
		return true, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<16))
	_ = res.Body.Close()
	switch {
	case res.StatusCode < 300, res.StatusCode == http.StatusTooManyRequests:
		// 429 is its word for an event that it has had in the last minutes.
		return false, nil
	}
	return res.StatusCode >= 500, fmt.Errorf("post to %s: %s", req.URL.Host, res.Status)
}
