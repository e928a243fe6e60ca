package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/forge"
	"github.com/coppice-dev/coppice/internal/testkit/forgeserver"
)

// checkout is a clone of a fleet with the branches main and change.
type checkout struct {
	t    *testing.T
	dir  string
	repo *gogit.Repository
}

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	c := &checkout{t: t, dir: t.TempDir()}
	var err error
	if c.repo, err = gogit.PlainInitWithOptions(c.dir, &gogit.PlainInitOptions{InitOptions: gogit.InitOptions{DefaultBranch: "refs/heads/main"}}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *checkout) commit(files map[string]string, parents ...plumbing.Hash) string {
	c.t.Helper()
	tree, err := c.repo.Worktree()
	if err != nil {
		c.t.Fatal(err)
	}
	for name, text := range files {
		file := filepath.Join(c.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			c.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			c.t.Fatal(err)
		}
		if _, err := tree.Add(name); err != nil {
			c.t.Fatal(err)
		}
	}
	who := &object.Signature{Name: "Ada", Email: "ada@example.com", When: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)}
	hash, err := tree.Commit("change", &gogit.CommitOptions{Author: who, Parents: parents})
	if err != nil {
		c.t.Fatal(err)
	}
	return hash.String()
}

func (c *checkout) branch(name string) {
	c.t.Helper()
	tree, err := c.repo.Worktree()
	if err == nil {
		err = tree.Checkout(&gogit.CheckoutOptions{Branch: plumbing.NewBranchReferenceName(name), Create: true})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// pools is a cluster's package with a pool of each limit of CPUs, and their class.
func pools(cpus ...string) string {
	var b strings.Builder
	b.WriteString("package cluster\n")
	for i, cpu := range cpus {
		b.WriteString("\nnodePools: pool" + string(rune('a'+i)) + `: spec: {
	limits: cpu: ` + cpu + `
	template: spec: {
		nodeClassRef: {group: "karpenter.k8s.aws", kind: "EC2NodeClass", name: "default"}
		requirements: [{key: "kubernetes.io/arch", operator: "In", values: ["amd64"]}]
	}
}
`)
	}
	b.WriteString(`
nodeClasses: default: spec: {
	amiSelectorTerms: [{alias: "al2023@latest"}]
	role: "nodes"
	subnetSelectorTerms: [{tags: fleet: "x"}]
	securityGroupSelectorTerms: [{tags: fleet: "x"}]
}
`)
	return b.String()
}

// TestCI runs the command as a job of a pull request of each forge.
func TestCI(t *testing.T) {
	for _, kind := range []string{"github", "gitlab", "gitea", "bitbucket"} {
		t.Run(kind, func(t *testing.T) {
			c := newCheckout(t)
			base := c.commit(map[string]string{"nodes/clusters/eu/pools.cue": pools("100", "50"), "nodes/clusters/us/pools.cue": pools("7")})
			c.branch("change")
			head := c.commit(map[string]string{"nodes/clusters/eu/pools.cue": pools("200", "50")})
			f := forgeserver.Start(kind)
			defer f.Close()
			f.Parents = map[string]string{base: "", head: base}
			f.Branches["main"] = base
			f.Pulls = []*forge.Pull{{Number: 7, Head: head, HeadRef: "change", Base: base, BaseRef: "main", Open: true}}
			summary := filepath.Join(t.TempDir(), "summary")
			j := job{
				system: "test", kind: kind, api: f.API(), repository: f.URL + "/acme/fleet", number: 7, head: head, base: base,
				token: forgeserver.Token, summary: summary, annotates: true, url: "https://ci.example/1",
			}
			run := func(o ciOptions, j job) (code int, out, err string) {
				var stdout, stderr bytes.Buffer
				o.dir = filepath.Join(c.dir, "nodes")
				if e := runCI(t.Context(), Streams{Out: &stdout, Err: &stderr}, o, j); e != nil {
					code = e.(*ExitError).Code
					stderr.WriteString(e.Error())
				}
				return code, stdout.String(), stderr.String()
			}
			comments := func() []forge.Comment { return f.Comments[7] }

			// Without a right to write, all is said in the log.
			fork := j
			fork.fork = true
			code, out, errs := run(ciOptions{}, fork)
			if code != 0 || !strings.Contains(out, "0 to create, 1 to change, 0 to delete") || !strings.Contains(errs, "fork") || len(f.Calls) != 0 {
				t.Fatalf("a fork's: exit %d, %d calls\n%s%s", code, len(f.Calls), out, errs)
			}
			if text, err := os.ReadFile(summary); err != nil || !strings.Contains(string(text), "cluster `eu`") {
				t.Errorf("summary: %s, %v", text, err)
			}
			wrong := j
			wrong.token = "expired"
			if code, _, errs := run(ciOptions{}, wrong); code != 0 || !strings.Contains(errs, "the token needs") || strings.Contains(errs, "expired") {
				t.Errorf("a token that may not: exit %d\n%s", code, errs)
			}

			// One comment, of the cluster that is changed, and one status.
			for range 2 {
				if code, _, errs := run(ciOptions{}, j); code != 0 {
					t.Fatalf("exit %d: %s", code, errs)
				}
				if len(comments()) != 1 {
					t.Fatalf("%d comments, want one", len(comments()))
				}
			}
			said := comments()[0].Body
			for _, want := range []string{"`eu`", "ci/nodes", "Fine to merge", "1 to change", "cpu: 200", "poola", "https://ci.example/1"} {
				if !strings.Contains(said, want) {
					t.Errorf("the comment doesn't say %q:\n%s", want, said)
				}
			}
			if kind == "bitbucket" && strings.Contains(said, "<details>") {
				t.Error("HTML on a forge that shows it as text")
			}
			if got := len(f.Statuses[head]); got != 1 {
				t.Errorf("%d statuses, want one: %v", got, f.Statuses[head])
			}

			// A job of each cluster has a status of its own, also if there is no comment.
			f.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "comments") || strings.Contains(r.URL.Path, "notes") {
					w.WriteHeader(http.StatusUnprocessableEntity)
					return true
				}
				return false
			}
			if code, _, errs := run(ciOptions{cluster: "eu"}, j); code != 1 || !strings.Contains(errs, "422") {
				t.Errorf("a forge that takes no comment: exit %d: %s", code, errs)
			}
			f.Fault = nil
			if got := len(f.Latest(head)); got != 2 {
				t.Errorf("%d contexts, want that of all clusters and that of one: %v", got, f.Statuses[head])
			}

			// An error has its line in the repository, and the exit code says so.
			bad := c.commit(map[string]string{"nodes/clusters/eu/pools.cue": strings.Replace(pools("200", "50"), "limits", "limts", 1)})
			f.Parents[bad], f.Pulls[0].Head, j.head = head, bad, bad
			code, out, errs = run(ciOptions{}, j)
			if code != ExitInvalid || !strings.Contains(out, "::error file=nodes/clusters/eu/pools.cue,line=4,") {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
			if said := comments()[0].Body; len(comments()) != 1 || !strings.Contains(said, "Would be refused") || !strings.Contains(said, "nodes/clusters/eu/pools.cue:4:2") {
				t.Errorf("comment: %s", said)
			}

			// A job of an older head comes too late.
			late, newer := j, strings.Repeat("ab", 20)
			late.url = "https://ci.example/2"
			f.Parents[newer], f.Pulls[0].Head = bad, newer
			if code, _, errs := run(ciOptions{}, late); code != ExitInvalid || !strings.Contains(errs, "another one than "+bad) {
				t.Errorf("exit %d: %s", code, errs)
			}
			if said := comments()[0].Body; strings.Contains(said, late.url) {
				t.Errorf("an older job has overwritten what is said about %s", newer)
			}

			// What isn't there to be read is no question of rights.
			f.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || strings.HasSuffix(r.URL.Path, "/user") {
					return false
				}
				w.WriteHeader(http.StatusNotFound)
				return true
			}
			late.url = "https://ci.example/3"
			if _, _, errs := run(ciOptions{}, late); strings.Contains(errs, "the token needs") || !strings.Contains(errs, "404") || !strings.Contains(errs, "check --repository") {
				t.Errorf("a repository that isn't there: %s", errs)
			}
			f.Fault = nil

			// What is wrong with user data is told without it.
			leak := c.commit(map[string]string{"nodes/clusters/eu/pools.cue": pools("200", "50") + "nodeClasses: default: spec: userData: \"hunter2\" & 5\n"})
			f.Parents[leak], f.Pulls[0].Head, j.head = bad, leak, leak
			code, out, errs = run(ciOptions{}, j)
			if said := comments()[0].Body; code != ExitInvalid || !strings.Contains(said, "userData") || strings.Contains(said+out+errs, "hunter2") {
				t.Errorf("exit %d\n%s%s%s", code, out, errs, said)
			}
		})
	}
}

// TestCIMerge has the merge of a pull request checked out, as GitHub Actions do.
func TestCIMerge(t *testing.T) {
	c := newCheckout(t)
	start := c.commit(map[string]string{"pools.cue": pools("100", "50")})
	c.branch("change")
	head := c.commit(map[string]string{"other.cue": "package cluster\n"})
	base := c.commit(map[string]string{"pools.cue": pools("100", "60")}, plumbing.NewHash(start))
	made := c.commit(map[string]string{"other.cue": "package cluster\n\nnodePools: poolb: spec: weight: 3\n"}, plumbing.NewHash(base), plumbing.NewHash(head))
	var out, errs bytes.Buffer
	err := runCI(t.Context(), Streams{Out: &out, Err: &errs}, ciOptions{dir: c.dir, dryRun: true}, job{system: "x", number: 1, head: head, base: start, made: made})
	if err != nil || !strings.Contains(out.String(), "+  weight: 3") || strings.Contains(out.String(), "+    cpu: 60") {
		t.Errorf("%v: what the base has got since is taken for the pull request's\n%s%s", err, &out, &errs)
	}
	// The head itself is checked out, after a second commit: its first is the pull request's too.
	tree, err := c.repo.Worktree()
	if err == nil {
		err = tree.Reset(&gogit.ResetOptions{Commit: plumbing.NewHash(head), Mode: gogit.HardReset})
	}
	if err != nil {
		t.Fatal(err)
	}
	head = c.commit(map[string]string{"pools.cue": pools("100", "70"), "other.cue": "package cluster\n\nnodePools: poolb: spec: weight: 3\n"})
	head = c.commit(map[string]string{"third.cue": "package cluster\n\nnodePools: poola: spec: weight: 4\n"})
	out.Reset()
	err = runCI(t.Context(), Streams{Out: &out, Err: &errs}, ciOptions{dir: c.dir, dryRun: true}, job{system: "x", number: 1, head: head, base: start, made: made})
	if err != nil || !strings.Contains(out.String(), "+  weight: 3") || !strings.Contains(out.String(), "+  weight: 4") {
		t.Errorf("%v: the head is checked out, and its last commit alone is looked at\n%s%s", err, &out, &errs)
	}
	err = runCI(t.Context(), Streams{Out: &out, Err: &errs}, ciOptions{dir: c.dir, base: strings.Repeat("ab", 20)}, job{})
	if exit, ok := err.(*ExitError); !ok || exit.Code != ExitUsage || !strings.Contains(exit.Error(), "fetch-depth") {
		t.Errorf("a base that isn't there: %v", err)
	}
}

func TestReadJob(t *testing.T) {
	event := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	pull := func(repo any, more map[string]any) string {
		pr := map[string]any{"number": 7, "head": map[string]any{"sha": "h", "repo": repo}, "base": map[string]any{"sha": "b"}}
		for k, v := range more {
			pr[k] = v
		}
		return event(map[string]any{"pull_request": pr})
	}
	own := map[string]any{"full_name": "acme/fleet"}
	github := map[string]string{
		"GITHUB_ACTIONS": "true", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "acme/fleet", "GITHUB_API_URL": "https://api.github.com",
		"GITHUB_RUN_ID": "99", "GITHUB_EVENT_PATH": "e", "GITHUB_TOKEN": "t", "GITHUB_SHA": "m", "GITHUB_REF": "refs/pull/7/merge", "GITHUB_STEP_SUMMARY": "s",
	}
	with := func(m map[string]string, more ...string) map[string]string {
		out := map[string]string{}
		for k, v := range m {
			out[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	gitlab := map[string]string{
		"GITLAB_CI": "true", "CI_API_V4_URL": "https://git.corp/api/v4", "CI_JOB_URL": "u", "CI_PROJECT_URL": "https://git.corp/a/b/fleet", "CI_COMMIT_SHA": "h",
		"CI_MERGE_REQUEST_IID": "7", "CI_MERGE_REQUEST_DIFF_BASE_SHA": "b", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "1", "CI_MERGE_REQUEST_PROJECT_ID": "1", "CI_JOB_TOKEN": "no",
	}
	hub := job{
		system: "GitHub Actions", kind: "github", api: "https://api.github.com", repository: "https://github.com/acme/fleet", number: 7, head: "h", base: "b", made: "m",
		token: "t", self: "github-actions[bot]", url: "https://github.com/acme/fleet/actions/runs/99", summary: "s", annotates: true,
	}
	for name, tt := range map[string]struct {
		why   string
		env   map[string]string
		event string
		want  func(*job)
	}{
		"github":    {"", github, pull(own, nil), func(*job) {}},
		"fork":      {"", github, pull(map[string]any{"full_name": "mallory/fleet"}, nil), func(j *job) { j.fork = true }},
		"gone":      {"a head without a repository is a fork's that was deleted", github, pull(nil, nil), func(j *job) { j.fork = true }},
		"own token": {"", with(github, "COPPICE_TOKEN", "mine"), pull(own, nil), func(j *job) { j.token, j.self = "mine", "" }},
		"push":      {"", with(github, "GITHUB_REF", "refs/heads/main"), event(map[string]any{"before": "p"}), func(j *job) { j.number, j.head, j.base, j.made = 0, "", "p", "" }},
		"new branch": {"", with(github, "GITHUB_REF", "refs/heads/x"), event(map[string]any{"before": strings.Repeat("0", 40)}),
			func(j *job) { j.number, j.head, j.base, j.made = 0, "", "", "" }},
		"gitea": {"it sets GitHub's variables too", with(github, "GITEA_ACTIONS", "true", "GITHUB_SERVER_URL", "https://git.corp/git", "GITHUB_REF", "refs/pull/7/head", "GITHUB_RUN_NUMBER", "3"),
			pull(own, map[string]any{"merge_base": "mb"}), func(j *job) {
				j.system, j.kind, j.api, j.repository, j.base, j.made, j.self = "Gitea Actions", "gitea", "", "https://git.corp/git/acme/fleet", "mb", "", "gitea-actions"
				j.url = "https://git.corp/git/acme/fleet/actions/runs/3"
			}},
		"gitlab": {"the job's own token may not comment", gitlab, "", func(j *job) {
			*j = job{system: "GitLab CI", kind: "gitlab", api: "https://git.corp/api/v4", repository: "https://git.corp/a/b/fleet", number: 7, head: "h", base: "b", url: "u"}
		}},
		"gitlab fork": {"", with(gitlab, "CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "2", "GITLAB_TOKEN", "t"), "", func(j *job) {
			*j = job{system: "GitLab CI", kind: "gitlab", api: "https://git.corp/api/v4", repository: "https://git.corp/a/b/fleet", number: 7, head: "h", base: "b", url: "u", fork: true, token: "t"}
		}},
		"gitlab merged": {"", with(gitlab, "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", "src", "CI_MERGE_REQUEST_TARGET_BRANCH_SHA", "tgt"), "", func(j *job) {
			*j = job{system: "GitLab CI", kind: "gitlab", api: "https://git.corp/api/v4", repository: "https://git.corp/a/b/fleet", number: 7, head: "src", base: "tgt", made: "h", url: "u"}
		}},
		"gitlab train": {"its commit may be rebased", with(gitlab, "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", "src", "CI_MERGE_REQUEST_TARGET_BRANCH_SHA", "tgt", "CI_MERGE_REQUEST_EVENT_TYPE", "merge_train"), "", func(j *job) {
			*j = job{system: "GitLab CI", kind: "gitlab", api: "https://git.corp/api/v4", repository: "https://git.corp/a/b/fleet", number: 7, base: "tgt", url: "u", silent: "the pipeline is a merge train's, whose commit holds other merge requests too"}
		}},
		"gitlab branch": {"no merge request, so nothing is spoken of", with(gitlab, "CI_MERGE_REQUEST_IID", "", "CI_MERGE_REQUEST_DIFF_BASE_SHA", "", "CI_COMMIT_BEFORE_SHA", "p"), "", func(j *job) {
			*j = job{system: "GitLab CI", kind: "gitlab", api: "https://git.corp/api/v4", repository: "https://git.corp/a/b/fleet", base: "p", url: "u"}
		}},
		"target": {"on: pull_request_target the base is checked out, and no merge", with(github, "GITHUB_REF", "refs/heads/main", "GITHUB_SHA", "b"), pull(own, nil), func(j *job) { j.made = "" }},
		"queue": {"a merge queue's group", with(github, "GITHUB_REF", "refs/heads/gh-readonly-queue/main/pr-7-x"), event(map[string]any{"merge_group": map[string]any{"head_sha": "m", "base_sha": "p"}}),
			func(j *job) { j.number, j.head, j.base, j.made, j.queue = 0, "m", "p", "", true }},
		"workflow_run": {"the default branch is checked out, whatever ran before", with(github, "GITHUB_REF", "refs/heads/main"), event(map[string]any{"workflow_run": map[string]any{"head_sha": "h"}}),
			func(j *job) { j.number, j.head, j.base, j.made = 0, "", "", "" }},
		"bitbucket": {"", map[string]string{"BITBUCKET_BUILD_NUMBER": "5", "BITBUCKET_REPO_FULL_NAME": "a/b", "BITBUCKET_COMMIT": "h", "BITBUCKET_PR_ID": "7", "BITBUCKET_PR_DESTINATION_COMMIT": "b", "BITBUCKET_TOKEN": "t"}, "",
			func(j *job) {
				*j = job{system: "Bitbucket Pipelines", kind: "bitbucket", repository: "https://bitbucket.org/a/b", number: 7, head: "h", base: "b", mergesBase: true, token: "t", url: "https://bitbucket.org/a/b/pipelines/results/5"}
			}},
		"shell": {"", map[string]string{"COPPICE_TOKEN": "t", "GITHUB_TOKEN": "other"}, "", func(j *job) { *j = job{token: "t"} }},
	} {
		want := hub
		tt.want(&want)
		got, err := readJob(func(k string) string { return tt.env[k] }, func(string) ([]byte, error) { return []byte(tt.event), nil })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(job{})); diff != "" {
			t.Errorf("%s (%s) (-want +got):\n%s", name, tt.why, diff)
		}
	}
}
