package source

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

func reqOf(o client.Object) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// testAccess: whatever a person has to mend stalls the source, says so without
// a secret in it, and is mended without a restart.
func testAccess(t *testing.T, w *world) {
	p := w.place(t, "access", func(s *coppice.NodeSource) { s.Spec.SecretRef.Name = "none" })
	p.commit(p.tree(map[string]int{"a": 1}))
	c := want(t, p.pass(), conditionStalled, metav1.ConditionTrue, reasonSecret)
	if !strings.Contains(c.Message, `no Secret "none"`) {
		t.Error(c.Message)
	}
	p.secret("none", "somebody", "hunter2-wrong")
	var through atomic.Int64
	proxy := httptest.NewServer(&httputil.ReverseProxy{Director: func(*http.Request) { through.Add(1) }})
	t.Cleanup(proxy.Close)
	for _, step := range []struct {
		why    string
		edit   func()
		reason string
		say    string
	}{
		{"wrong credentials", func() {}, reasonAuth, "check the secret"},
		{"no proxy", func() {
			p.spec(func(s *coppice.NodeSource) { s.Spec.ProxySecretRef = &coppice.SecretReference{Name: "proxy"} })
		}, reasonSecret, `no Secret "proxy"; create it with the keys address`},
		{"a proxy without an address", func() { p.secret("proxy", "u", plantedPassword) }, reasonSecret, "no key address"},
		{"a proxy", func() {
			if err := p.kube.Update(t.Context(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "access", Name: "proxy"}, StringData: map[string]string{"address": proxy.URL, "username": "u", "password": plantedPassword},
			}); err != nil {
				t.Fatal(err)
			}
		}, reasonAuth, "check the secret"},
		{"an empty secret", func() { p.secret("none", "x", "") }, reasonSecret, "no key password"},
		{"no credentials", func() { p.spec(func(s *coppice.NodeSource) { s.Spec.SecretRef = nil }) }, reasonAuth, "refused the credentials"},
		{"another repository", func() {
			p.spec(func(s *coppice.NodeSource) {
				s.Spec.SecretRef, s.Spec.URL = &coppice.SecretReference{Name: "git"}, strings.Replace(s.Spec.URL, "access", "nowhere", 1)
			})
		}, reasonRepository, "no such repository"},
		{"another branch", func() {
			p.spec(func(s *coppice.NodeSource) {
				s.Spec.URL, s.Spec.Ref = p.remote.URL, &coppice.GitReference{Branch: "nope"}
			})
		}, reasonRepository, "no such branch"},
		{"another folder", func() { p.spec(func(s *coppice.NodeSource) { s.Spec.Ref, s.Spec.Path = nil, "nope" }) }, reasonRepository, `no folder "nope"`},
	} {
		step.edit()
		src := p.pass()
		c := want(t, src, conditionReady, metav1.ConditionFalse, step.reason)
		want(t, src, conditionStalled, metav1.ConditionTrue, step.reason)
		if !strings.Contains(c.Message, step.say) {
			t.Errorf("%s: %s", step.why, c.Message)
		}
		for _, secret := range []string{"hunter2", w.git.Password} {
			if strings.Contains(c.Message, secret) || strings.Contains(strings.Join(p.events(step.reason), ""), secret) {
				t.Errorf("%s: a secret is told: %s", step.why, c.Message)
			}
		}
		if len(src.Status.History) != 0 {
			t.Errorf("%s: the history tells of a commit: %v", step.why, src.Status.History)
		}
	}
	p.spec(func(s *coppice.NodeSource) { s.Spec.Path = "" })
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	if through.Load() == 0 {
		t.Error("nothing went through the proxy")
	}
}

// testHostile: a link in the tree stalls the source with its name, wherever it
// leads, and a folder without one can still be read.
func testHostile(t *testing.T, w *world) {
	p := w.place(t, "hostile", func(s *coppice.NodeSource) { s.Spec.Path = "fleet" })
	files := map[string]string{}
	for name, text := range p.tree(map[string]int{"a": 1}) {
		files["fleet/"+name] = text
	}
	p.commit(files)
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)

	link := func(at string) {
		t.Helper()
		repo := p.repo()
		head, err := repo.Head()
		if err != nil {
			t.Fatal(err)
		}
		parent, err := repo.CommitObject(head.Hash())
		if err != nil {
			t.Fatal(err)
		}
		tree, err := parent.Tree()
		if err != nil {
			t.Fatal(err)
		}
		store := repo.Storer
		save := func(o interface {
			Encode(plumbing.EncodedObject) error
		}) plumbing.Hash {
			obj := store.NewEncodedObject()
			if err := o.Encode(obj); err != nil {
				t.Fatal(err)
			}
			hash, err := store.SetEncodedObject(obj)
			if err != nil {
				t.Fatal(err)
			}
			return hash
		}
		blob := store.NewEncodedObject()
		blob.SetType(plumbing.BlobObject)
		content, err := blob.Writer()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := content.Write([]byte("/etc/passwd")); err != nil {
			t.Fatal(err)
		}
		target, err := store.SetEncodedObject(blob)
		if err != nil {
			t.Fatal(err)
		}
		entries := slices.Clone(tree.Entries)
		entry := object.TreeEntry{Name: "z.cue", Mode: filemode.Symlink, Hash: target}
		if at == "" {
			entries = append(entries, entry)
		} else {
			sub, err := tree.Tree(at)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(entries, func(e object.TreeEntry) bool { return e.Name == at })
			entries[i].Hash = save(&object.Tree{Entries: append(slices.Clone(sub.Entries), entry)})
		}
		who := object.Signature{Name: "Eve", Email: "eve@example.com", When: p.clock.Now()}
		hash := save(&object.Commit{Author: who, Committer: who, Message: "link\n", TreeHash: save(&object.Tree{Entries: entries}), ParentHashes: []plumbing.Hash{head.Hash()}})
		if err := store.SetReference(plumbing.NewHashReference("refs/heads/main", hash)); err != nil {
			t.Fatal(err)
		}
	}
	link("")
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	link("fleet")
	src := p.pass()
	c := want(t, src, conditionStalled, metav1.ConditionTrue, reasonRepository)
	if !strings.Contains(c.Message, `"fleet/z.cue" (symbolic link)`) {
		t.Error(c.Message)
	}
	if p.cpu("a") != "1" {
		t.Errorf("a has %s", p.cpu("a"))
	}
}

// testDoubtful: a tree that took too long on a busy machine is evaluated again,
// though not at every interval.
func testDoubtful(t *testing.T, w *world) {
	p := w.place(t, "doubtful", nil)
	busy, calls := true, 0
	p.opts.Evaluate = func(ctx context.Context, tree fs.FS, cluster string) (render.Bundle, diag.List, error) {
		calls++
		if busy {
			return render.Bundle{}, diag.List{{Code: "EVAL001", Message: "the evaluation took longer than 4s"}}, nil
		}
		return w.evaluate(ctx, tree, cluster)
	}
	p.restart()
	p.commit(p.tree(map[string]int{"a": 1}))
	want(t, p.once(), conditionReady, metav1.ConditionFalse, reasonInvalid)
	before := p.source().ResourceVersion
	for range 5 {
		if src := p.once(); src.ResourceVersion != before {
			t.Error("the same failure is written again")
		}
	}
	if calls != 1 {
		t.Errorf("%d evaluations in six intervals", calls)
	}
	busy = false
	p.clock.Step(secondLook)
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)

	// What a new process can't evaluate for now settles nothing.
	p.edit("a", `{"spec":{"limits":{"cpu":"5"}}}`)
	p.pass()
	busy = true
	p.restart()
	if src := p.once(); src.Status.Drift == nil || len(p.reports()) != 1 {
		t.Errorf("drift %+v, reports %v", src.Status.Drift, p.reports())
	}
}

// testOutage: a server that is away is nobody's business until the third time,
// and hides neither what is applied nor drift.
func testOutage(t *testing.T, w *world) {
	target, err := url.Parse(w.git.URL)
	if err != nil {
		t.Fatal(err)
	}
	var down atomic.Bool
	proxy := httputil.NewSingleHostReverseProxy(target)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			http.Error(w, "out for lunch", http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	p := w.place(t, "outage", func(s *coppice.NodeSource) { s.Spec.URL = srv.URL + "/outage.git" })
	revision := p.commit(p.tree(map[string]int{"a": 1}))
	p.pass()

	down.Store(true)
	p.edit("a", `{"spec":{"limits":{"cpu":"5"}}}`)
	for try := 1; try <= 4; try++ {
		src := p.once()
		if src.Status.LastAppliedRevision != revision || src.Status.Drift == nil {
			t.Errorf("try %d: applied %s, drift %v", try, src.Status.LastAppliedRevision, src.Status.Drift)
		}
		if try < patience {
			want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
			continue
		}
		c := want(t, src, conditionReady, metav1.ConditionFalse, reasonFetch)
		want(t, src, conditionReconciling, metav1.ConditionTrue, reasonRetrying)
		want(t, src, conditionReportFailed, metav1.ConditionTrue, reasonFetch)
		if !strings.Contains(c.Message, "the server answered with status 502") {
			t.Error(c.Message)
		}
	}
	before := p.source().ResourceVersion
	if src := p.once(); src.ResourceVersion != before {
		t.Error("an outage that goes on is written again")
	}
	down.Store(false)
	src := p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	want(t, src, conditionReportFailed, "", "")
	if len(p.reports()) != 1 || src.Status.Drift.ReportCommit == "" {
		t.Errorf("reports %v, drift %+v", p.reports(), src.Status.Drift)
	}
}

// testReportFailure: a report that can't be written is told and changes nothing
// else.
func testReportFailure(t *testing.T, w *world) {
	p := w.place(t, "unreported", func(s *coppice.NodeSource) {
		s.Spec.WriteBack = &coppice.WriteBack{SecretRef: &coppice.SecretReference{Name: "writer"}}
	})
	p.commit(p.tree(map[string]int{"a": 1}))
	p.secret("writer", "x", "wrong")
	src := p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	want(t, src, conditionReportFailed, metav1.ConditionTrue, reasonAuth)
	p.spec(func(s *coppice.NodeSource) { s.Spec.WriteBack = &coppice.WriteBack{Branch: "main"} })
	src = p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	want(t, src, conditionReportFailed, metav1.ConditionTrue, reasonReportBranch)
	if n := p.commits("main"); n != 1 {
		t.Errorf("the branch that is read has %d commits", n)
	}
	p.spec(func(s *coppice.NodeSource) {
		s.Spec.WriteBack, s.Spec.Ref = &coppice.WriteBack{}, &coppice.GitReference{Name: "refs/heads/main"}
	})
	want(t, p.pass(), conditionReportFailed, "", "")
	src = p.source()
	src.Spec.WriteBack.Branch = "main"
	if err := p.kube.Update(t.Context(), src); err == nil || !strings.Contains(err.Error(), "another branch") {
		t.Errorf("the branch that is read by its full name is accepted: %v", err)
	}
}

// testSuspend: nothing happens, and nothing is taken back.
func testSuspend(t *testing.T, w *world) {
	p := w.place(t, "suspend", nil)
	p.commit(p.tree(map[string]int{"a": 1}))
	p.pass()
	p.spec(func(s *coppice.NodeSource) { s.Spec.Suspend = true })
	p.commit(p.tree(map[string]int{"a": 2}))
	src := p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "1" {
		t.Errorf("a has %s", p.cpu("a"))
	}
	p.spec(func(s *coppice.NodeSource) { s.Spec.Suspend = false })
	p.pass()
	if p.cpu("a") != "2" {
		t.Errorf("a has %s after the end of the pause", p.cpu("a"))
	}
}

// testCrash ends the process at every write to the API server in turn: whatever
// was written, the next process ends up with the same, and knows every object.
func testCrash(t *testing.T, w *world) {
	p := w.place(t, "crash", nil)
	errCrash := errors.New("crash")
	for n := 1; ; n++ {
		pools := map[string]int{"a": n, "b": n}
		if n%2 == 0 {
			pools = map[string]int{"a": n, "c": n}
		}
		revision := p.commit(p.tree(pools))
		p.restart()
		left := n
		count := func() error {
			if left--; left <= 0 {
				return errCrash
			}
			return nil
		}
		inner := p.r.client.(client.WithWatch)
		dying := interceptor.NewClient(inner, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return errors.Join(count(), c.Create(ctx, o, opts...))
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if err := count(); err != nil {
					return err
				}
				return c.Delete(ctx, o, opts...)
			},
			Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
				var all client.ApplyOptions
				all.ApplyOptions(opts)
				if len(all.DryRun) == 0 {
					if err := count(); err != nil {
						return err
					}
				}
				return c.Apply(ctx, o, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				if err := count(); err != nil {
					return err
				}
				return c.SubResource(sub).Patch(ctx, o, patch, opts...)
			},
		})
		r, err := newReconciler(dying, dying, Options{ClusterName: "demo", Clock: p.clock, Evaluate: w.evaluate})
		if err != nil {
			t.Fatal(err)
		}
		p.clock.Step(2 * interval)
		_, _ = r.Reconcile(quiet(t), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "crash", Name: "fleet"}})

		p.restart()
		src := p.pass()
		want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
		if src.Status.LastAppliedRevision != revision || len(inventory(src)) != 3 {
			t.Fatalf("crash at write %d: applied %s, inventory %v", n, src.Status.LastAppliedRevision, inventory(src))
		}
		for _, name := range []string{"a", "b", "c"} {
			_, declared := pools[name]
			if live := p.pool(name) != nil; live != declared {
				t.Fatalf("crash at write %d: pool %s is live: %v", n, name, live)
			}
		}
		if left > 0 {
			t.Logf("%d writes could each be the last", n-1)
			return
		}
	}
}
