package source

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// world is what all cases share: an API server and a Git server.
type world struct {
	env  *testkit.Env
	kube client.WithWatch
	git  *testkit.GitServer
	// evaluate is shared: to compile the CRDs takes longer than most cases.
	evaluate Evaluate
}

// place is one case's own corner of the world: a namespace, a repository, a
// NodeSource and a controller whose writes are counted.
type place struct {
	*world
	t      *testing.T
	name   string
	remote git.Remote
	clock  *clocktesting.FakeClock
	writes atomic.Int64
	opts   Options
	notify *notifier
	r      *Reconciler
}

// quiet is a test's context with a logger that shows nothing and is searched for
// secrets, down to the level debug.
func quiet(t *testing.T) context.Context {
	return ctrllog.IntoContext(t.Context(), funcr.New(func(prefix, args string) { leaks(t, "the log", prefix+args) }, funcr.Options{Verbosity: 4}))
}

// What is secret in every case: the class's user data, what kubectl keeps in
// last-applied annotations, and every password and key.
const (
	plantedUserData    = "planted-user-data-1"
	plantedLastApplied = "planted-last-applied-1"
	plantedPassword    = "planted-passphrase-1"
	plantedToken       = "planted-token-1"
)

// leaks fails if a secret is in a text that leaves the process.
func leaks(t *testing.T, where, text string) {
	t.Helper()
	for _, secret := range []string{plantedUserData, plantedLastApplied, plantedPassword, plantedToken, "hunter2", "PRIVATE KEY"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s holds %s: %s", where, secret, text)
		}
	}
}

// searched looks for secrets in all that a case has left behind: status, events,
// files and messages of commits.
func (p *place) searched() {
	p.t.Helper()
	ctx := context.Background()
	var sources coppice.NodeSourceList
	var events eventsv1.EventList
	if err := p.kube.List(ctx, &sources, client.InNamespace(p.name)); err != nil {
		p.t.Fatal(err)
	}
	if err := p.kube.List(ctx, &events, client.InNamespace(p.name)); err != nil {
		p.t.Fatal(err)
	}
	for _, o := range []any{sources.Items, events.Items} {
		text, err := json.Marshal(o)
		if err != nil {
			p.t.Fatal(err)
		}
		leaks(p.t, "the API server", string(text))
	}
	for name, text := range p.branch() {
		leaks(p.t, name, text)
	}
	if ref, err := p.repo().Reference(plumbing.NewBranchReferenceName("coppice/drift"), true); err == nil {
		log, err := p.repo().Log(&gogit.LogOptions{From: ref.Hash()})
		if err != nil {
			p.t.Fatal(err)
		}
		_ = log.ForEach(func(c *object.Commit) error { leaks(p.t, "a commit", c.Message); return nil })
	}
}

const interval = time.Minute

func (w *world) place(t *testing.T, name string, edit func(*coppice.NodeSource)) *place {
	t.Helper()
	p := &place{
		world: w, t: t, name: name,
		remote: git.Remote{URL: w.git.Repo(name), Auth: git.Auth{Username: w.git.Username, Password: w.git.Password}},
		clock:  clocktesting.NewFakeClock(time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)),
		opts:   Options{ClusterName: "demo", Evaluate: w.evaluate},
	}
	if err := w.git.Create(name); err != nil {
		t.Fatal(err)
	}
	p.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	p.secret("git", w.git.Username, w.git.Password)
	src := &coppice.NodeSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "fleet"},
		Spec: coppice.NodeSourceSpec{
			URL:       p.remote.URL,
			Interval:  metav1.Duration{Duration: interval},
			SecretRef: &coppice.SecretReference{Name: "git"},
			WriteBack: &coppice.WriteBack{},
		},
	}
	if edit != nil {
		edit(src)
	}
	p.create(src)
	p.restart()
	t.Cleanup(func() {
		p.searched()
		var pools karpenter.NodePoolList
		if err := w.kube.List(context.Background(), &pools); err == nil {
			for i := range pools.Items {
				if strings.HasPrefix(pools.Items[i].Name, name) {
					_ = w.kube.Delete(context.Background(), &pools.Items[i])
				}
			}
		}
		_ = w.kube.Delete(context.Background(), &aws.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}})
		_ = w.kube.Delete(context.Background(), src)
	})
	return p
}

func (p *place) create(o client.Object) {
	p.t.Helper()
	if err := p.kube.Create(p.t.Context(), o); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) secret(name, user, password string) {
	p.t.Helper()
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.name, Name: name},
		Data:       map[string][]byte{"username": []byte(user), "password": []byte(password)},
	}
	if err := p.kube.Update(p.t.Context(), s); err != nil {
		s.ResourceVersion = ""
		p.create(s)
	}
}

// restart begins with an empty memory, as a new process does.
func (p *place) restart() {
	p.t.Helper()
	counted := interceptor.NewClient(p.kube, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			p.writes.Add(1)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			p.writes.Add(1)
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			p.writes.Add(1)
			return c.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			p.writes.Add(1)
			return c.Patch(ctx, o, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			p.writes.Add(1)
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			var all client.ApplyOptions
			all.ApplyOptions(opts)
			if len(all.DryRun) == 0 {
				p.writes.Add(1)
			}
			return c.Apply(ctx, o, opts...)
		},
	})
	opts := p.opts
	opts.Clock = p.clock
	r, err := newReconciler(counted, counted, opts)
	if err != nil {
		p.t.Fatal(err)
	}
	r.notify = p.notify
	p.r = r
}

func (p *place) source() *coppice.NodeSource {
	p.t.Helper()
	src := &coppice.NodeSource{}
	if err := p.kube.Get(p.t.Context(), client.ObjectKey{Namespace: p.name, Name: "fleet"}, src); err != nil {
		p.t.Fatal(err)
	}
	return src
}

// spec changes the source's spec.
func (p *place) spec(edit func(*coppice.NodeSource)) {
	p.t.Helper()
	src := p.source()
	edit(src)
	if err := p.kube.Update(p.t.Context(), src); err != nil {
		p.t.Fatal(err)
	}
}

// once makes one pass, after a full interval, and returns the source.
func (p *place) once() *coppice.NodeSource {
	p.t.Helper()
	p.clock.Step(interval + interval/10)
	res, err := p.r.Reconcile(quiet(p.t), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: p.name, Name: "fleet"}})
	if err != nil {
		p.t.Fatalf("reconcile: %v", err)
	}
	src := p.source()
	if !src.Spec.Suspend && (res.RequeueAfter < soonest || res.RequeueAfter > interval+interval/10) {
		p.t.Errorf("the next pass is due in %s", res.RequeueAfter)
	}
	conform(p.t, src)
	return src
}

// pass makes a pass and then two more, of which the last comes from a new
// process: neither may write anything to the API server or to Git.
func (p *place) pass() *coppice.NodeSource {
	p.t.Helper()
	first := p.once()
	for _, when := range []string{"again", "after a restart"} {
		if when == "after a restart" {
			p.restart()
		}
		writes, commits, versions := p.writes.Load(), p.commits("coppice/drift"), p.versions()
		second := p.once()
		if n := p.writes.Load() - writes; n != 0 {
			p.t.Errorf("a pass %s wrote %d times", when, n)
		}
		if n := p.commits("coppice/drift") - commits; n != 0 {
			p.t.Errorf("a pass %s made %d commits", when, n)
		}
		if now := p.versions(); now != versions {
			p.t.Errorf("a pass %s changed what it had applied: %s, was %s", when, now, versions)
		}
		if second.ResourceVersion != first.ResourceVersion {
			p.t.Errorf("a pass %s changed the source", when)
		}
	}
	return first
}

// versions lists the resource versions of the case's pools and class.
func (p *place) versions() string {
	p.t.Helper()
	var pools karpenter.NodePoolList
	if err := p.kube.List(p.t.Context(), &pools); err != nil {
		p.t.Fatal(err)
	}
	out := p.class().ResourceVersion
	for _, o := range pools.Items {
		if strings.HasPrefix(o.Name, p.name) {
			out += " " + o.Name + "=" + o.ResourceVersion
		}
	}
	return out
}

func (p *place) class() *aws.EC2NodeClass {
	p.t.Helper()
	class := &aws.EC2NodeClass{}
	if err := p.kube.Get(p.t.Context(), client.ObjectKey{Name: p.name}, class); client.IgnoreNotFound(err) != nil {
		p.t.Fatal(err)
	}
	return class
}

// commit changes files of the branch main; an empty text removes one.
func (p *place) commit(files map[string]string) string {
	p.t.Helper()
	w := git.Write{
		Branch: "main", Files: map[string][]byte{}, Message: "change\n",
		Author: git.Identity{Name: "Ada", Email: "ada@example.com"}, Now: p.clock.Now(),
	}
	for name, text := range files {
		w.Files[name] = nil
		if text != "" {
			w.Files[name] = []byte(text)
		}
	}
	out, err := p.remote.Push(p.t.Context(), w, git.Retry{})
	if err != nil {
		p.t.Fatal(err)
	}
	return "main@sha1:" + out.Hash
}

func (p *place) repo() *gogit.Repository {
	p.t.Helper()
	repo, err := p.git.Open(p.name)
	if err != nil {
		p.t.Fatal(err)
	}
	return repo
}

// commits counts a branch's commits.
func (p *place) commits(branch string) int {
	p.t.Helper()
	ref, err := p.repo().Reference(plumbing.NewBranchReferenceName(branch), true)
	if err != nil {
		return 0
	}
	log, err := p.repo().Log(&gogit.LogOptions{From: ref.Hash()})
	if err != nil {
		p.t.Fatal(err)
	}
	n := 0
	_ = log.ForEach(func(*object.Commit) error { n++; return nil })
	return n
}

// reports returns the report branch's YAML files, as path: content.
func (p *place) reports() map[string]string {
	p.t.Helper()
	out := p.branch()
	maps.DeleteFunc(out, func(name, _ string) bool { return !strings.HasSuffix(name, ".yaml") })
	return out
}

// branch returns the report branch's files, as path: content.
func (p *place) branch() map[string]string {
	p.t.Helper()
	out := map[string]string{}
	ref, err := p.repo().Reference(plumbing.NewBranchReferenceName("coppice/drift"), true)
	if err != nil {
		return out
	}
	c, err := p.repo().CommitObject(ref.Hash())
	if err != nil {
		p.t.Fatal(err)
	}
	files, err := c.Files()
	if err != nil {
		p.t.Fatal(err)
	}
	_ = files.ForEach(func(f *object.File) error {
		out[f.Name], _ = f.Contents()
		return nil
	})
	return out
}

func (p *place) pool(name string) *karpenter.NodePool {
	p.t.Helper()
	pool := &karpenter.NodePool{}
	if err := p.kube.Get(p.t.Context(), client.ObjectKey{Name: p.name + "-" + name}, pool); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		p.t.Fatal(err)
	}
	return pool
}

// edit patches a live pool the way a person does.
func (p *place) edit(name, patch string) {
	p.t.Helper()
	pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: p.name + "-" + name}}
	var change map[string]any
	if err := json.Unmarshal([]byte(patch), &change); err != nil {
		p.t.Fatal(err)
	}
	if _, ok := change["spec"]; ok {
		// As kubectl apply does.
		if err := unstructured.SetNestedField(change, `{"token":"planted-last-applied-1"}`, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"); err != nil {
			p.t.Fatal(err)
		}
	}
	data, err := json.Marshal(change)
	if err != nil {
		p.t.Fatal(err)
	}
	patch = string(data)
	if err := p.kube.Patch(p.t.Context(), pool, client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner("kubectl-edit")); err != nil {
		p.t.Fatal(err)
	}
}

// events returns what was told for a reason, in no particular order.
func (p *place) events(reason string) []string {
	p.t.Helper()
	var list eventsv1.EventList
	if err := p.kube.List(p.t.Context(), &list, client.InNamespace(p.name)); err != nil {
		p.t.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		if e.Reason == reason {
			out = append(out, e.Note)
		}
	}
	return out
}

// tree is a CUE tree of pools with a limit each and one class, named after the
// case.
func (p *place) tree(pools map[string]int) map[string]string {
	var b strings.Builder
	b.WriteString("package cluster\n\nimport karpenter \"coppice.dev/schemas/karpenter/v1\"\n\nnodePools: [string]: karpenter.#NodePool\n")
	for _, name := range sorted(pools) {
		fmt.Fprintf(&b, `
nodePools: "%s-%s": spec: {
	limits: cpu: %d
	template: spec: {
		nodeClassRef: {group: "karpenter.k8s.aws", kind: "EC2NodeClass", name: "%s"}
		requirements: [{key: "kubernetes.io/arch", operator: "In", values: ["amd64"]}]
	}
}
`, p.name, name, pools[name], p.name)
	}
	return map[string]string{
		"cue.mod/module.cue": "module: \"example.com/fleet@v0\"\nlanguage: version: \"v0.17.0\"\n",
		"pools.cue":          b.String(),
		"classes.cue": fmt.Sprintf(`package cluster

import aws "coppice.dev/schemas/aws/v1"

nodeClasses: [string]: aws.#EC2NodeClass

nodeClasses: "%s": spec: {
	amiSelectorTerms: [{alias: "al2023@latest"}]
	role: "nodes"
	userData: "#!/bin/sh\nTOKEN=planted-user-data-1 join\n"
	subnetSelectorTerms: [{tags: fleet: "x"}]
	securityGroupSelectorTerms: [{tags: fleet: "x"}]
}
`, p.name),
	}
}

func sorted(m map[string]int) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// want fails unless a condition has a status and a reason.
func want(t *testing.T, src *coppice.NodeSource, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	t.Helper()
	c, ok := find(src.Status.Conditions, kind)
	if !ok && status == "" {
		return c
	}
	if !ok || c.Status != status || c.Reason != reason {
		t.Errorf("condition %s is %s/%s (%s), want %s/%s", kind, c.Status, c.Reason, c.Message, status, reason)
	}
	return c
}

var (
	clockText = regexp.MustCompile(`\d{2}:\d{2}:\d{2}|\d{4}-\d{2}-\d{2}`)
	portText  = regexp.MustCompile(`->|:\d{5}->`)
)

// conform holds what is true of every status.
func conform(t *testing.T, src *coppice.NodeSource) {
	t.Helper()
	list := src.Status.Conditions
	if !slices.IsSortedFunc(list, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) }) {
		t.Errorf("conditions are not sorted: %v", list)
	}
	ready, _ := find(list, conditionReady)
	reconciling, busy := find(list, conditionReconciling)
	stalled, stuck := find(list, conditionStalled)
	switch {
	case src.Spec.Suspend:
	case src.Status.ObservedGeneration != src.Generation:
		t.Errorf("observed generation is %d, want %d", src.Status.ObservedGeneration, src.Generation)
	case ready.Type == "":
		t.Error("there is no condition Ready")
	case ready.Status == metav1.ConditionTrue && stuck:
		t.Errorf("ready and stalled: %v", list)
	case busy && stuck:
		t.Errorf("reconciling and stalled: %v", list)
	case busy && reconciling.Status != metav1.ConditionTrue, stuck && stalled.Status != metav1.ConditionTrue:
		t.Errorf("a negative condition is kept while false: %v", list)
	case stuck && ready.Status != metav1.ConditionFalse:
		t.Errorf("stalled and ready is %s", ready.Status)
	}
	for _, c := range list {
		switch {
		case len(c.Message) > messageBytes:
			t.Errorf("%s has a message of %d bytes", c.Type, len(c.Message))
		case clockText.MatchString(c.Message), portText.MatchString(c.Message):
			t.Errorf("%s has a message that changes by itself: %s", c.Type, c.Message)
		case strings.Contains(c.Message, "\n"):
			t.Errorf("%s has a message of several lines: %q", c.Type, c.Message)
		case c.Message == "" || c.Reason == "":
			t.Errorf("%s says nothing: %+v", c.Type, c)
		}
	}
	if inv := src.Status.Inventory; inv != nil && !slices.IsSortedFunc(inv.Entries, func(a, b coppice.InventoryEntry) int { return strings.Compare(a.ID, b.ID) }) {
		t.Errorf("the inventory is not sorted: %v", inv.Entries)
	}
	if len(src.Status.History) > historyLength {
		t.Errorf("the history has %d entries", len(src.Status.History))
	}
}

// cpu is a live pool's limit, "" if there is none.
func (p *place) cpu(name string) string {
	p.t.Helper()
	pool := p.pool(name)
	if pool == nil {
		return ""
	}
	q := pool.Spec.Limits["cpu"]
	return q.String()
}
