package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/forge"
	"github.com/coppice-dev/coppice/internal/isolate"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/policies"
	"github.com/coppice-dev/coppice/reconcile/forecast"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
)

type ciOptions struct {
	dir, cluster                   string
	base, head, kind, repo, caFile string
	api, details                   string
	number                         int
	dryRun                         bool
	policies                       policyFlags
	limits                         limits
}

func newCICommand(s Streams) *cobra.Command {
	var o ciOptions
	cmd := &cobra.Command{
		Use:   "ci [DIR]",
		Short: "Check a pull request in a CI job and say in it what it would do",
		Long: `Check the tree of CUE at DIR as 'coppice vet' does, plan what it changes of the commit
that a pull request goes into, and say both in the pull request: one comment for each
cluster that is concerned, changed in place, and one commit status. No cluster is
asked.

In GitHub Actions, GitLab CI, Gitea or Forgejo Actions and Bitbucket Pipelines the
pull request is known from the job's environment; anywhere else --pull, --repository
and --base name it. What is judged is what is checked out, so that has to be the pull
request's head, or the merge that the CI system made of it, without edits. The token comes from COPPICE_TOKEN, or from GITHUB_TOKEN,
GITLAB_TOKEN, GITEA_TOKEN or BITBUCKET_TOKEN there. Without one, without a right to
write, and for pull requests of forks, the report goes to stdout alone, and findings
are annotations where the CI system reads those.

The exit code is 3 if a finding is an error, 1 if the forge couldn't be reached.`,
		Example: `  coppice ci
  coppice ci nodes --cluster prod-eu
  coppice ci --base origin/main
  COPPICE_TOKEN=... coppice ci --repository https://git.example.com/acme/fleet --forge gitea --pull 12 --base origin/main`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("coppice ci takes one DIR at most; see 'coppice ci --help'")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.dir = "."
			if len(args) == 1 {
				o.dir = args[0]
			}
			j, err := readJob(os.Getenv, os.ReadFile)
			if err != nil {
				return failed(err)
			}
			return runCI(cmd.Context(), s, o, j)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.cluster, "cluster", "", "speak about this cluster alone, the `name` of a folder of clusters/")
	f.StringVar(&o.base, "base", "", "the `commit` to compare with; by default what the pull request goes into")
	f.StringVar(&o.head, "head", "", "the `commit` that is checked, for the status; by default the pull request's, or HEAD")
	f.StringVar(&o.kind, "forge", "", "what serves the repository: "+strings.Join(forge.Kinds(), ", ")+"; by default the CI system's, or what the host's name says")
	f.StringVar(&o.repo, "repository", "", "the `URL` of the repository with the pull request")
	f.StringVar(&o.api, "api", "", "the `URL` of the forge's API, where it isn't in its usual place")
	f.StringVar(&o.caFile, "ca-file", "", "trust the certificates in this `file` too, for the forge")
	f.IntVar(&o.number, "pull", 0, "the `number` of the pull request")
	f.StringVar(&o.details, "details-url", "", "the `URL` that the comment and the status lead to; by default the job's")
	f.BoolVar(&o.dryRun, "dry-run", false, "write nothing to the forge")
	o.policies.flags(f)
	o.limits.flags(f)
	return cmd
}

// review is what a CI job has to say.
type review struct {
	options ciOptions
	job     job
	tree    localTree
	clone   clone
	// base is the commit that is compared with, "" for none.
	base string
	// bodies are what there is to say about each cluster, in order.
	bodies []forge.Body
	// findings are those of all clusters, with paths in the repository.
	findings diag.List
	// late is set when the pull request has another head than the one that was judged.
	late bool
}

func runCI(ctx context.Context, s Streams, o ciOptions, j job) error {
	if o.number != 0 && o.number != j.number {
		// What the job says is about another one, or about none.
		j.head, j.base, j.made, j.mergesBase, j.fork, j.queue, j.silent = "", "", "", false, false, false, ""
	}
	j.number, j.head, j.base = cmp.Or(o.number, j.number), cmp.Or(o.head, j.head), cmp.Or(o.base, j.base)
	j.kind, j.repository, j.api = cmp.Or(o.kind, j.kind), cmp.Or(o.repo, j.repository), cmp.Or(o.api, j.api)
	j.url = cmp.Or(o.details, j.url)
	if j.kind != "" && !slices.Contains(forge.Kinds(), j.kind) {
		return usagef("--forge %s: give one of %s", j.kind, strings.Join(forge.Kinds(), ", "))
	}
	if u, err := url.Parse(o.details); err != nil || o.details != "" && (u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
		return usagef("--details-url %q: give a URL with https", o.details)
	}
	r := &review{options: o, job: j}
	if err := r.open(); err != nil {
		return err
	}
	if err := r.judge(ctx); err != nil {
		return err
	}
	if err := r.print(s); err != nil {
		return failed(err)
	}
	sent := r.send(ctx, s)
	if r.findings.HasErrors() {
		if sent != nil {
			fmt.Fprintf(s.Err, "coppice: %v\n", sent)
		}
		return &ExitError{Code: ExitInvalid}
	}
	if sent != nil {
		return failed(sent)
	}
	return nil
}

// open finds the tree, its clone and the commits.
func (r *review) open() error {
	tree, cluster, err := clusterIn(r.options.dir, r.options.cluster, false)
	if err != nil {
		return err
	}
	r.tree, r.options.cluster = tree, cluster
	if r.clone, err = openClone(tree); err != nil {
		return failed(err)
	}
	return r.checkedOut()
}

// judge makes a body of each cluster.
func (r *review) judge(ctx context.Context) error {
	apply, err := r.options.policies.options()
	if err != nil {
		return err
	}
	bounds, err := r.options.limits.options()
	if err != nil {
		return err
	}
	here, err := render.Clusters(r.tree.fs)
	if err != nil {
		return failed(err)
	}
	clusters := slices.Clone(here)
	var before map[string]render.Result
	if r.base != "" {
		if before, err = r.before(ctx, bounds); err != nil {
			return err
		}
		for name := range before {
			if !slices.Contains(clusters, name) {
				clusters = append(clusters, name)
			}
		}
		slices.Sort(clusters)
	}
	if r.options.cluster != "" {
		clusters = []string{r.options.cluster}
	} else if len(clusters) == 0 {
		clusters = []string{""}
	}
	judge, err := admission.New(schemas.CRDs())
	if err != nil {
		return failed(err)
	}
	bounds.Policies = func() policies.Options { return apply }
	after := map[string]render.Result{}
	present := slices.DeleteFunc(slices.Clone(clusters), func(c string) bool { return c != "" && !slices.Contains(here, c) })
	if err := isolate.Each(ctx, r.tree.fs, present, bounds, inTurn(present, after)); err != nil {
		return failed(err)
	}
	for _, cluster := range clusters {
		head, there := after[cluster]
		if !there {
			head.Bundle.Cluster = cluster
		}
		b, err := r.body(head, before, judge)
		if err != nil {
			return failed(err)
		}
		r.bodies = append(r.bodies, b)
	}
	for _, b := range r.bodies {
		r.findings = append(r.findings, b.Findings...)
	}
	r.findings = r.findings.Sorted()
	return nil
}

// before evaluates the commit that is compared with.
func (r *review) before(ctx context.Context, bounds isolate.Options) (map[string]render.Result, error) {
	commit, err := r.clone.local.Commit(r.base)
	if err != nil {
		return nil, failed(err)
	}
	out := map[string]render.Result{}
	tree, err := commit.FS(r.clone.local.Path)
	if err != nil {
		// A folder that the pull request adds.
		return out, nil
	}
	clusters, err := render.Clusters(tree)
	if err != nil || len(clusters) == 0 {
		return out, nil
	}
	if c := r.options.cluster; c != "" {
		if !slices.Contains(clusters, c) {
			return out, nil
		}
		clusters = []string{c}
	}
	if err := isolate.Each(ctx, tree, clusters, bounds, inTurn(clusters, out)); err != nil {
		return nil, failed(err)
	}
	return out, nil
}

// inTurn notes results under the clusters' names, in whose order they come.
func inTurn(clusters []string, out map[string]render.Result) func(render.Result) {
	return func(x render.Result) {
		name := clusters[len(out)]
		x.Bundle.Cluster = name
		out[name] = x
	}
}

// body is what there is to say about a cluster.
func (r *review) body(head render.Result, before map[string]render.Result, judge *admission.Judge) (forge.Body, error) {
	found := append(render.Merge(head.Findings, render.Validate(head.Bundle, judge)), head.Judged...)
	var objects []map[string]any
	for _, o := range head.Bundle.Objects {
		objects = append(objects, o.Value)
	}
	found = plan.HideFindings(found, plan.UserData(objects...))
	b := forge.Body{
		Cluster: head.Bundle.Cluster, Source: r.source(), Head: r.job.head,
		Findings: render.InFolder(found, r.prefix()).Sorted(), Details: r.job.url,
	}
	if b.Findings.HasErrors() {
		return b, nil
	}
	if file := r.clone.edited; file != "" {
		b.Notes = append(b.Notes, forge.Code(file)+" isn't as the commit has it. The tree is judged as it is.")
	}
	var base *render.Bundle
	if before == nil {
		b.Notes = append(b.Notes, "No commit to compare with was found, so all objects are shown as new: give `--base`, as in `--base origin/main`.")
	} else {
		was, ok := before[b.Cluster]
		switch {
		case !ok:
			base = &render.Bundle{Cluster: b.Cluster}
		case was.Findings.HasErrors():
			b.Notes = append(b.Notes, "The commit "+forge.Code(forge.Short(r.base))+" that this goes into doesn't evaluate, so all objects are shown as new.")
		default:
			base = &was.Bundle
		}
	}
	var err error
	b.Plan, err = forecast.Static(head.Bundle, base, r.base, judge)
	return b, err
}

// source names this tree among those of the repository.
func (r *review) source() string {
	if p := r.prefix(); p != "" {
		return "ci/" + p
	}
	return "ci"
}

// prefix is the way from the repository's root to the tree.
func (r *review) prefix() string {
	if r.clone.local == nil || r.clone.local.Path == "." {
		return ""
	}
	return r.clone.local.Path
}

// concerned reports whether there is anything to say about a cluster.
func concerned(b forge.Body) bool {
	return len(b.Findings) > 0 || b.Plan == nil || !b.Plan.Empty()
}

// print writes the report to stdout, and where the CI system shows it.
func (r *review) print(s Streams) error {
	var text strings.Builder
	// Job summaries on GitHub hold a MiB; a report for a terminal doesn't need more.
	limits, said := forge.Limits{Comment: 1 << 20}, 0
	for _, b := range r.bodies {
		if !concerned(b) {
			continue
		}
		if said++; said > 1 {
			text.WriteString("\n")
		}
		text.WriteString(b.Text(limits, limits.Comment/max(1, len(r.bodies))))
	}
	if said == 0 {
		text.WriteString("No cluster is changed, and there are no findings.\n")
	}
	if _, err := fmt.Fprint(s.Out, text.String()); err != nil {
		return err
	}
	if r.job.annotates {
		if err := diag.WriteGitHub(s.Out, r.findings.Grouped()); err != nil {
			return err
		}
	}
	if r.job.summary == "" {
		return nil
	}
	f, err := os.OpenFile(r.job.summary, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write the job's summary: %w", err)
	}
	_, err = f.WriteString(text.String())
	return errors.Join(err, f.Close())
}

// send writes comments and the status. What it may not do it says, and that is no
// failure: the report is in the log.
func (r *review) send(ctx context.Context, s Streams) error {
	j := r.job
	why := ""
	switch {
	case r.options.dryRun:
		return nil
	case j.number == 0 && j.system == "" && j.token == "" && j.repository == "":
		return nil // a shell, with nobody to tell
	case j.silent != "":
		why = j.silent
	case j.number == 0 && !j.queue:
		why = "this run is of no pull request"
	case j.repository == "":
		why = "the repository isn't known; give --repository"
	case j.fork:
		why = "the pull request comes from a fork, whose jobs may not write"
	case j.token == "":
		why = "there is no token; give COPPICE_TOKEN"
	}
	if why != "" {
		fmt.Fprintf(s.Err, "nothing was written to the pull request: %s\n", why)
		return nil
	}
	c := forge.Config{
		URL: j.repository, Kind: j.kind, API: j.api, Token: j.token, Username: j.username, Self: j.self,
		Client: forge.Client{Patience: time.Minute},
	}
	if r.options.caFile != "" {
		roots, err := os.ReadFile(r.options.caFile)
		if err != nil {
			return &ExitError{Code: ExitUsage, Err: err}
		}
		c.Client.Roots = roots
	}
	f, err := forge.New(c)
	if err != nil {
		return &ExitError{Code: ExitUsage, Err: err}
	}
	// Whoever can't be told in a comment still gets the status.
	var errs []error
	for _, write := range []func(context.Context, forge.Forge) error{r.comment, r.status} {
		err := write(ctx, f)
		switch {
		case forge.Forbidden(err):
			fmt.Fprintf(s.Err, "not written to the pull request: %v; %s\n", err, rights(j.kind))
		case forge.Denied(err):
			errs = append(errs, fmt.Errorf("%w; check --repository and --pull, and that the token's owner may see the repository", err))
		default:
			errs = append(errs, err)
		}
	}
	if r.late {
		fmt.Fprintf(s.Err, "not commented: the head of pull request %d is another one than %s, which was judged\n", j.number, j.head)
	}
	return errors.Join(errs...)
}

// rights says what a token has to be allowed.
func rights(kind string) string {
	switch kind {
	case "github":
		return "the token needs pull-requests: write and statuses: write"
	case "gitlab":
		return "the token needs the scope api and the role Developer"
	case "bitbucket":
		return "the token needs pullrequest:write and repository:write"
	}
	return "the token needs to write issues and the repository"
}

func (r *review) comment(ctx context.Context, f forge.Forge) error {
	if r.job.number == 0 {
		return nil // a queue's group
	}
	for _, b := range r.bodies {
		did, err := forge.Stick(ctx, f, r.job.number, forge.Post{
			Marker: forge.Marker{Cluster: b.Cluster, Source: b.Source, Head: r.job.head, Phase: forge.Planned},
			Text:   func(room int) string { return b.Text(f.Limits(), room) },
			Quiet:  !concerned(b),
		}, &forge.Memory{})
		if err != nil {
			return err
		}
		if did == forge.Outdated {
			// The job of the newer commit will say it.
			r.late = true
			return nil
		}
	}
	return nil
}

func (r *review) status(ctx context.Context, f forge.Forge) error {
	state, text := r.verdict()
	return f.SetStatus(ctx, r.job.head, forge.Status{
		Context: forge.Context(r.options.cluster, r.source()), State: state, Description: text, URL: r.job.url,
		Annotations: forge.Annotations(r.findings),
	})
}

// verdict sums up all clusters.
func (r *review) verdict() (forge.State, string) {
	if len(r.bodies) == 1 {
		return r.bodies[0].Verdict()
	}
	changed := 0
	for _, b := range r.bodies {
		if b.Plan != nil && !b.Plan.Empty() {
			changed++
		}
	}
	_, text := forge.Body{Findings: r.findings}.Verdict()
	text += fmt.Sprintf("; %d of %d clusters changed", changed, len(r.bodies))
	if r.findings.HasErrors() {
		return forge.Failure, text
	}
	return forge.Success, text
}
