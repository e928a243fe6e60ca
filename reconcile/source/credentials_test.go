package source

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-logr/logr"
	"golang.org/x/crypto/ssh"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/coppice-dev/coppice/internal/testkit/gitserver"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

func reconcileRequest(p *place) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: p.name, Name: "fleet"}}
}

// appForge is a loopback GitHub: the endpoints that make tokens of an app, and the
// real Git server behind the tokens that it made.
type appForge struct {
	t     *testing.T
	key   *rsa.PrivateKey
	next  http.Handler
	now   func() time.Time
	calls atomic.Int64

	mu     sync.Mutex
	tokens map[string]time.Time
	// scope is what the last token was asked for.
	scope string
	url   string
}

func newForge(t *testing.T, key *rsa.PrivateKey, next http.Handler, now func() time.Time) *appForge {
	f := &appForge{t: t, key: key, next: next, now: now, tokens: map[string]time.Time{}}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	f.url = srv.URL
	return f
}

func (f *appForge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	api, isAPI := strings.CutPrefix(r.URL.Path, "/api/v3")
	if !isAPI {
		_, password, _ := r.BasicAuth()
		f.mu.Lock()
		until, ok := f.tokens[password]
		f.mu.Unlock()
		if !ok || !f.now().Before(until) {
			w.Header().Set("WWW-Authenticate", `Basic realm="forge"`)
			http.Error(w, "bad credentials "+password, http.StatusUnauthorized)
			return
		}
		r.SetBasicAuth("coppice", "test-password")
		f.next.ServeHTTP(w, r)
		return
	}
	f.calls.Add(1)
	if err := f.checkJWT(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")); err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]string{"message": "A JSON web token could not be decoded: " + err.Error()})
		return
	}
	switch {
	case r.Method == http.MethodGet && api == "/users/acme/installation":
		_, _ = w.Write([]byte(`{"id": 4711}`))
	case r.Method == http.MethodPost && api == "/app/installations/4711/access_tokens":
		var ask struct{ Repositories []string }
		_ = json.NewDecoder(r.Body).Decode(&ask)
		f.mu.Lock()
		token := fmt.Sprintf("ghs_token%d", len(f.tokens)+1)
		f.tokens[token], f.scope = f.now().Add(time.Hour), strings.Join(ask.Repositories, ",")
		f.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "expires_at": f.now().Add(time.Hour)})
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"message": "Not Found"}`))
	}
}

func (f *appForge) checkJWT(jwt string) error {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return fmt.Errorf("%d parts", len(parts))
	}
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&f.key.PublicKey, crypto.SHA256, sum[:], sig); err != nil {
		return err
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return err
	}
	var claims struct {
		Iss      string
		Iat, Exp int64
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		return err
	}
	now := f.now().Unix()
	if claims.Iss != "17" || claims.Iat > now || claims.Exp <= now || claims.Exp-now > 600 {
		return fmt.Errorf("claims %+v", claims)
	}
	return nil
}

// testApp authenticates as a GitHub App, whose tokens last an hour.
func testApp(t *testing.T, w *world) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := func(k *rsa.PrivateKey) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}))
	}
	var p *place
	f := newForge(t, key, w.git.Server, func() time.Time { return p.clock.Now() })
	p = w.place(t, "app", func(s *coppice.NodeSource) {
		s.Spec.URL, s.Spec.SecretRef = f.url+"/app.git", &coppice.SecretReference{Name: "app"}
	})
	p.commit(p.tree(map[string]int{"a": 1}))
	base := map[string]string{"githubAppID": "17", "githubAppPrivateKey": text(key), "githubAppBaseURL": f.url + "/api/v3"}
	with := func(kv ...string) map[string]string {
		out := map[string]string{}
		for k, v := range base {
			out[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i]] = kv[i+1]
		}
		return out
	}
	for _, step := range []struct {
		why         string
		data        map[string]string
		reason, say string
	}{
		{"no installation", with(), reasonSecret, "exactly one of"},
		{"two installations", with("githubAppInstallationID", "1", "githubAppInstallationOwner", "acme"), reasonSecret, "exactly one of"},
		{"no key", with("githubAppInstallationID", "4711", "githubAppPrivateKey", "x"), reasonAuth, "no RSA key"},
		{"another key", with("githubAppInstallationID", "4711", "githubAppPrivateKey", text(other)), reasonAuth, "githubAppPrivateKey"},
		{"not installed", with("githubAppInstallationOwner", "nobody"), reasonAuth, "not installed there"},
		{"another host", with("githubAppInstallationID", "4711", "githubAppBaseURL", ""), reasonAuth, "tokens are for github.com"},
		{"a plain API", with("githubAppInstallationID", "4711", "githubAppBaseURL", "http://github.example.com"), reasonAuth, "https URL"},
	} {
		p.data("app", step.data)
		c := want(t, p.pass(), conditionStalled, metav1.ConditionTrue, step.reason)
		if !strings.Contains(c.Message, step.say) || strings.Contains(c.Message, "PRIVATE KEY") {
			t.Errorf("%s: %s", step.why, c.Message)
		}
	}
	p.data("app", with("githubAppInstallationOwner", "acme"))
	p.restart()
	before := f.calls.Load()
	want(t, p.once(), conditionReady, metav1.ConditionTrue, reasonApplied)
	if f.scope != "app" {
		t.Errorf("the token is good for %q", f.scope)
	}
	for range 5 {
		p.once()
	}
	if n := f.calls.Load() - before; n != 2 {
		t.Errorf("%d calls for one token, want 2", n)
	}
	p.clock.Step(time.Hour)
	p.commit(p.tree(map[string]int{"a": 2}))
	want(t, p.once(), conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "2" {
		t.Error("a new token isn't asked for when the old one has expired")
	}
	p.edit("a", `{"spec":{"limits":{"cpu":"9"}}}`)
	if p.once(); len(p.reports()) == 0 {
		t.Error("no report is pushed by the app")
	}
}

// testCertificates has a server that nobody's roots know and that wants a
// certificate.
func testCertificates(t *testing.T, w *world) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer test-password" {
			rw.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(rw, "no", http.StatusUnauthorized)
			return
		}
		w.git.ServeHTTP(rw, r)
	}))
	srv.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	// Any pair does: the server looks at its presence alone.
	private, err := x509.MarshalPKCS8PrivateKey(srv.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	p := w.place(t, "certificates", func(s *coppice.NodeSource) {
		s.Spec.URL, s.Spec.SecretRef, s.Spec.WriteBack = srv.URL+"/certificates.git", &coppice.SecretReference{Name: "tls"}, nil
	})
	p.commit(p.tree(map[string]int{"a": 1}))
	all := map[string]string{"bearerToken": "test-password", "ca.crt": ca, "tls.crt": ca, "tls.key": key}
	but := func(drop string, kv ...string) map[string]string {
		out := map[string]string{}
		for k, v := range all {
			if k != drop {
				out[k] = v
			}
		}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i]] = kv[i+1]
		}
		return out
	}
	for _, step := range []struct {
		why         string
		data        map[string]string
		reason, say string
	}{
		{"half a pair", but("tls.key"), reasonSecret, "one of tls.crt and tls.key"},
		{"no pair", but("", "tls.key", "hello"), reasonSecret, "client certificate"},
		{"no CA", but("", "ca.crt", "hello"), reasonSecret, "CA bundle"},
		{"two ways", but("", "username", "x"), reasonSecret, "bearerToken beside"},
		{"wrong token", but("", "bearerToken", "wrong-token"), reasonAuth, "refused the credentials"},
	} {
		p.data("tls", step.data)
		c := want(t, p.pass(), conditionStalled, metav1.ConditionTrue, step.reason)
		if !strings.Contains(c.Message, step.say) || strings.Contains(c.Message, "wrong-token") {
			t.Errorf("%s: %s", step.why, c.Message)
		}
	}
	for _, drop := range []string{"ca.crt", "tls.crt"} {
		data := but(drop)
		if drop == "tls.crt" {
			delete(data, "tls.key")
		}
		p.data("tls", data)
		var src *coppice.NodeSource
		for range patience {
			src = p.once()
		}
		if c := want(t, src, conditionReady, metav1.ConditionFalse, reasonFetch); !strings.Contains(c.Message, "certificate") {
			t.Errorf("without %s: %s", drop, c.Message)
		}
	}
	p.data("tls", all)
	for range 2 {
		p.once()
	}
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
}

// lines is a log that is kept.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// testSecrets plants secrets wherever one can be, has servers repeat them in every
// answer, and looks for them in all that leaves: logs, events, status and commits.
func testSecrets(t *testing.T, w *world) {
	_, identity := pair(t)
	planted := map[string]string{
		"password":   "planted-passw0rd/+",
		"token":      "planted-bearer",
		"passphrase": "planted-passphrase",
		"hook":       "planted-hook-token",
	}
	app, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	appKey := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(app)}))
	chatty := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		// What it was sent, in every form.
		_, password, _ := r.BasicAuth()
		text := "you said: " + strings.Join([]string{r.Header.Get("Authorization"), password, url.QueryEscape(password)}, " ")
		switch {
		case strings.Contains(r.URL.Path, "api"):
			rw.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(rw).Encode(map[string]string{"message": text})
		case strings.Contains(r.URL.Path, "pkt"):
			// A protocol error's text is the server's own.
			rw.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			line := "ERR " + text + "\n"
			_, _ = fmt.Fprintf(rw, "%04x%s", len(line)+4, line)
		default:
			http.Error(rw, text, http.StatusInternalServerError)
		}
	}))
	defer chatty.Close()
	var logged lines
	ctx := ctrllog.IntoContext(t.Context(), logr.FromSlogHandler(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.Level(-10)})))
	p := w.place(t, "secrets", func(s *coppice.NodeSource) {
		s.Spec.SecretRef = &coppice.SecretReference{Name: "planted"}
		s.Spec.Webhook = &coppice.Webhook{Type: "github", SecretRef: coppice.SecretReference{Name: "hook"}}
		s.Spec.Timeout = metav1.Duration{Duration: 2 * time.Second}
	})
	p.data("hook", map[string]string{"token": planted["hook"]})
	p.commit(p.tree(map[string]int{"a": 1}))
	shut, stop := dead(t, w)
	defer stop()
	for _, step := range []struct {
		url  string
		data map[string]string
	}{
		{chatty.URL + "/x.git", map[string]string{"username": "u", "password": planted["password"]}},
		{chatty.URL + "/x.git", map[string]string{"bearerToken": planted["token"]}},
		{chatty.URL + "/pkt/x.git", map[string]string{"username": "u", "password": planted["password"]}},
		{chatty.URL + "/x.git", map[string]string{"githubAppID": "1", "githubAppInstallationID": "2", "githubAppPrivateKey": appKey, "githubAppBaseURL": chatty.URL + "/api", "password": planted["password"]}},
		{shut, map[string]string{"identity": identity, "known_hosts": "example.com " + strings.Repeat("x", 20), "password": planted["passphrase"]}},
		{p.remote.URL, map[string]string{"username": "coppice", "password": w.git.Password}},
	} {
		p.spec(func(s *coppice.NodeSource) { s.Spec.URL = step.url })
		p.data("planted", step.data)
		for range patience + 1 {
			p.clock.Step(interval + interval/10)
			if _, err := p.r.Reconcile(ctx, reconcileRequest(p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.edit("a", `{"spec":{"limits":{"cpu":"9"}}}`)
	p.once()
	hook := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		newReceiver(w.kube, w.kube, p.clock).ServeHTTP(rw, r.WithContext(ctrllog.IntoContext(r.Context(), ctrllog.FromContext(ctx))))
	}))
	defer hook.Close()
	res, err := http.Post(hook.URL+"/hooks/secrets/fleet", "application/json", strings.NewReader(planted["hook"]))
	if err != nil || res.StatusCode != http.StatusUnauthorized {
		t.Fatal(res, err)
	}
	_ = res.Body.Close()

	src := p.source()
	status, err := json.Marshal(src.Status)
	if err != nil {
		t.Fatal(err)
	}
	var events eventsv1.EventList
	if err := w.kube.List(t.Context(), &events, client.InNamespace(p.name)); err != nil {
		t.Fatal(err)
	}
	told, err := json.Marshal(events.Items)
	if err != nil {
		t.Fatal(err)
	}
	if len(events.Items) < 4 || logged.all.Len() == 0 || len(p.reports()) == 0 {
		t.Fatalf("%d events, %d bytes of log and %d reports: there was nothing to look at", len(events.Items), logged.all.Len(), len(p.reports()))
	}
	exits := map[string]string{"log": logged.all.String(), "status": string(status), "events": string(told), "reports": fmt.Sprint(p.reports()), "messages": messages(t, p)}
	secrets := map[string]string{"identity": lineOf(identity), "app key": lineOf(appKey), "the server's own": w.git.Password, "a JWT": "eyJhbGci"}
	for name, text := range planted {
		secrets[name] = text
		secrets[name+", escaped"] = url.QueryEscape(text)
		secrets[name+", in base64"] = base64.StdEncoding.EncodeToString([]byte("u:" + text))
	}
	for exit, text := range exits {
		for name, secret := range secrets {
			if strings.Contains(text, secret) {
				at := strings.Index(text, secret)
				t.Errorf("%s is in the %s: …%s…", name, exit, text[max(0, at-80):min(len(text), at+80)])
			}
		}
	}
}

// lineOf is a line from inside a key's file.
func lineOf(file string) string { return strings.Split(file, "\n")[2] }

// messages are those of all commits of the report branch.
func messages(t *testing.T, p *place) string {
	t.Helper()
	iter, err := p.repo().CommitObjects()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	_ = iter.ForEach(func(c *object.Commit) error { _, err := fmt.Fprintln(&out, c); return err })
	return out.String()
}

// dead is an address of the SSH server that lets nobody in.
func dead(t *testing.T, w *world) (address string, stop func()) {
	t.Helper()
	host, _ := pair(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return "ssh://git@" + ln.Addr().String() + "/secrets.git", w.git.ServeSSH(ln, gitserver.SSHConfig{HostKeys: []ssh.Signer{host}})
}
