package reconcile_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/reconcile"
	"github.com/coppice-dev/coppice/reconcile/source"
	capi "github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// fleetTree declares a pool whose machines carry a label.
func fleetTree(team, cpu string) map[string][]byte {
	return map[string][]byte{"pools.cue": []byte(fmt.Sprintf(`package cluster

nodePools: general: spec: {
	limits: cpu: %s
	disruption: {consolidationPolicy: "WhenEmpty", consolidateAfter: "Never", budgets: [{nodes: "100%%"}]}
	template: {
		metadata: labels: team: "%s"
		spec: {
			nodeClassRef: {group: "karpenter.k8s.aws", kind: "EC2NodeClass", name: "default"}
			requirements: [
				{key: "karpenter.sh/capacity-type", operator: "In", values: ["on-demand"]},
				{key: "node.kubernetes.io/instance-type", operator: "In", values: ["m5.large"]},
			]
		}
	}
}

nodeClasses: default: spec: {
	amiSelectorTerms: [{alias: "al2023@latest"}]
	role: "KarpenterNodeRole"
	subnetSelectorTerms: [{tags: "karpenter.sh/discovery": "true"}]
	securityGroupSelectorTerms: [{tags: "karpenter.sh/discovery": "true"}]
}
`, cpu, team))}
}

// eventually waits for something that isn't an object of the cluster.
func eventually(t *testing.T, what string, limit time.Duration, check func() (bool, string)) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(300 * time.Millisecond) {
		ok, state := check()
		if ok {
			t.Logf("after %4.1f s: %s", time.Since(begun).Seconds(), what)
			return
		}
		if time.Since(begun) > limit {
			t.Fatalf("%s didn't come true in %s: %s", what, limit, state)
		}
	}
}

// TestGitea goes through the life of a change on a real forge: push, pull request,
// comment, status, merge, rollout, drift, its report and its end.
func TestGitea(t *testing.T) {
	g := testkit.Gitea(t)
	const repo = "/repos/boss/fleet"
	g.Call("POST", "/user/repos", map[string]any{"name": "fleet", "private": true, "default_branch": "main"}, nil)
	g.Call("PUT", repo+"/collaborators/coppice", map[string]any{"permission": "write"}, nil)
	url := g.URL + "/boss/fleet.git"
	push := func(branch string, files map[string][]byte) string {
		t.Helper()
		out, err := git.Remote{URL: url, Auth: git.Auth{Username: "boss", Password: g.Admin}}.Push(t.Context(), git.Write{
			Branch: branch, Files: files, Message: "change\n", Author: git.Identity{Name: "Ada", Email: "ada@example.com"}, Now: time.Now(),
		}, git.Retry{})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "Gitea to know of the push", 30*time.Second, func() (bool, string) {
			var b struct{ Commit struct{ ID string } }
			g.Call("GET", repo+"/branches/"+branch, nil, &b)
			return b.Commit.ID == out.Hash, b.Commit.ID
		})
		return out.Hash
	}
	push("main", fleetTree("old", "20"))

	l := prepare(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: fleet}\n", "--boot-delay", "500ms")
	for name, data := range map[string]map[string]string{
		"git":   {"username": "coppice", "password": g.Robot},
		"robot": {"token": g.Robot},
	} {
		if err := l.kube.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, StringData: data}); err != nil {
			t.Fatal(err)
		}
	}
	second := metav1.Duration{Duration: 2 * time.Second}
	src := &capi.NodeSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fleet"},
		Spec: capi.NodeSourceSpec{
			URL: url, Ref: &capi.GitReference{Branch: "main"}, Interval: second, SecretRef: &capi.SecretReference{Name: "git"}, WriteBack: &capi.WriteBack{Adopt: &capi.Adoption{}},
			PullRequests: &capi.PullRequests{Forge: "gitea", SecretRef: capi.SecretReference{Name: "robot"}, Interval: second},
		},
	}
	if err := l.kube.Create(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	l.run(reconcile.Options{Source: source.Options{ClusterName: "demo"}})
	pool := func() *karpenter.NodePool {
		p := &karpenter.NodePool{}
		if err := l.kube.Get(t.Context(), client.ObjectKey{Name: "general"}, p); err != nil {
			return nil
		}
		return p
	}
	eventually(t, "the push to be applied", time.Minute, func() (bool, string) { return pool() != nil, "there is no pool" })
	l.deploy("web", 3, "1")
	l.running("web", 3)

	// A pull request.
	g.Call("POST", repo+"/branches", map[string]any{"new_branch_name": "team", "old_branch_name": "main"}, nil)
	head := push("team", fleetTree("new", "20"))
	var pr struct{ Number int }
	if code := g.Call("POST", repo+"/pulls", map[string]any{"title": "a new team", "head": "team", "base": "main"}, &pr); code != 201 {
		t.Fatalf("open a pull request: %d", code)
	}
	comments := func() (out []struct {
		Body string
		User struct{ Login string }
	}) {
		t.Helper()
		g.Call("GET", fmt.Sprintf("%s/issues/%d/comments", repo, pr.Number), nil, &out)
		return out
	}
	says := func(what string, texts ...string) {
		t.Helper()
		eventually(t, what, 2*time.Minute, func() (bool, string) {
			all := comments()
			if len(all) != 1 {
				return false, fmt.Sprintf("%d comments", len(all))
			}
			for _, text := range texts {
				if !strings.Contains(all[0].Body, text) {
					return false, all[0].Body
				}
			}
			return all[0].User.Login == "coppice", "it is by " + all[0].User.Login
		})
	}
	status := func(sha, want string) {
		t.Helper()
		eventually(t, "the status "+want, time.Minute, func() (bool, string) {
			var s struct {
				Statuses []struct{ Context, Status, Description string }
			}
			g.Call("GET", repo+"/commits/"+sha+"/status", nil, &s)
			for _, one := range s.Statuses {
				if one.Context == "coppice/demo/default/fleet" {
					return one.Status == want, one.Status + ": " + one.Description
				}
			}
			return false, fmt.Sprint(s)
		})
	}
	says("a comment with the plan", "Fine to merge", "0 to create, 1 to change, 0 to delete", "team: new")
	status(head, "success")

	// A mistake, and its repair, in the same comment.
	broken := fleetTree("new", "20")
	broken["pools.cue"] = []byte(strings.Replace(string(broken["pools.cue"]), "limits:", "limts:", 1))
	head = push("team", broken)
	says("a comment with the mistake", "Would be refused", "pools.cue:4:2", "limts")
	status(head, "failure")
	head = push("team", fleetTree("new", "24"))
	says("the comment without it", "Fine to merge", "cpu: 24")
	status(head, "success")

	// The merge, and what becomes of it.
	eventually(t, "the merge", 30*time.Second, func() (bool, string) {
		code := g.Call("POST", fmt.Sprintf("%s/pulls/%d/merge", repo, pr.Number), map[string]any{"Do": "merge"}, nil)
		return code == 200, fmt.Sprint(code)
	})
	says("the comment to tell of the end", "Merged", "Done.")
	var claims karpenter.NodeClaimList
	if err := l.kube.List(t.Context(), &claims); err != nil {
		t.Fatal(err)
	}
	for _, c := range claims.Items {
		if c.Labels["team"] != "new" {
			t.Errorf("the comment says that it is done, and %s is as before", c.Name)
		}
	}
	l.running("web", 3)

	// Drift by hand is committed, and the report goes when it is undone.
	report := func() string {
		var file struct{ Content string }
		if g.Call("GET", repo+"/contents/drift/demo/default/fleet.yaml?ref=coppice/drift", nil, &file) != 200 {
			return ""
		}
		text, err := base64.StdEncoding.DecodeString(file.Content)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	edit := func(patch string) {
		t.Helper()
		if err := l.kube.Patch(t.Context(), pool(), client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner("kubectl-edit")); err != nil {
			t.Fatal(err)
		}
	}
	edit(`{"spec":{"limits":{"cpu":"99"}}}`)
	eventually(t, "a drift commit", time.Minute, func() (bool, string) { r := report(); return strings.Contains(r, `live: "99"`), r })
	// Beside the report, a pull request would make Git say so. It goes with the drift.
	adoption := func(state string) int {
		t.Helper()
		var all []struct {
			Number int
			Head   struct{ Label string }
			User   struct{ Login string }
		}
		g.Call("GET", repo+"/pulls?state="+state+"&sort=recentupdate", nil, &all)
		for _, p := range all {
			if p.Head.Label == "coppice/adopt/demo/default/fleet" && p.User.Login == "coppice" {
				return p.Number
			}
		}
		return 0
	}
	eventually(t, "a pull request to adopt it", time.Minute, func() (bool, string) { return adoption("open") != 0, "there is none" })
	withdrawn := adoption("open")
	edit(`{"spec":{"limits":{"cpu":24}}}`)
	eventually(t, "the report to go", time.Minute, func() (bool, string) { r := report(); return r == "", r })
	eventually(t, "the pull request to go", time.Minute, func() (bool, string) {
		n := adoption("open")
		return n == 0 && adoption("closed") == withdrawn, fmt.Sprint(n)
	})

	// Merged, it is what Git says.
	edit(`{"spec":{"limits":{"cpu":"98"}}}`)
	eventually(t, "another to adopt", time.Minute, func() (bool, string) { n := adoption("open"); return n > withdrawn, fmt.Sprint(n) })
	eventually(t, "its merge", time.Minute, func() (bool, string) {
		code := g.Call("POST", fmt.Sprintf("%s/pulls/%d/merge", repo, adoption("open")), map[string]any{"Do": "merge", "delete_branch_after_merge": true}, nil)
		return code == 200, fmt.Sprint(code)
	})
	eventually(t, "the report to go with the merge", time.Minute, func() (bool, string) { r := report(); return r == "", r })
	if cpu := pool().Spec.Limits["cpu"]; cpu.String() != "98" {
		t.Errorf("the pool has %s after the merge, want 98", cpu.String())
	}
	if n := len(comments()); n != 1 {
		t.Errorf("%d comments at the end, want one", n)
	}
}
