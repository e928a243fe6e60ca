package pullrequest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/forge"
	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/internal/testkit/forgeserver"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// stage is a cluster, a repository and a forge before it, at one address.
type stage struct {
	t      *testing.T
	kube   client.WithWatch
	git    *testkit.GitServer
	forge  *forgeserver.Server
	remote git.Remote
	judge  *admission.Judge
	clock  *clocktesting.FakeClock
	r      *Reconciler
	url    string
}

const namespace = "default"

func newStage(t *testing.T) *stage {
	env := testkit.Sandbox(t)
	s := &stage{
		t: t, kube: testkit.Client(t, env.REST), git: testkit.Git(t, "fleet"), forge: forgeserver.Start("gitea"),
		clock: clocktesting.NewFakeClock(time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)),
	}
	t.Cleanup(s.forge.Close)
	testkit.InstallCRDs(t, s.kube)
	proxy := func(to string) http.Handler {
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		return httputil.NewSingleHostReverseProxy(u)
	}
	mux := http.NewServeMux()
	mux.Handle("/acme/", http.StripPrefix("/acme", proxy(s.git.URL)))
	mux.Handle("/api/", proxy(s.forge.URL))
	front := httptest.NewServer(mux)
	t.Cleanup(front.Close)
	s.url = front.URL + "/acme/fleet.git"
	s.remote = git.Remote{URL: s.url, Auth: git.Auth{Username: s.git.Username, Password: s.git.Password}}
	t.Cleanup(func() {
		s.forge.Lock()
		defer s.forge.Unlock()
		said, err := json.Marshal([]any{s.forge.Comments, s.forge.Statuses, s.forge.Checks, s.forge.Pulls})
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{s.git.Password, forgeserver.Token, "planted-"} {
			if bytes.Contains(said, []byte(secret)) {
				t.Errorf("a pull request tells the secret %s", secret)
			}
		}
	})
	var err error
	if s.judge, err = admission.New(schemas.CRDs()); err != nil {
		t.Fatal(err)
	}
	s.restart()
	for name, data := range map[string]map[string]string{
		"git":   {"username": s.git.Username, "password": s.git.Password},
		"forge": {"token": forgeserver.Token},
	} {
		s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: data})
	}
	s.create(&coppice.NodeSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fleet"},
		Spec: coppice.NodeSourceSpec{
			URL: s.url, Ref: &coppice.GitReference{Branch: "main"}, SecretRef: &coppice.SecretReference{Name: "git"},
			PullRequests: &coppice.PullRequests{Forge: "gitea", SecretRef: coppice.SecretReference{Name: "forge"}, Interval: metav1.Duration{Duration: time.Minute}},
		},
	})
	return s
}

// restart begins with an empty memory, as a new process does.
func (s *stage) restart() {
	r, err := newReconciler(s.kube, Options{
		ClusterName: "demo", Clock: s.clock,
		Client: forge.Client{Wait: func(context.Context, time.Duration) error { return nil }},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.r = r
}

func (s *stage) create(o client.Object) {
	s.t.Helper()
	if err := s.kube.Create(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

// pass lets the interval pass and looks at all pull requests once. It returns how many
// writes the forge saw.
func (s *stage) pass() int {
	s.t.Helper()
	s.clock.Step(2 * time.Minute)
	before := len(s.forge.Calls)
	ctx := ctrllog.IntoContext(s.t.Context(), logr.Discard())
	res, err := s.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "fleet"}})
	if err != nil || res.RequeueAfter <= 0 {
		s.t.Fatalf("reconcile: %v, again in %s", err, res.RequeueAfter)
	}
	writes := 0
	for _, c := range s.forge.Calls[before:] {
		if !strings.HasPrefix(c, "GET ") {
			writes++
		}
	}
	return writes
}

// counted counts how often each tree is evaluated from now on.
func (s *stage) counted() map[string]int {
	seen, evaluate := map[string]int{}, s.r.Evaluate
	s.r.Evaluate = func(ctx context.Context, tree fs.FS, cluster string) (render.Bundle, diag.List, error) {
		all, err := files(tree)
		if err != nil {
			s.t.Error(err)
		}
		seen[fmt.Sprintf("%s", all)]++
		return evaluate(ctx, tree, cluster)
	}
	return seen
}

// commit puts files onto a branch and tells the forge of its history.
func (s *stage) commit(branch string, files map[string]string) string {
	s.t.Helper()
	w := git.Write{
		Branch: branch, Files: map[string][]byte{}, Message: "change\n",
		Author: git.Identity{Name: "Ada", Email: "ada@example.com"}, Now: s.clock.Now(),
	}
	for name, text := range files {
		w.Files[name] = []byte(text)
	}
	parent := s.forge.Branches[branch]
	out, err := s.remote.Push(s.t.Context(), w, git.Retry{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.forge.Parents[out.Hash], s.forge.Branches[branch] = parent, out.Hash
	for _, p := range s.forge.Pulls {
		if p.HeadRef == branch && !p.Fork {
			p.Head = out.Hash
			s.ref(fmt.Sprintf("refs/pull/%d/head", p.Number), out.Hash)
		}
		if p.BaseRef == branch {
			p.Base = out.Hash
		}
	}
	return out.Hash
}

func (s *stage) ref(name, hash string) {
	s.t.Helper()
	repo, err := s.git.Open("fleet")
	if err == nil {
		err = repo.Storer.SetReference(plumbing.NewHashReference(plumbing.ReferenceName(name), plumbing.NewHash(hash)))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// open opens a pull request of a branch that begins where main is.
func (s *stage) open(n int, branch string, files map[string]string, fork bool) *forge.Pull {
	s.t.Helper()
	s.ref("refs/heads/"+branch, s.forge.Branches["main"])
	s.forge.Branches[branch] = s.forge.Branches["main"]
	head := s.commit(branch, files)
	p := &forge.Pull{Number: n, Head: head, HeadRef: branch, Base: s.forge.Branches["main"], BaseRef: "main", Open: true, Fork: fork, Updated: s.clock.Now()}
	s.forge.Pulls = append(s.forge.Pulls, p)
	s.ref(fmt.Sprintf("refs/pull/%d/head", n), head)
	return p
}

// apply makes the cluster hold what main declares, as the source's controller does.
func (s *stage) apply() {
	s.t.Helper()
	ctx := s.t.Context()
	rev, err := s.remote.Head(ctx, git.Ref{Branch: "main"})
	if err != nil {
		s.t.Fatal(err)
	}
	commit, err := s.remote.Fetch(ctx, rev)
	if err != nil {
		s.t.Fatal(err)
	}
	tree, err := commit.FS("")
	if err != nil {
		s.t.Fatal(err)
	}
	bundle, findings := render.Check(tree, "", s.judge)
	if findings.HasErrors() {
		s.t.Fatal(findings)
	}
	src := s.source()
	src.Status.Inventory = &coppice.Inventory{}
	for _, o := range bundle.Objects {
		if _, err := kube.NewApplier(s.kube).Apply(ctx, kube.Object(o.GVK, o.Value)); err != nil {
			s.t.Fatal(err)
		}
		src.Status.Inventory.Entries = append(src.Status.Inventory.Entries, kube.Entry(kube.Object(o.GVK, o.Value)))
	}
	src.Status.LastAppliedRevision, src.Status.LastAttemptedRevision = rev.String(), rev.String()
	if err := s.kube.Status().Update(ctx, src); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) source() *coppice.NodeSource {
	s.t.Helper()
	src := &coppice.NodeSource{}
	if err := s.kube.Get(s.t.Context(), client.ObjectKey{Namespace: namespace, Name: "fleet"}, src); err != nil {
		s.t.Fatal(err)
	}
	return src
}

// says returns the only comment of a pull request without its marker.
func (s *stage) says(n int) string {
	s.t.Helper()
	if got := len(s.forge.Comments[n]); got != 1 {
		s.t.Fatalf("pull request %d has %d comments, want one", n, got)
	}
	_, text, _ := strings.Cut(s.forge.Comments[n][0].Body, "\n")
	return text
}

func (s *stage) want(n int, texts ...string) {
	s.t.Helper()
	said := s.says(n)
	for _, text := range texts {
		if !strings.Contains(said, text) {
			s.t.Errorf("the comment doesn't say %q:\n%s", text, said)
		}
	}
}

// fleet is a tree of pools with a limit each, and their class.
func fleet(pools ...string) map[string]string {
	var b strings.Builder
	b.WriteString("package cluster\n")
	for _, p := range pools {
		name, cpu, _ := strings.Cut(p, "=")
		fmt.Fprintf(&b, `
nodePools: %q: spec: {
	limits: cpu: %s
	template: spec: {
		nodeClassRef: {group: "karpenter.k8s.aws", kind: "EC2NodeClass", name: "default"}
		requirements: [{key: "kubernetes.io/arch", operator: "In", values: ["amd64"]}]
	}
}
`, name, cpu)
	}
	fmt.Fprintf(&b, `
nodeClasses: default: spec: {
	userData: "TOKEN=planted-%d"
	amiSelectorTerms: [{alias: "al2023@latest"}]
	role: "nodes"
	subnetSelectorTerms: [{tags: fleet: "x"}]
	securityGroupSelectorTerms: [{tags: fleet: "x"}]
}
`, len(pools))
	return map[string]string{"pools.cue": b.String()}
}

// TestPullRequests goes from an opened pull request to its outcome, against a real API
// server, Git over HTTP and a forge.
func TestPullRequests(t *testing.T) {
	s := newStage(t)
	s.commit("main", fleet("a=100", "b=100", "c=100"))
	s.apply()

	// A first review, of which the second says nothing new, and neither does another
	// process's.
	s.open(1, "more", fleet("a=200", "b=100", "c=100"), false)
	if s.pass() == 0 {
		t.Error("nothing was written")
	}
	s.want(1, "Fine to merge", "0 to create, 1 to change, 0 to delete", "cpu: 200", "cluster `demo`, source `default/fleet`")
	if n := s.pass(); n != 0 {
		t.Errorf("a pass that found nothing new wrote %d times", n)
	}
	s.restart()
	if n := s.pass(); n != 0 {
		t.Errorf("a new process wrote %d times", n)
	}
	status := func(n int, state string) {
		t.Helper()
		all := s.forge.Latest(s.forge.Branches[map[int]string{1: "more", 2: "bad", 3: "fork", 4: "readme"}[n]])
		if len(all) != 1 || all[0]["context"] != "coppice/demo/default/fleet" || all[0]["status"] != state {
			t.Errorf("statuses of pull request %d: %v, want %s", n, all, state)
		}
	}
	status(1, "success")

	// The branch goes on, in another pool of the same file: that isn't undone.
	s.commit("main", fleet("a=100", "b=100", "c=300"))
	s.apply()
	s.pass()
	s.want(1, "0 to create, 1 to change, 0 to delete")
	if strings.Contains(s.says(1), "300") {
		t.Errorf("the pull request is said to undo what it doesn't touch:\n%s", s.says(1))
	}

	// Drift of what it touches.
	if err := s.kube.Patch(t.Context(), &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"limits":{"cpu":"150"}}}`)), client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	s.clock.Step(relook)
	s.pass()
	s.want(1, "rift", "kubectl-edit", "150")

	// A rule leaves the field to who wrote it: the change has no effect, which is said.
	rules := func(policy coppice.ConflictPolicy) {
		t.Helper()
		src := s.source()
		src.Spec.Conflicts = nil
		if policy != "" {
			src.Spec.Conflicts = []coppice.ConflictRule{{Paths: []string{"/spec/limits"}, Managers: []string{"kubectl-*"}, Policy: policy}}
		}
		if err := s.kube.Update(t.Context(), src); err != nil {
			t.Fatal(err)
		}
		s.pass()
	}
	rules(coppice.ConflictYield)
	s.want(1, "Fine to merge", "Nothing changes", "left to kubectl-edit")
	rules(coppice.ConflictFail)
	s.want(1, "Would be refused", "was written by kubectl-edit")
	status(1, "failure")
	rules("")
	status(1, "success")

	// An error is told at its line, with nothing else.
	s.open(2, "bad", map[string]string{"pools.cue": strings.Replace(fleet("a=100", "b=100", "c=300")["pools.cue"], "limits:", "limts:", 1)}, false)
	// A fork's is compared with the branch.
	s.open(3, "fork", fleet("a=100", "b=100", "c=300", "mallory=7"), true)
	// One that touches no CUE isn't spoken in, but marked.
	s.open(4, "readme", map[string]string{"other.txt": "hello"}, false)
	evaluated := s.counted()
	s.pass()
	for tree, n := range evaluated {
		if n > 1 {
			t.Errorf("one pass evaluated the same tree %d times:\n%s", n, tree)
		}
	}
	if len(evaluated) < 3 {
		t.Errorf("%d trees were evaluated, want the branch, a head and the fork's", len(evaluated))
	}
	s.want(2, "Would be refused", "1 error", "pools.cue:4:2", "limts")
	status(2, "failure")
	s.want(3, "comes from a fork", "1 to create")
	for _, secret := range []string{"150", "kubectl-edit"} {
		if strings.Contains(s.says(3), secret) {
			t.Errorf("a fork is told of the cluster: %q", secret)
		}
	}
	status(3, "success")
	status(4, "success")
	if n := len(s.forge.Comments[4]); n != 0 {
		t.Errorf("%d comments where nothing changes", n)
	}

	// Two change one pool: both are told, whichever is looked at first, and no longer when
	// one of them is closed. A new process says the same.
	s.open(6, "twin", fleet("a=201", "b=100", "c=300"), false)
	s.pass()
	s.want(1, "Pull request 6, which is open, changes `NodePool/a` too")
	s.want(6, "Pull request 1, which is open, changes `NodePool/a` too")
	s.restart()
	if n := s.pass(); n != 0 {
		t.Errorf("a new process wrote %d times", n)
	}
	s.forge.Pulls[len(s.forge.Pulls)-1].Open = false
	s.pass()
	if said := s.says(1); strings.Contains(said, "Pull request 6") {
		t.Errorf("a closed pull request is in the way:\n%s", said)
	}

	// A head that moves while it is looked at is left to the next pass.
	s.commit("bad", fleet("a=100", "b=100", "c=300", "d=1"))
	moved := s.forge.Pulls[1].Head
	s.forge.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pulls/2") {
			s.forge.Pulls[1].Head = "0000000000000000000000000000000000000000"
		}
		return false
	}
	s.pass()
	s.forge.Fault = nil
	s.want(2, "limts")
	s.forge.Pulls[1].Head = moved
	s.pass()
	s.want(2, "Fine to merge", "1 to create")

	// What can't be reviewed is marked so, and not tried again with each pass.
	s.open(5, "late", fleet("a=100", "b=100", "c=300", "e=1"), false)
	asked := 0
	s.forge.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/pulls/5") {
			asked++
			w.WriteHeader(http.StatusTeapot)
			return true
		}
		return false
	}
	s.pass()
	s.pass()
	s.forge.Fault = nil
	if all := s.forge.Latest(s.forge.Branches["late"]); asked != 1 || len(all) != 1 || all[0]["status"] != "pending" {
		t.Errorf("asked %d times; statuses %v, want one that is pending", asked, all)
	}
	s.clock.Step(relook)
	s.pass()
	s.want(5, "Fine to merge", "1 to create")

	// The forge wants us to wait.
	s.forge.Fault = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	s.clock.Step(2 * time.Minute)
	calls := len(s.forge.Calls)
	for range 2 {
		res, err := s.r.Reconcile(ctrllog.IntoContext(t.Context(), logr.Discard()), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "fleet"}})
		if err != nil || res.RequeueAfter < 30*time.Minute {
			t.Errorf("a limit of an hour is asked again after %s, %v", res.RequeueAfter, err)
		}
	}
	if n := len(s.forge.Calls) - calls; n != 1 {
		t.Errorf("%d requests within a limit, want one", n)
	}
	s.forge.Fault = nil
	s.clock.Step(time.Hour)

	s.outcome()
}

// outcome merges pull request 1 and follows it to its end.
func (s *stage) outcome() {
	t := s.t
	p := s.forge.Pulls[0]
	p.MergeCommit = s.commit("main", fleet("a=200", "b=100", "c=300"))
	s.forge.Parents[p.MergeCommit] = p.Head
	p.Open, p.Merged, p.Updated = false, true, s.clock.Now()
	s.pass()
	s.want(1, "Merged", "waits to be applied")

	src := s.source()
	src.Status.LastAttemptedRevision = "main@sha1:" + p.MergeCommit
	apimeta.SetStatusCondition(&src.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "PruneGuard", Message: "4 objects would go"})
	if err := s.kube.Status().Update(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	s.pass()
	s.want(1, "not applied", "4 objects would go")

	s.apply()
	rolled := func(status metav1.ConditionStatus, message string) {
		t.Helper()
		for _, name := range []string{"a", "b", "c"} {
			pool := &karpenter.NodePool{}
			if err := s.kube.Get(t.Context(), client.ObjectKey{Name: name}, pool); err != nil {
				t.Fatal(err)
			}
			apimeta.SetStatusCondition(&pool.Status.Conditions, metav1.Condition{
				Type: karpenter.ConditionNodeClaimsDrifted, Status: status, Reason: "X", Message: message, ObservedGeneration: pool.Generation,
			})
			if err := s.kube.Status().Update(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.pass()
	s.want(1, "**applied**", "not looked at yet")
	src = s.source()
	src.Status.Fleet = &coppice.FleetSummary{Drifted: 2, Items: []coppice.FleetItem{{Pool: "b", Reason: "NodePoolDrifted", Nodes: 2}}}
	if err := s.kube.Status().Update(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	s.r.EngineOff = true // whose pools are never looked at
	s.pass()
	s.want(1, "2 NodeClaims are not as declared", "NodePoolDrifted")
	s.r.EngineOff = false
	rolled(metav1.ConditionTrue, "3 of 12 NodeClaims are not as declared")
	s.pass()
	s.want(1, "Nodes are being replaced", "3 of 12 NodeClaims")
	rolled(metav1.ConditionFalse, "12 NodeClaims are as declared")
	s.pass()
	s.restart()
	s.pass()
	s.pass()
	s.want(1, "Done.")
	if n := s.pass(); n != 0 {
		t.Errorf("%d writes after the end", n)
	}
}
