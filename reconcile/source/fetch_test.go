package source

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha512"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/testkit/gitserver"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// data makes a Secret of a case's namespace, or replaces it.
func (p *place) data(name string, data map[string]string) {
	p.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: name}, StringData: data}
	_ = p.kube.Delete(p.t.Context(), &corev1.Secret{ObjectMeta: s.ObjectMeta})
	p.create(s)
}

// make puts a commit with the tree of another, or with that of pools if from is
// zero, into the repository, without a client. sign may add a signature.
func (p *place) make(from plumbing.Hash, parents []plumbing.Hash, message string, sign func([]byte) string) plumbing.Hash {
	p.t.Helper()
	store := p.repo().Storer
	old, err := object.GetCommit(store, from)
	if err != nil {
		p.t.Fatal(err)
	}
	who := object.Signature{Name: "Ada", Email: "ada@example.com", When: p.clock.Now()}
	c := &object.Commit{Author: who, Committer: who, Message: message, TreeHash: old.TreeHash, ParentHashes: parents}
	if sign != nil {
		raw := &plumbing.MemoryObject{}
		if err := c.EncodeWithoutSignature(raw); err != nil {
			p.t.Fatal(err)
		}
		rd, _ := raw.Reader()
		text := make([]byte, raw.Size())
		if _, err := rd.Read(text); err != nil {
			p.t.Fatal(err)
		}
		c.PGPSignature = sign(text)
	}
	obj := store.NewEncodedObject()
	if err := c.Encode(obj); err != nil {
		p.t.Fatal(err)
	}
	hash, err := store.SetEncodedObject(obj)
	if err != nil {
		p.t.Fatal(err)
	}
	return hash
}

func (p *place) point(ref string, hash plumbing.Hash) {
	p.t.Helper()
	if err := p.repo().Storer.SetReference(plumbing.NewHashReference(plumbing.ReferenceName(ref), hash)); err != nil {
		p.t.Fatal(err)
	}
}

func hashOf(revision string) plumbing.Hash {
	return plumbing.NewHash(revision[strings.LastIndex(revision, ":")+1:])
}

// testRefs follows what a ref may name.
func testRefs(t *testing.T, w *world) {
	p := w.place(t, "refs", nil)
	var at []plumbing.Hash
	for cpu := 1; cpu <= 4; cpu++ {
		at = append(at, hashOf(p.commit(p.tree(map[string]int{"a": cpu}))))
	}
	p.point("refs/tags/v1.0.0", at[0])
	p.point("refs/tags/v1.2.0", at[1])
	p.point("refs/tags/v2.0.0", at[2])
	p.point("refs/pull/7/head", at[3])
	for _, step := range []struct {
		why string
		ref *coppice.GitReference
		cpu string
		rev string
	}{
		{"a range takes the highest version in it", &coppice.GitReference{SemVer: "1.x"}, "2", "v1.2.0"},
		{"a tag beats a branch", &coppice.GitReference{Branch: "main", Tag: "v1.0.0"}, "1", "v1.0.0"},
		{"a range beats a tag", &coppice.GitReference{Tag: "v1.0.0", SemVer: ">=1"}, "3", "v2.0.0"},
		{"a name beats both", &coppice.GitReference{SemVer: ">=1", Name: "refs/pull/7/head"}, "4", "refs/pull/7/head"},
		{"a commit beats all", &coppice.GitReference{Name: "refs/pull/7/head", Commit: at[0].String()}, "1", ""},
	} {
		p.spec(func(s *coppice.NodeSource) { s.Spec.Ref = step.ref })
		src := p.pass()
		want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
		rev, _, _ := strings.Cut(src.Status.LastAppliedRevision, "@")
		if p.cpu("a") != step.cpu || step.rev != "" && rev != step.rev {
			t.Errorf("%s: applied %s with %s", step.why, src.Status.LastAppliedRevision, p.cpu("a"))
		}
	}
	p.spec(func(s *coppice.NodeSource) { s.Spec.Ref = &coppice.GitReference{SemVer: "9.x"} })
	if c := want(t, p.pass(), conditionStalled, metav1.ConditionTrue, reasonRepository); !strings.Contains(c.Message, `"9.x"`) {
		t.Error(c.Message)
	}
	p.spec(func(s *coppice.NodeSource) { s.Spec.Ref = &coppice.GitReference{SemVer: "newest"} })
	if c := want(t, p.pass(), conditionStalled, metav1.ConditionTrue, reasonRepository); !strings.Contains(c.Message, "no range of versions") {
		t.Error(c.Message)
	}
}

// testRewritten: what is live stays when history is rewritten, until somebody says
// so.
func testRewritten(t *testing.T, w *world) {
	p := w.place(t, "rewritten", nil)
	first := hashOf(p.commit(p.tree(map[string]int{"a": 1})))
	second := p.commit(p.tree(map[string]int{"a": 2}))
	p.commit(p.tree(map[string]int{"a": 3}))
	fourth := p.commit(p.tree(map[string]int{"a": 4}))
	p.point("refs/heads/main", hashOf(second))
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	p.point("refs/heads/main", hashOf(fourth))
	src := p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "4" {
		t.Errorf("two commits at once are no rewriting: %s", p.cpu("a"))
	}

	held := func(why string, head plumbing.Hash) {
		t.Helper()
		p.point("refs/heads/main", head)
		src := p.pass()
		c := want(t, src, conditionStalled, metav1.ConditionTrue, reasonRewritten)
		if !strings.Contains(c.Message, coppice.AcceptRewriteAnnotation+": "+head.String()) {
			t.Errorf("%s: %s", why, c.Message)
		}
		if p.cpu("a") != "4" || src.Status.LastAppliedRevision != fourth {
			t.Errorf("%s: a has %s, %s is applied", why, p.cpu("a"), src.Status.LastAppliedRevision)
		}
		if len(p.events(reasonRewritten)) == 0 {
			t.Errorf("%s: no event", why)
		}
	}
	held("set back", hashOf(second))
	amended := p.make(first, []plumbing.Hash{hashOf(second)}, "instead of the others\n", nil)
	held("amended", amended)
	p.edit("a", `{"spec":{"limits":{"cpu":"5"}}}`)
	if src := p.pass(); src.Status.Drift == nil {
		t.Error("drift isn't looked for while history is held")
	}
	p.edit("a", `{"spec":{"limits":{"cpu":4}}}`)

	annotate := func(value string) {
		t.Helper()
		src := p.source()
		src.SetAnnotations(map[string]string{coppice.AcceptRewriteAnnotation: value})
		if err := p.kube.Update(t.Context(), src); err != nil {
			t.Fatal(err)
		}
	}
	annotate(second[strings.LastIndex(second, ":")+1:])
	held("another commit was accepted", amended)
	annotate(amended.String())
	src = p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "1" || hashOf(src.Status.LastAppliedRevision) != amended {
		t.Errorf("an accepted commit isn't taken: %s", p.cpu("a"))
	}

	p.spec(func(s *coppice.NodeSource) { s.Spec.HistoryRewrite = coppice.RewriteFollow })
	p.point("refs/heads/main", hashOf(fourth))
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "4" || !strings.Contains(strings.Join(p.events(reasonRewritten), "\n"), "is follow") {
		t.Errorf("follow: %s, %v", p.cpu("a"), p.events(reasonRewritten))
	}
}

// pair makes an SSH key, and the private key's file.
func pair(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer, string(pem.EncodeToMemory(block))
}

// testSSH reads and reports over SSH.
func testSSH(t *testing.T, w *world) {
	host, _ := pair(t)
	other, otherFile := pair(t)
	client, file := pair(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.git.ServeSSH(ln, gitserver.SSHConfig{HostKeys: []ssh.Signer{host}, Authorized: []ssh.PublicKey{client.PublicKey()}}))
	addr, port, _ := net.SplitHostPort(ln.Addr().String())
	known := func(key ssh.Signer) string {
		return fmt.Sprintf("[%s]:%s %s", addr, port, ssh.MarshalAuthorizedKey(key.PublicKey()))
	}
	p := w.place(t, "overssh", func(s *coppice.NodeSource) {
		s.Spec.URL, s.Spec.SecretRef = "ssh://git@"+ln.Addr().String()+"/overssh.git", nil
	})
	p.commit(p.tree(map[string]int{"a": 1}))
	step := func(why string, data map[string]string, reason, say string) {
		t.Helper()
		p.data("ssh", data)
		src := p.pass()
		c := want(t, src, conditionStalled, metav1.ConditionTrue, reason)
		if !strings.Contains(c.Message, say) || strings.Contains(c.Message, "PRIVATE KEY") {
			t.Errorf("%s: %s", why, c.Message)
		}
	}
	if c := want(t, p.pass(), conditionStalled, metav1.ConditionTrue, reasonSecret); !strings.Contains(c.Message, "identity and known_hosts") {
		t.Error(c.Message)
	}
	p.spec(func(s *coppice.NodeSource) { s.Spec.SecretRef = &coppice.SecretReference{Name: "ssh"} })
	step("no known_hosts", map[string]string{"identity": file}, reasonSecret, "no key known_hosts")
	step("no identity", map[string]string{"known_hosts": known(host)}, reasonSecret, "no key identity")
	step("another host", map[string]string{"identity": file, "known_hosts": known(other)}, reasonAuth, ssh.FingerprintSHA256(host.PublicKey()))
	step("another key", map[string]string{"identity": otherFile, "known_hosts": known(host)}, reasonAuth, "refused the credentials")
	step("no key at all", map[string]string{"identity": "hello", "known_hosts": known(host)}, reasonSecret, "no private key")
	p.data("ssh", map[string]string{"identity": file, "known_hosts": known(host)})
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	p.edit("a", `{"spec":{"limits":{"cpu":"9"}}}`)
	if src := p.pass(); src.Status.Drift == nil || len(p.reports()) == 0 {
		t.Errorf("no report over SSH: %+v", src.Status.Conditions)
	}
}

// testVerify takes nothing that isn't signed.
func testVerify(t *testing.T, w *world) {
	ada, _ := pair(t)
	eve, _ := pair(t)
	sign := func(key ssh.Signer) func([]byte) string {
		return func(text []byte) string {
			sum := sha512.Sum512(text)
			signed := append([]byte("SSHSIG"), ssh.Marshal(struct{ Namespace, Reserved, Hash, Sum string }{"git", "", "sha512", string(sum[:])})...)
			sig, err := key.Sign(rand.Reader, signed)
			if err != nil {
				t.Fatal(err)
			}
			blob := ssh.Marshal(struct {
				Version                                   uint32
				Key, Namespace, Reserved, Hash, Signature string
			}{1, string(key.PublicKey().Marshal()), "git", "", "sha512", string(ssh.Marshal(sig))})
			return string(pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: append([]byte("SSHSIG"), blob...)}))
		}
	}
	var fetches atomic.Int64
	f := newFaulty(t, w.git.Server)
	f.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
			fetches.Add(1)
		}
		next.ServeHTTP(w, r)
	})
	p := w.place(t, "verify", func(s *coppice.NodeSource) {
		s.Spec.URL = f.url + "/verify.git"
		s.Spec.Verify = &coppice.Verification{SecretRef: coppice.SecretReference{Name: "keys"}}
	})
	bare := hashOf(p.commit(p.tree(map[string]int{"a": 1})))
	want(t, p.pass(), conditionStalled, metav1.ConditionTrue, reasonSecret)
	p.data("keys", map[string]string{"readme": "none yet"})
	if c := want(t, p.pass(), conditionStalled, metav1.ConditionTrue, reasonSecret); !strings.Contains(c.Message, "NAME.asc") {
		t.Error(c.Message)
	}
	p.data("keys", map[string]string{"ada.sshpub": string(ssh.MarshalAuthorizedKey(ada.PublicKey()))})
	src := p.pass()
	if c := want(t, src, conditionStalled, metav1.ConditionTrue, reasonVerification); !strings.Contains(c.Message, "not signed") {
		t.Error(c.Message)
	}
	want(t, src, coppice.ConditionVerified, metav1.ConditionFalse, reasonVerification)
	if p.pool("a") != nil {
		t.Fatal("an unsigned commit was applied")
	}
	before := fetches.Load()
	for range 3 {
		p.once()
	}
	if n := fetches.Load() - before; n != 0 {
		t.Errorf("an unsigned commit is fetched again %d times", n)
	}
	good := p.make(bare, []plumbing.Hash{bare}, "signed\n", sign(ada))
	p.point("refs/heads/main", good)
	src = p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	if c := want(t, src, coppice.ConditionVerified, metav1.ConditionTrue, reasonVerified); !strings.Contains(c.Message, ssh.FingerprintSHA256(ada.PublicKey())) {
		t.Error(c.Message)
	}

	p.commit(p.tree(map[string]int{"a": 2}))
	forged := p.make(hashOf(p.commit(p.tree(map[string]int{"a": 3}))), []plumbing.Hash{good}, "by eve\n", sign(eve))
	p.point("refs/heads/main", forged)
	src = p.pass()
	want(t, src, conditionStalled, metav1.ConditionTrue, reasonVerification)
	if p.cpu("a") != "1" || hashOf(src.Status.LastAppliedRevision) != good {
		t.Errorf("a commit by eve is live: %s", p.cpu("a"))
	}
	// Drift of what is live is still found, by a new process too.
	p.edit("a", `{"spec":{"limits":{"cpu":"7"}}}`)
	p.restart()
	if src = p.pass(); src.Status.Drift == nil {
		t.Error("no drift is found behind an unsigned commit")
	}
	p.edit("a", `{"spec":{"limits":{"cpu":1}}}`)
	// Whoever's key is added later is heard without another commit; whoever's is
	// taken away no longer is.
	p.data("keys", map[string]string{"eve.sshpub": string(ssh.MarshalAuthorizedKey(eve.PublicKey()))})
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "3" {
		t.Errorf("a has %s", p.cpu("a"))
	}
	p.data("keys", map[string]string{"ada.sshpub": string(ssh.MarshalAuthorizedKey(ada.PublicKey()))})
	want(t, p.pass(), conditionStalled, metav1.ConditionTrue, reasonVerification)
	p.spec(func(s *coppice.NodeSource) { s.Spec.Verify = nil })
	src = p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	want(t, src, coppice.ConditionVerified, "", "")
}

// faulty stands before the Git server and does to answers what do says.
type faulty struct {
	do  atomic.Pointer[func(w http.ResponseWriter, r *http.Request, next http.Handler)]
	url string
}

func newFaulty(t *testing.T, next http.Handler) *faulty {
	t.Helper()
	f := &faulty{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if do := f.do.Load(); do != nil {
			(*do)(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	f.url = srv.URL
	return f
}

func (f *faulty) set(do func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	if do == nil {
		f.do.Store(nil)
		return
	}
	f.do.Store(&do)
}

// testFaults: whatever the server does, what is live stays, drift is looked for,
// and the next good answer heals.
func testFaults(t *testing.T, w *world) {
	f := newFaulty(t, w.git.Server)
	p := w.place(t, "faults", func(s *coppice.NodeSource) {
		s.Spec.URL = f.url + "/faults.git"
		s.Spec.Timeout = metav1.Duration{Duration: 300 * time.Millisecond}
		s.Spec.WriteBack = nil
	})
	p.commit(p.tree(map[string]int{"a": 1}))
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	var leaked atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			leaked.Store(true)
		}
		http.Error(w, "no", http.StatusTeapot)
	}))
	defer elsewhere.Close()
	cpu := 1
	for _, step := range []struct {
		why    string
		do     func(w http.ResponseWriter, r *http.Request, next http.Handler)
		reason string
		say    string
		stuck  bool
	}{
		{"500", func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			http.Error(w, "out of order: "+r.Header.Get("Authorization"), 500)
		}, reasonFetch, "status 500", false},
		{"429", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Retry-After", "60")
			http.Error(w, "slow down", 429)
		}, reasonFetch, "status 429", false},
		{"silence", func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Second):
			}
		}, reasonFetch, "deadline", false},
		{"cut in the list", func(w http.ResponseWriter, r *http.Request, next http.Handler) { cut(w, r, next, 60) }, reasonFetch, "", false},
		{"cut in the pack", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodPost {
				cut(w, r, next, 120)
				return
			}
			next.ServeHTTP(w, r)
		}, reasonFetch, "", false},
		{"no Git", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			_, _ = w.Write([]byte("<html>Welcome</html>"))
		}, reasonFetch, "", false},
		{"elsewhere", func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			http.Redirect(w, r, elsewhere.URL+r.URL.RequestURI(), http.StatusFound)
		}, reasonRepository, "redirects to another address", true},
	} {
		cpu++
		p.commit(p.tree(map[string]int{"a": cpu}))
		before := p.cpu("a")
		f.set(step.do)
		var src *coppice.NodeSource
		for range patience {
			src = p.once()
		}
		c := want(t, src, conditionReady, metav1.ConditionFalse, step.reason)
		if _, stalled := find(src.Status.Conditions, conditionStalled); stalled != step.stuck || !strings.Contains(c.Message, step.say) {
			t.Errorf("%s: stalled is %v: %s", step.why, stalled, c.Message)
		}
		if strings.Contains(c.Message, w.git.Password) || strings.Contains(c.Message, "Basic ") {
			t.Errorf("%s: the answer's secrets are told: %s", step.why, c.Message)
		}
		if p.cpu("a") != before {
			t.Errorf("%s: what is live changed", step.why)
		}
		f.set(nil)
		for range 2 {
			src = p.once()
		}
		want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
		if got := p.cpu("a"); got != fmt.Sprint(cpu) {
			t.Errorf("%s: not healed: %s", step.why, got)
		}
	}
	if leaked.Load() {
		t.Error("credentials were sent elsewhere")
	}
}

// cut answers with so many bytes and then breaks the connection.
func cut(w http.ResponseWriter, r *http.Request, next http.Handler, bytes int) {
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Length", fmt.Sprint(rec.Body.Len()+1000))
	_, _ = w.Write(rec.Body.Bytes()[:min(bytes, rec.Body.Len())])
	if fl, ok := w.(http.Flusher); ok {
		fl.Flush()
	}
	panic(http.ErrAbortHandler)
}
