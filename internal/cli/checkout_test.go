package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"

	"github.com/coppice-dev/coppice/internal/forge"
	"github.com/coppice-dev/coppice/internal/testkit/forgeserver"
)

// TestCIJudgesWhatItSpeaksOf has the wrong things checked out. HEAD is the commit that is
// made last.
func TestCIJudgesWhatItSpeaksOf(t *testing.T) {
	gone := strings.Repeat("cd", 20)
	type commits struct{ base, head string }
	for name, tt := range map[string]struct {
		why string
		// prepare leaves what is checked out, and returns the job.
		prepare func(c *checkout, is commits) job
		options ciOptions
		// want are parts of the message of exit code 2, none if it is no error.
		want []string
		// compared is the commit that the plan compares with, if it has to be a certain one.
		compared string
	}{
		"target": {"on: pull_request_target the base is checked out", func(c *checkout, is commits) job {
			c.checkout(is.base)
			return job{system: "GitHub Actions", number: 7, head: is.head, base: is.base}
		}, ciOptions{}, []string{"BASE", "HEAD", "pull_request_target", "github.event.pull_request.head.sha"}, ""},
		"fork": {"also where nothing would be written: the job's result is a verdict too", func(c *checkout, is commits) job {
			c.checkout(is.base)
			return job{system: "GitHub Actions", number: 7, head: is.head, base: is.base, fork: true}
		}, ciOptions{}, []string{"BASE", "HEAD"}, ""},
		"shell": {"", func(c *checkout, is commits) job {
			c.checkout(is.base)
			return job{}
		}, ciOptions{number: 7, base: "main", head: "HEAD"}, []string{"BASE", "--head", "git checkout HEAD"}, ""},
		"dry run": {"", func(c *checkout, is commits) job {
			c.checkout(is.base)
			return job{}
		}, ciOptions{number: 7, base: "main", head: "HEAD", dryRun: true}, []string{"git checkout HEAD"}, ""},
		"head": {"", func(c *checkout, is commits) job {
			return job{system: "GitHub Actions", number: 7, head: is.head, base: is.base, made: gone}
		}, ciOptions{}, nil, "BASE"},
		"merge": {"what the forge made of it", func(c *checkout, is commits) job {
			made := c.commit(map[string]string{"new.cue": "package cluster\n"}, plumbing.NewHash(is.base), plumbing.NewHash(is.head))
			return job{system: "GitHub Actions", number: 7, head: is.head, base: gone, made: made}
		}, ciOptions{}, nil, "BASE"},
		"pushed merge": {"somebody pushed a merge that takes away what is wrong with the head", func(c *checkout, is commits) job {
			c.commit(map[string]string{"new.cue": "package cluster\n"}, plumbing.NewHash(is.base), plumbing.NewHash(is.head))
			return job{system: "GitHub Actions", number: 7, head: is.head, base: is.base, made: gone}
		}, ciOptions{}, []string{"HEAD"}, ""},
		"other merge": {"the forge's merge of another head", func(c *checkout, is commits) job {
			made := c.commit(map[string]string{"new.cue": "package cluster\n"}, plumbing.NewHash(is.base), plumbing.NewHash(is.base))
			return job{system: "GitLab CI", number: 7, head: is.head, base: is.base, made: made}
		}, ciOptions{}, []string{"HEAD", "pipeline"}, ""},
		"reverse": {"it comes after the head, and isn't a merge into the base", func(c *checkout, is commits) job {
			made := c.commit(map[string]string{"new.cue": "package cluster\n"}, plumbing.NewHash(is.head), plumbing.NewHash(is.base))
			return job{system: "GitLab CI", number: 7, head: is.head, base: is.base, made: made}
		}, ciOptions{}, []string{"HEAD"}, ""},
		"pipelines": {"Bitbucket merges the destination into the source", func(c *checkout, is commits) job {
			c.commit(map[string]string{"new.cue": "package cluster\n"}, plumbing.NewHash(is.head), plumbing.NewHash(is.base))
			return job{system: "Bitbucket Pipelines", number: 7, head: is.head, base: is.base[:12], mergesBase: true}
		}, ciOptions{}, nil, "BASE"},
		"shallow merge": {"its parents are known, but not what they hold", func(c *checkout, is commits) job {
			made := c.graft(gone, is.head)
			return job{system: "GitHub Actions", number: 7, head: is.head, base: gone, made: made}
		}, ciOptions{}, []string{gone, "fetch-depth: 2"}, ""},
		"shallow head": {"where it parted from the base isn't known", func(c *checkout, is commits) job {
			head := c.graft(gone)
			return job{system: "GitHub Actions", number: 7, head: head, base: is.base}
		}, ciOptions{}, []string{"BASE", "fetch-depth: 0"}, ""},
		"edited": {"", func(c *checkout, is commits) job {
			c.write("new.cue", "package cluster\n")
			return job{system: "GitHub Actions", number: 7, head: is.head, base: is.base}
		}, ciOptions{}, []string{"new.cue", "commit it"}, ""},
		"edited data": {"CUE embeds it", func(c *checkout, is commits) job {
			head := c.commit(map[string]string{"extra.cue": "@extern(embed)\npackage cluster\n\nnodePools: poola: spec: _ @embed(file=\"weight.json\")\n", "weight.json": `{"weight": 3}`})
			c.write("weight.json", `{"weight": 4}`)
			return job{system: "GitHub Actions", number: 7, head: head, base: is.base}
		}, ciOptions{}, []string{"weight.json", "commit it"}, ""},
		"other data": {"nothing embeds it", func(c *checkout, is commits) job {
			c.write("report.json", "{}")
			return job{system: "GitHub Actions", number: 7, head: is.head, base: is.base}
		}, ciOptions{}, nil, "BASE"},
		"no base": {"", func(c *checkout, is commits) job { return job{} }, ciOptions{number: 7}, []string{"--base origin/main"}, ""},
		"other number": {"the event is of another pull request", func(c *checkout, is commits) job {
			return job{system: "GitHub Actions", number: 8, head: gone, base: gone, made: gone}
		}, ciOptions{number: 7, base: "main"}, nil, "BASE"},
		"kind":    {"", func(c *checkout, is commits) job { return job{} }, ciOptions{kind: "githb"}, []string{"githb", "gitea"}, ""},
		"details": {"", func(c *checkout, is commits) job { return job{} }, ciOptions{details: "javascript:alert(1)"}, []string{"--details-url"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCheckout(t)
			var is commits
			is.base = c.commit(map[string]string{"pools.cue": pools("100", "50")})
			c.branch("change")
			is.head = c.commit(map[string]string{"pools.cue": pools("200", "50")})
			f := forgeserver.Start("github")
			defer f.Close()
			f.Parents, f.Branches["main"] = map[string]string{is.base: "", is.head: is.base}, is.base
			f.Pulls = []*forge.Pull{{Number: 7, Head: is.head, HeadRef: "change", Base: is.base, BaseRef: "main", Open: true}}
			j := tt.prepare(c, is)
			j.kind, j.api, j.repository, j.token = "github", f.API(), f.URL+"/acme/fleet", forgeserver.Token
			named := strings.NewReplacer("BASE", is.base, "HEAD", is.head)
			tt.options.dir, tt.options.head = c.dir, named.Replace(tt.options.head)
			var out, errs bytes.Buffer
			err := runCI(t.Context(), Streams{Out: &out, Err: &errs}, tt.options, j)
			if len(tt.want) == 0 {
				if err != nil || len(f.Statuses[is.head]) != 1 || len(f.Comments[7]) != 1 {
					t.Errorf("%v: %d statuses, %d comments\n%s", err, len(f.Statuses[is.head]), len(f.Comments[7]), &errs)
				}
				if want := named.Replace(tt.compared)[:12]; !strings.Contains(out.String(), "against commit `"+want) {
					t.Errorf("compared with another commit than %s:\n%s", want, &out)
				}
				return
			}
			if exit, ok := err.(*ExitError); !ok || exit.Code != ExitUsage {
				t.Fatalf("%s: %v\n%s", tt.why, err, &out)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), named.Replace(want)) {
					t.Errorf("%q doesn't say %q", err, named.Replace(want))
				}
			}
			if len(f.Calls) != 0 || out.Len() != 0 {
				t.Errorf("something was said: %v\n%s", f.Calls, &out)
			}
		})
	}
}

// TestCIQueue has the group of a merge queue checked out, which has a status and no comment.
func TestCIQueue(t *testing.T) {
	c := newCheckout(t)
	base := c.commit(map[string]string{"pools.cue": pools("100", "50")})
	group := c.commit(map[string]string{"pools.cue": pools("200", "50")})
	f := forgeserver.Start("github")
	defer f.Close()
	var out, errs bytes.Buffer
	err := runCI(t.Context(), Streams{Out: &out, Err: &errs}, ciOptions{dir: c.dir}, job{
		system: "GitHub Actions", kind: "github", api: f.API(), repository: f.URL + "/acme/fleet", token: forgeserver.Token, queue: true, head: group, base: base,
	})
	if err != nil || len(f.Statuses[group]) != 1 || len(f.Comments) != 0 {
		t.Errorf("%v: statuses %v, comments %v\n%s", err, f.Statuses, f.Comments, &errs)
	}
}

// TestCIOutsideOfPullRequests says what a report rests on that nobody gets but who runs it.
func TestCIOutsideOfPullRequests(t *testing.T) {
	c := newCheckout(t)
	c.commit(map[string]string{"pools.cue": pools("100", "50")})
	c.write("more.cue", "package cluster\n")
	report := func(o ciOptions) string {
		var out, errs bytes.Buffer
		o.dir = c.dir
		if err := runCI(t.Context(), Streams{Out: &out, Err: &errs}, o, job{}); err != nil {
			t.Fatalf("%v\n%s", err, &errs)
		}
		return out.String()
	}
	alone := report(ciOptions{})
	for _, want := range []string{"**✅ Valid**: 3 objects, compared with nothing", "give `--base`", "`more.cue` isn't as the commit has it"} {
		if !strings.Contains(alone, want) {
			t.Errorf("it doesn't say %q:\n%s", want, alone)
		}
	}
	if strings.Contains(alone, "Fine to merge") {
		t.Errorf("a verdict on a merge of nothing:\n%s", alone)
	}
	c.write("more.cue", pools("1", "2", "3"))
	c.write("pools.cue", "package cluster\n")
	if said := report(ciOptions{base: "HEAD"}); !strings.Contains(said, "`more.cue` isn't as the commit has it") || strings.Contains(said, "compared with nothing") {
		t.Error(said)
	}
}

func (c *checkout) checkout(hash string) {
	c.t.Helper()
	tree, err := c.repo.Worktree()
	if err == nil {
		err = tree.Checkout(&gogit.CheckoutOptions{Hash: plumbing.NewHash(hash)})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *checkout) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// graft makes a commit of what is checked out, with parents that needn't be there, and
// checks it out.
func (c *checkout) graft(parents ...string) string {
	c.t.Helper()
	head, err := c.repo.Head()
	if err != nil {
		c.t.Fatal(err)
	}
	commit, err := c.repo.CommitObject(head.Hash())
	if err != nil {
		c.t.Fatal(err)
	}
	commit.ParentHashes = nil
	for _, p := range parents {
		commit.ParentHashes = append(commit.ParentHashes, plumbing.NewHash(p))
	}
	raw := c.repo.Storer.NewEncodedObject()
	if err := commit.Encode(raw); err != nil {
		c.t.Fatal(err)
	}
	hash, err := c.repo.Storer.SetEncodedObject(raw)
	if err == nil {
		err = c.repo.Storer.SetReference(plumbing.NewHashReference(plumbing.HEAD, hash))
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return hash.String()
}
