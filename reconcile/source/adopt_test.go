package source

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/forge"
	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/testkit/forgeserver"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

const adoptBranch = "coppice/adopt/demo/proposed/fleet"

// lead is where a branch of the case's repository leads, "" for nowhere.
func (p *place) lead(branch string) string {
	ref, err := p.repo().Reference(plumbing.NewBranchReferenceName(branch), true)
	if err != nil {
		return ""
	}
	return ref.Hash().String()
}

// text is a file of a branch.
func (p *place) text(branch, name string) string {
	p.t.Helper()
	c, err := p.repo().CommitObject(plumbing.NewHash(p.lead(branch)))
	if err != nil {
		p.t.Fatalf("branch %s: %v", branch, err)
	}
	f, err := c.File(name)
	if err != nil {
		p.t.Fatalf("%s of branch %s: %v", name, branch, err)
	}
	out, err := f.Contents()
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// testProposed follows pull requests that adopt what is live: there is one at a time, it
// is kept up to date, it goes with the drift, and what people have said no to isn't
// proposed again.
func testProposed(t *testing.T, w *world) {
	f := forgeserver.Start("github")
	t.Cleanup(f.Close)
	p := w.place(t, "proposed", func(s *coppice.NodeSource) {
		s.Spec.Ref = &coppice.GitReference{Branch: "main"}
		s.Spec.WriteBack = &coppice.WriteBack{Adopt: &coppice.Adoption{}}
		s.Spec.PullRequests = &coppice.PullRequests{URL: f.URL + "/acme/fleet.git", Forge: "github", API: f.API(), SecretRef: coppice.SecretReference{Name: "robot"}}
	})
	f.Tip = p.lead
	p.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "proposed", Name: "robot"}, StringData: map[string]string{"token": forgeserver.Token}})
	cpu := func(v string) { p.edit("a", `{"spec":{"limits":{"cpu":"`+v+`"}}}`) }
	// proposals are how many there were, the last one open or not.
	proposals := func(why string, n int, open bool) *forge.Pull {
		t.Helper()
		if len(f.Pulls) != n {
			t.Fatalf("%s: there are %d pull requests, want %d", why, len(f.Pulls), n)
		}
		last := f.Pulls[n-1]
		if last.Open != open {
			t.Errorf("%s: %+v", why, last)
		}
		url := ""
		if open {
			url = last.URL
		}
		if d := p.source().Status.Drift; d != nil && d.PullRequest != url {
			t.Errorf("%s: the status names %q, want %q", why, d.PullRequest, url)
		}
		for _, text := range []string{last.Title, last.Body} {
			leaks(t, "a pull request", text)
		}
		return last
	}
	tree := p.tree(map[string]int{"a": 100, "b": 7})
	p.commit(tree)
	p.pass()
	if len(f.Pulls) != 0 || p.lead(adoptBranch) != "" {
		t.Fatal("something is proposed without drift")
	}

	// Without the right to open one, it is said what to do.
	f.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			http.Error(w, `{"message":"Resource not accessible by token"}`, http.StatusForbidden)
		}
		return r.Method == http.MethodPost
	}
	cpu("5")
	class := p.class()
	if err := p.kube.Patch(t.Context(), class, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"userData":"planted-user-data-1-b"}}`)), client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	if c := want(t, p.pass(), conditionAdoptFailed, metav1.ConditionTrue, reasonAdoptFailed); !strings.Contains(c.Message, "let the token of spec.pullRequests open and close") {
		t.Error(c.Message)
	}
	f.Fault = nil
	src := p.pass()
	want(t, src, conditionAdoptFailed, "", "")
	want(t, src, conditionReportFailed, "", "")
	first := proposals("drift", 1, true)
	if first.Title != "Adopt NodePool/proposed-a spec.limits.cpu from cluster demo" || first.HeadRef != adoptBranch || first.BaseRef != "main" {
		t.Errorf("%+v", first)
	}
	for _, say := range []string{"| NodePool/proposed-a | `spec.limits.cpu` | `100` | `\"5\"` | kubectl-edit |", "user data may hold secrets"} {
		if !strings.Contains(first.Body, say) {
			t.Errorf("the pull request lacks %q:\n%s", say, first.Body)
		}
	}
	adopted := strings.Replace(tree["pools.cue"], "cpu: 100", "cpu: 5", 1)
	if got := p.text(adoptBranch, "pools.cue"); got != adopted {
		t.Errorf("the branch holds:\n%s", got)
	}
	if got := p.text(adoptBranch, "classes.cue"); got != tree["classes.cue"] {
		t.Error("another file has changed")
	}
	if n := p.commits(adoptBranch) - p.commits("main"); n != 1 {
		t.Errorf("%d commits on top of main", n)
	}
	if got := p.reports()["drift/demo/proposed/fleet.yaml"]; !strings.Contains(got, "spec.limits.cpu") {
		t.Errorf("the report isn't there beside it: %q", got)
	}

	// Another value, and another commit: the same pull request.
	cpu("6")
	p.edit("b", `{"spec":{"weight":3}}`) // Git doesn't hold it
	p.pass()
	if now := proposals("another value", 1, true); !strings.Contains(now.Body, "`\"6\"`") || !strings.Contains(p.text(adoptBranch, "pools.cue"), "cpu: 6") {
		t.Errorf("%+v", now)
	}
	before := p.lead(adoptBranch)
	tree["notes.md"] = "unrelated\n"
	p.commit(tree)
	p.pass()
	if p.lead(adoptBranch) != before {
		t.Error("an unrelated commit made another")
	}
	tree["pools.cue"] = strings.Replace(tree["pools.cue"], "limits: cpu: 7", "limits: cpu: 8", 1)
	p.commit(tree)
	p.pass()
	proposals("main moved", 1, true)
	if got := p.text(adoptBranch, "pools.cue"); !strings.Contains(got, "cpu: 6") || !strings.Contains(got, "cpu: 8") || p.commits(adoptBranch)-p.commits("main") != 1 {
		t.Errorf("the branch doesn't stand on main:\n%s", got)
	}

	// Somebody closes it: the same isn't proposed again, something else is.
	f.Pulls[0].Open = false
	p.clock.Step(adoptRelook)
	p.pass()
	proposals("closed", 1, false)
	cpu("9")
	p.pass()
	proposals("other drift", 2, true)

	// Somebody merges it, and takes it back.
	merged := p.text(adoptBranch, "pools.cue")
	f.Pulls[1].Open, f.Pulls[1].Merged = false, true
	p.clock.Step(adoptRelook)
	p.pass()
	original := tree["pools.cue"]
	tree["pools.cue"] = merged
	p.commit(tree)
	src = p.pass()
	if src.Status.Drift != nil && slices.ContainsFunc(src.Status.Drift.Items, func(i coppice.DriftItem) bool { return i.Field == "spec.limits.cpu" }) || p.cpu("a") != "9" {
		t.Errorf("merged: %+v, cpu %s", src.Status.Drift, p.cpu("a"))
	}
	tree["pools.cue"] = original
	p.commit(tree)
	p.pass()
	if p.cpu("a") != "100" {
		t.Errorf("reverted in Git, and the cluster has %s", p.cpu("a"))
	}
	cpu("9")
	p.pass()
	proposals("reverted", 2, false)

	// Undone in the cluster, it goes by itself, and may come again.
	cpu("11")
	p.pass()
	proposals("third", 3, true)
	cpu("100")
	p.pass()
	if third := proposals("undone", 3, false); !strings.Contains(third.Body, "Nothing of it is left to be adopted. Closed.") {
		t.Error(third.Body)
	}
	cpu("11")
	p.pass()
	proposals("done again", 4, true)

	// What somebody pushes to the branch stays.
	if _, err := p.remote.Push(t.Context(), git.Write{
		Branch: adoptBranch, Files: map[string][]byte{"pools.cue": []byte("// mine\n")}, Message: "mine\n",
		Author: git.Identity{Name: "Ada", Email: "ada@example.com"}, Now: p.clock.Now(),
	}, git.Retry{}); err != nil {
		t.Fatal(err)
	}
	other := p.lead(adoptBranch)
	cpu("12")
	p.pass()
	if proposals("somebody else's commit", 4, true); p.lead(adoptBranch) != other {
		t.Error("somebody else's commit is gone")
	}
	if told := p.events(reasonAdoptLeft); !slices.ContainsFunc(told, func(s string) bool { return strings.Contains(s, "has a commit of somebody else") }) {
		t.Errorf("told %q", told)
	}
}
