package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/isolate"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/internal/snapshot"
	"github.com/coppice-dev/coppice/policies"
	"github.com/coppice-dev/coppice/reconcile/forecast"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
)

type planOptions struct {
	dir, cluster, against, output string
	snapshot, source              string
	look                          lookOptions
	diff, exitCode                bool
	limit                         int
	limits                        limits
	assumed                       assumed
}

func newPlanCommand(s Streams) *cobra.Command {
	o := planOptions{look: lookOptions{market: true}}
	cmd := &cobra.Command{
		Use:   "plan DIR",
		Short: "Say what applying a tree of CUE would do",
		Long: `Say what applying one cluster of the tree at DIR would do: which objects it creates,
changes and deletes, field by field; which nodes are replaced for it, when and why,
what holds others back, how many pods move, which machines come and what they cost.

The cluster is looked at with --context or --kubeconfig, or is the one in a file that
'coppice snapshot' wrote. What was applied last is read from the clone around DIR, by
the commit that the cluster's NodeSource names. Nothing is written or changed.

Nodes are foretold with the flags and at the prices that the controller works with if
--controller says where it is (as for 'coppice explain'; the token has to be allowed to
get the path /controller), or if the snapshot was taken with it. Otherwise the flags are
taken to be the defaults and prices are the catalogue's, which the plan says.

Without a cluster, the tree is compared with the commit that --against names, or with
an empty cluster; what becomes of nodes isn't known then.`,
		Example: `  coppice plan . --cluster prod-eu --context prod-eu
  coppice plan . --snapshot prod-eu.json -o json
  coppice plan . --against origin/main -o markdown`,
		Args: exactArgs(1, "DIR, the root of the tree"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.dir = args[0]
			o.assumed.given = cmd.Flags().Changed
			return runPlan(s, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.cluster, "cluster", "", "the `name` of the cluster, a folder of clusters/; needed if there are several")
	o.look.register(f)
	f.Lookup("kubeconfig").Usage = "look at the cluster of this kubeconfig `file`"
	f.Lookup("context").Usage = "look at the cluster of this `context` of the kubeconfig"
	f.StringVar(&o.snapshot, "snapshot", "", "look at a `file` that 'coppice snapshot' wrote instead of a cluster")
	f.StringVar(&o.source, "source", "", "the NodeSource that applies the tree, as `namespace/name`; needed if several might")
	f.StringVar(&o.against, "against", "", "what was applied last: a `commit` of the clone around DIR, as in main or HEAD~1")
	f.StringVarP(&o.output, "output", "o", "text", "text, json or markdown")
	f.BoolVar(&o.diff, "diff", false, "show changed objects as diffs of YAML instead of field by field")
	f.BoolVar(&o.exitCode, "exit-code", false, "exit with 4 if anything changes")
	f.IntVar(&o.limit, "max-bytes", defaultMarkdown, "the most `bytes` that Markdown may have; what doesn't fit is counted")
	o.limits.flags(f)
	o.assumed.flags(f)
	return cmd
}

// defaultMarkdown leaves a comment on GitHub, which takes 65,536 characters, some room
// for what stands before the plan.
const defaultMarkdown = 60000

func runPlan(s Streams, o planOptions) error {
	if !slices.Contains([]string{"text", "json", "markdown"}, o.output) {
		return usagef("output %q: give text, json or markdown", o.output)
	}
	if o.limit < plan.MinMarkdown {
		return usagef("--max-bytes %d: give at least %d", o.limit, plan.MinMarkdown)
	}
	p, err := makePlan(s, o)
	if err != nil {
		return err
	}
	switch o.output {
	case "json":
		err = p.WriteJSON(s.Out)
	case "markdown":
		_, err = fmt.Fprint(s.Out, p.Markdown(o.limit))
	default:
		err = p.WriteText(s.Out, plan.TextOptions{Color: s.color(), Diff: o.diff})
	}
	if err != nil {
		return failed(err)
	}
	if o.exitCode && !p.Empty() {
		return &ExitError{Code: ExitChanges}
	}
	return nil
}

func makePlan(s Streams, o planOptions) (*plan.Plan, error) {
	tree, cluster, err := clusterIn(o.dir, o.cluster, true)
	if err != nil {
		return nil, err
	}
	judge, err := admission.New(schemas.CRDs())
	if err != nil {
		return nil, failed(err)
	}
	bounds, err := o.limits.options()
	if err != nil {
		return nil, err
	}
	judged := bounds
	judged.Policies = func() policies.Options { return policies.Options{At: time.Now()} }
	head, findings, err := isolate.Check(context.Background(), tree.fs, cluster, judge, judged)
	if err != nil {
		return nil, failed(err)
	}
	if len(findings) > 0 {
		if err := diag.WriteText(s.Err, tree.located(findings).Sorted().Grouped(), diag.TextOptions{Sources: tree.source}); err != nil {
			return nil, failed(err)
		}
	}
	if findings.HasErrors() {
		return nil, &ExitError{Code: ExitInvalid}
	}
	c, err := openClone(tree)
	if err != nil {
		return nil, failed(err)
	}
	shot, err := pictureFor(o)
	if err != nil {
		return nil, err
	}
	var told *snapshot.Controller
	if shot != nil {
		told = shot.Controller
	}
	settings, err := o.assumed.settings(told)
	if err != nil {
		return nil, err
	}
	var p *plan.Plan
	if shot == nil {
		if settings != nil {
			return nil, usagef("flags of the controller say how nodes are foretold, which takes a cluster: give --context, --kubeconfig or --snapshot")
		}
		var base *render.Bundle
		if o.against != "" {
			if base, err = c.bundle(o.against, head.Cluster, bounds); err != nil {
				return nil, err
			}
		}
		if p, err = forecast.Static(head, base, c.hash(o.against), judge); err != nil {
			return nil, failed(err)
		}
	} else {
		in := forecast.Input{Picture: shot, Offline: o.snapshot != "", Head: head, Judge: judge, Settings: settings}
		if in.Source, err = forecast.SourceFor(shot.NodeSources, head.Cluster, o.source); err != nil {
			return nil, usagef("%v", err)
		}
		if err := c.applied(&in, o.against, bounds); err != nil {
			return nil, err
		}
		if p, err = forecast.Plan(in); err != nil {
			return nil, failed(err)
		}
	}
	p.Commit, p.Edited = c.head, c.edited != ""
	return p, nil
}

// pictureFor reads or takes the picture of the cluster that is asked for, nil if none is.
func pictureFor(o planOptions) (*snapshot.Snapshot, error) {
	switch {
	case o.snapshot != "" && (o.look.kubeconfig != "" || o.look.context != ""):
		return nil, usagef("--snapshot stands for the cluster: leave out --kubeconfig and --context")
	case o.snapshot != "":
		shot, err := lookAt(o.look, o.snapshot)
		return shot, failed(err)
	case o.look.kubeconfig == "" && o.look.context == "":
		if o.look.controller != "" {
			return nil, usagef("--controller is that of a cluster: give --context or --kubeconfig too")
		}
		if o.source != "" {
			return nil, usagef("--source names an object of a cluster: give --context, --kubeconfig or --snapshot")
		}
		return nil, nil
	}
	shot, err := lookAt(o.look, "")
	return shot, failed(err)
}

// applied finds what was applied last: the commit that is named, or else the one that
// the source says, if the clone has it.
func (c clone) applied(in *forecast.Input, against string, bounds isolate.Options) error {
	if against != "" {
		base, err := c.bundle(against, in.Head.Cluster, bounds)
		in.Base, in.BaseCommit = base, c.hash(against)
		return err
	}
	if in.Source == nil || in.Source.Status.LastAppliedRevision == "" {
		return nil
	}
	in.BaseCommit = in.Source.Status.LastAppliedRevision
	rev, err := git.ParseRevision(in.BaseCommit)
	if err != nil || c.local == nil {
		return nil
	}
	if _, err := c.local.Commit(rev.Hash); err != nil {
		return nil // the plan says that it isn't at hand
	}
	in.Base, err = c.bundle(rev.Hash, in.Head.Cluster, bounds)
	return err
}

// clone is the Git clone that a tree is part of, if it is.
type clone struct {
	local *git.Local
	// head is the commit that is checked out, "" without one.
	head string
	// edited is a file of the tree that isn't as that commit has it, "" if there is none.
	edited string
}

func openClone(tree localTree) (clone, error) {
	local, err := git.Open(tree.dir())
	if errors.Is(err, git.ErrNoClone) {
		return clone{}, nil
	}
	if err != nil {
		return clone{}, err
	}
	c := clone{local: local}
	commit, err := local.Commit("HEAD")
	if err != nil {
		return c, nil // a clone without a commit
	}
	c.head = commit.Revision.Hash
	// A commit that doesn't have the folder is one that the folder was added to.
	committed, err := commit.FS(local.Path)
	if err != nil {
		c.edited = local.Path
		return c, nil
	}
	c.edited, err = edited(tree.fs, committed)
	return c, err
}

// edited returns a file that is evaluated and isn't as the commit has it, "" if there is
// none. Data counts where CUE embeds any.
func edited(tree, committed fs.FS) (string, error) {
	embeds := false
	file, err := git.Edited(tree, committed, func(name string) bool {
		if path.Ext(name) != ".cue" {
			return false
		}
		// What can't be read is told by who reads it next.
		text, _ := fs.ReadFile(tree, name)
		embeds = embeds || bytes.Contains(text, []byte("@embed"))
		return true
	})
	if file != "" || err != nil || !embeds {
		return file, err
	}
	return git.Edited(tree, committed, isolate.Embeddable)
}

// hash is the commit that a name stands for, or the name where there is none.
func (c clone) hash(name string) string {
	if c.local == nil || name == "" {
		return name
	}
	commit, err := c.local.Commit(name)
	if err != nil {
		return name
	}
	return commit.Revision.Hash
}

// bundle renders a cluster as a commit has it. A commit that doesn't have the cluster
// declares nothing for it.
func (c clone) bundle(name, cluster string, bounds isolate.Options) (*render.Bundle, error) {
	if c.local == nil {
		return nil, usagef("--against %s: the tree isn't part of a Git clone", name)
	}
	commit, err := c.local.Commit(name)
	if err != nil {
		return nil, usagef("--against: %v", err)
	}
	tree, err := commit.FS(c.local.Path)
	if err != nil {
		return nil, failed(err)
	}
	return bundleOf(tree, cluster, name, bounds)
}

func bundleOf(tree fs.FS, cluster, name string, bounds isolate.Options) (*render.Bundle, error) {
	known, err := render.Clusters(tree)
	if err != nil {
		return nil, failed(err)
	}
	if !slices.Contains(known, cluster) {
		return &render.Bundle{Cluster: cluster}, nil
	}
	b, findings, err := isolate.Render(context.Background(), tree, cluster, bounds)
	if err != nil {
		return nil, failed(err)
	}
	if findings.HasErrors() {
		return nil, &ExitError{Code: ExitInvalid, Err: fmt.Errorf("commit %s is invalid: %s: %s; compare with one that isn't", name, findings[0].Pos, findings[0].Message)}
	}
	return &b, nil
}
