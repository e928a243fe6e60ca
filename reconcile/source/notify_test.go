package source

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/coppice"
)

// testNotify: every event of a source reaches notification-controller once, under the
// keys that it reads, and a server that fails doesn't hold a pass up.
func testNotify(t *testing.T, w *world) {
	got := make(chan fluxEvent, 100)
	answers := make(chan int, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e fluxEvent
		body, _ := io.ReadAll(r.Body)
		leaks(t, "a notification", string(body))
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&e); err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s, %v", r.Method, err)
		}
		select {
		case code := <-answers:
			w.WriteHeader(code)
		default:
			w.WriteHeader(http.StatusAccepted)
			got <- e
		}
	}))
	t.Cleanup(server.Close)
	p := w.place(t, "notify", func(s *coppice.NodeSource) {
		s.Annotations = map[string]string{"event.toolkit.fluxcd.io/change_request": "12", "other": "x"}
	})
	n := newNotifier(server.URL)
	n.pause = time.Millisecond
	ctx, stop := context.WithCancel(quiet(t))
	ended := make(chan error, 1)
	go func() { ended <- n.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	p.notify = n
	p.restart()
	next := func(reason string) fluxEvent {
		t.Helper()
		for limit := time.After(time.Minute); ; {
			select {
			case e := <-got:
				if e.Reason == reason {
					return e
				}
			case <-limit:
				t.Fatalf("no event %s", reason)
			}
		}
	}
	revision := p.commit(p.tree(map[string]int{"a": 100}))
	answers <- http.StatusServiceUnavailable // and again
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	e := next(reasonApplied)
	metadata := map[string]string{"coppice.dev/revision": revision, "event.toolkit.fluxcd.io/change_request": "12"}
	if diff := cmp.Diff(metadata, e.Metadata); diff != "" {
		t.Error(diff)
	}
	// Its group is what notification-controller takes from the keys of the metadata.
	if e.InvolvedObject.GroupVersionKind().Group != "coppice.dev" || e.InvolvedObject.Kind != "NodeSource" || e.InvolvedObject.Name != "fleet" || e.InvolvedObject.Namespace != "notify" || e.InvolvedObject.UID == "" ||
		e.Severity != "info" || e.Reason != reasonApplied || e.Message == "" || e.Timestamp.IsZero() || e.ReportingController != "coppice" {
		t.Errorf("%+v", e)
	}
	answers <- http.StatusTooManyRequests // it has had that one
	p.edit("a", `{"spec":{"limits":{"cpu":"5"}}}`)
	p.pass()
	answers <- http.StatusBadRequest // not again
	p.edit("a", `{"spec":{"limits":{"cpu":"6"}}}`)
	p.pass()
	p.commit(map[string]string{"pools.cue": "package cluster\n\nnodePools: x: {\n"})
	p.pass()
	if e = next(reasonInvalid); e.Severity != "error" {
		t.Errorf("%+v", e)
	}
}
