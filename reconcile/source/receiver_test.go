package source

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// testWebhook: a push is applied at once when the forge tells of it, and nobody
// else can tell.
func testWebhook(t *testing.T, w *world) {
	const token = "webhook-s3cret"
	p := w.place(t, "webhook", func(s *coppice.NodeSource) {
		s.Spec.Webhook = &coppice.Webhook{Type: "github", SecretRef: coppice.SecretReference{Name: "hook"}}
	})
	p.data("hook", map[string]string{"token": token})
	evaluations := 0
	p.opts.Evaluate = func(ctx context.Context, tree fs.FS, cluster string) (render.Bundle, diag.List, error) {
		evaluations++
		return w.evaluate(ctx, tree, cluster)
	}
	p.restart()
	p.commit(p.tree(map[string]int{"a": 1}))
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	r := newReceiver(w.kube, w.kube, p.clock)
	srv := httptest.NewServer(r)
	defer srv.Close()
	sum := func(key, body string) string {
		mac := hmac.New(sha256.New, []byte(key))
		_, _ = mac.Write([]byte(body))
		return hex.EncodeToString(mac.Sum(nil))
	}
	send := func(path, body string, head map[string]string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range head {
			req.Header.Set(k, v)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		return res.StatusCode, string(text)
	}
	asked := func() string { return delivered(p.source()) }
	const path = "/hooks/webhook/fleet"
	body := `{"ref":"refs/heads/main","after":"1"}`
	good := map[string]string{"X-Hub-Signature-256": "sha256=" + sum(token, body), "X-GitHub-Event": "push"}

	for name, tc := range map[string]struct {
		why, path, body string
		head            map[string]string
		want            int
	}{
		"unsigned":        {"anybody can post", path, body, nil, 401},
		"forged":          {"the secret is another", path, body, map[string]string{"X-Hub-Signature-256": "sha256=" + sum("guess", body)}, 401},
		"changed":         {"the signature is another body's", path, body + " ", good, 401},
		"another type":    {"only the type that is asked for counts", path, body, map[string]string{"X-Gitlab-Token": token, "X-Signature": "sha256=" + sum(token, body), "X-Gitea-Signature": sum(token, body)}, 401},
		"no such source":  {"nobody learns what there is", "/hooks/webhook/other", body, good, 401},
		"other namespace": {"the secret is another namespace's", "/hooks/default/fleet", body, good, 401},
		"no source":       {"the path says which source", "/hooks/webhook", body, good, 404},
		"deep path":       {"the path says nothing else", path + "/x", body, good, 404},
		"too large":       {"a body is bounded", path, strings.Repeat("x", hookBytes+1), good, 413},
		"ping":            {"a ping is no push", path, body, map[string]string{"X-Hub-Signature-256": good["X-Hub-Signature-256"], "X-GitHub-Event": "ping"}, 202},
	} {
		if code, text := send(tc.path, tc.body, tc.head); code != tc.want || strings.Contains(text, token) {
			t.Errorf("%s: %s: %d %s, want %d", name, tc.why, code, text, tc.want)
		}
	}
	if res, err := http.Get(srv.URL + path); err != nil || res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %v, %v", res, err)
	}
	for range hookSlots {
		r.slots <- struct{}{}
	}
	if code, _ := send("/elsewhere", "", nil); code != http.StatusNotFound {
		t.Errorf("a request that is none is answered by %d while deliveries are worked on", code)
	}
	if code, _ := send(path, body, good); code != http.StatusServiceUnavailable {
		t.Errorf("too many deliveries are answered by %d", code)
	}
	for range hookSlots {
		<-r.slots
	}
	if asked() != "" {
		t.Fatal("a delivery that isn't accepted asked for a pass")
	}

	p.spec(func(s *coppice.NodeSource) {
		s.Annotations = map[string]string{coppice.RequestedAtAnnotation: "by hand"}
	})
	p.commit(p.tree(map[string]int{"a": 2}))
	if code, text := send(path, body, good); code != http.StatusAccepted || !strings.Contains(text, "1 pass") {
		t.Fatalf("%d %s", code, text)
	}
	value := asked()
	if value == "" {
		t.Fatal("no pass was asked for")
	}
	// No interval has passed: it is the annotation that makes the pass due.
	if _, err := p.r.Reconcile(quiet(t), reconcileRequest(p)); err != nil {
		t.Fatal(err)
	}
	if src := p.source(); p.cpu("a") != "2" || request(src) != "by hand" || src.Status.LastHandledReconcileAt != "by hand" {
		t.Errorf("a has %s, %q is asked for and %q handled", p.cpu("a"), request(src), src.Status.LastHandledReconcileAt)
	}

	p.clock.Step(replayWindow / 2)
	if code, _ := send(path, body, good); code != http.StatusAccepted || asked() != value {
		t.Errorf("a replay is answered by %d and asks for a pass: %s", code, asked())
	}
	next := `{"ref":"refs/heads/main","after":"2"}`
	if code, _ := send(path, next, map[string]string{"X-Hub-Signature-256": "sha256=" + sum(token, next)}); code != http.StatusAccepted || asked() == value {
		t.Errorf("the next push is answered by %d and asks for none", code)
	}

	// There was no push to the branch that is read: that costs one request.
	before := evaluations
	if _, err := p.r.Reconcile(quiet(t), reconcileRequest(p)); err != nil {
		t.Fatal(err)
	}
	if src := p.source(); src.Status.LastHandledReconcileAt != "by hand" || evaluations != before || p.r.memories.of(client.ObjectKeyFromObject(src), src.UID).done.delivery != asked() {
		t.Errorf("handled %q, with %d evaluations", src.Status.LastHandledReconcileAt, evaluations-before)
	}

	for kind, head := range map[string]map[string]string{
		"gitlab":  {"X-Gitlab-Token": token},
		"gitea":   {"X-Gitea-Signature": sum(token, body)},
		"generic": {"X-Signature": "sha256=" + sum(token, body)},
		// Bitbucket's has the name of a header of GitHub's that was one of SHA-1.
		"bitbucket": {"X-Hub-Signature": "sha256=" + sum(token, body)},
	} {
		p.spec(func(s *coppice.NodeSource) { s.Spec.Webhook.Type = kind })
		p.clock.Step(2 * replayWindow)
		before := asked()
		if code, _ := send(path, body, map[string]string{"X-Gitlab-Token": token[:5], "X-Hub-Signature": "sha1=" + sum(token, body), "X-Gitea-Signature": sum("x", body), "X-Signature": sum(token, body)}); code != http.StatusUnauthorized {
			t.Errorf("%s: a forgery is answered by %d", kind, code)
		}
		if code, _ := send(path, body, head); code != http.StatusAccepted || asked() == before {
			t.Errorf("%s: a delivery is answered by %d", kind, code)
		}
	}
	p.data("hook", map[string]string{"token": ""})
	if code, _ := send(path, body, map[string]string{"X-Signature": "sha256=" + sum("", body), "X-Gitlab-Token": "", "X-Gitea-Signature": sum("", body)}); code != http.StatusUnauthorized {
		t.Errorf("an empty secret is one: %d", code)
	}
}

// TestHookServer starts and ends with its manager.
func TestHookServer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(quiet(t))
	ended := make(chan error, 1)
	go func() { ended <- (&hookServer{handler: newReceiver(nil, nil, nil)}).serve(ctx, ln) }()
	res, err := http.Post("http://"+ln.Addr().String()+"/elsewhere", "", nil)
	if err != nil || res.StatusCode != http.StatusNotFound {
		t.Errorf("%v, %v", res, err)
	}
	_ = res.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}

// TestReplayMemory holds the receiver's memory at its bound.
func TestReplayMemory(t *testing.T) {
	p := newReceiver(nil, nil, nil)
	now := metav1.Now().Time
	for i := range 3 * replayMax {
		id := sha256.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
		if p.replayed(id, now) {
			t.Fatal("a new delivery is a replay")
		}
		if !p.replayed(id, now.Add(replayWindow-1)) || len(p.seen) > replayMax {
			t.Fatalf("%d deliveries are remembered", len(p.seen))
		}
	}
}

func TestRepository(t *testing.T) {
	at := func(address string) string {
		return repository(&coppice.NodeSource{Spec: coppice.NodeSourceSpec{URL: address}})
	}
	beside := func(address string) string {
		return repository(&coppice.NodeSource{Spec: coppice.NodeSourceSpec{SourceRef: &coppice.ArtifactReference{}, PullRequests: &coppice.PullRequests{URL: address}}})
	}
	for a, b := range map[string]string{
		"https://github.com/org/fleet":         "ssh://git@github.com/org/fleet.git",
		"https://GitHub.com/org/fleet.git/":    "https://github.com/org/fleet",
		"https://git.example.com:8443/x/y.git": "ssh://git@git.example.com:2222/x/y",
	} {
		if at(a) != at(b) || at(a) != beside(b) {
			t.Errorf("%s and %s are one repository", a, b)
		}
	}
	if at("https://a/x") == at("https://b/x") || at("https://a/x") == at("https://a/y") || beside("") != "" {
		t.Error("different repositories are one")
	}
}
