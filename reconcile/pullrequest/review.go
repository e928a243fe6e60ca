package pullrequest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/forge"
	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/reconcile/forecast"
	"github.com/coppice-dev/coppice/render"
)

// key names what a review rests on.
func (v *view) key() string {
	return strings.Join([]string{v.pull.Head, v.pull.Base, v.src.Status.LastAppliedRevision, fmt.Sprint(v.src.Generation)}, "\n")
}

// draft is what a look at a pull request has found out.
type draft struct {
	view *view
	body forge.Body
	// quiet says that there is nothing to say of the pull request by itself.
	quiet bool
	err   error
}

// prepare looks at an open pull request, if what there is to say may have changed.
func (r *Reconciler) prepare(ctx context.Context, v *view, m *pullMemory) error {
	m.draft = nil
	if m.key == v.key() && r.Clock.Since(m.at) < relook {
		return nil
	}
	m.draft = v.draft(ctx, m)
	var limited *forge.LimitedError
	if errors.As(m.draft.err, &limited) {
		return m.draft.err // it goes on where it was when the limit is over
	}
	return nil
}

func (v *view) draft(ctx context.Context, m *pullMemory) *draft {
	d := &draft{view: v}
	var touches []plan.ID
	if d.body, touches, d.quiet, d.err = v.look(ctx); d.err == nil {
		m.touches = touches
	}
	return d
}

// review says what an open pull request would do, if that has changed. beside says which
// others change the same.
func (r *Reconciler) review(ctx context.Context, v *view, m *pullMemory, beside []string) error {
	key, head, d := v.key(), v.pull.Head, m.draft
	if m.draft = nil; d == nil {
		if slices.Equal(beside, m.beside) {
			return nil
		}
		d = v.draft(ctx, m)
	}
	err := d.err
	if err == nil {
		d.body.Notes = append(d.body.Notes, beside...)
		err = d.view.say(ctx, m, d)
	}
	var limited *forge.LimitedError
	switch {
	case errors.Is(err, errMoved):
		return nil // the next pass sees the new head
	case errors.As(err, &limited):
		m.key = ""
		return err
	case err != nil && m.key != key:
		// Its author shall not take silence for consent. Why is for who runs the cluster.
		told := v.forge.SetStatus(ctx, head, forge.Status{
			Context: forge.Context(v.ClusterName, v.name()), State: forge.Pending,
			Description: "could not be reviewed; an event of the NodeSource says why",
		})
		if v.pull.Fork && forge.Denied(told) {
			told = nil
		}
		err = errors.Join(err, told)
	}
	// What couldn't be done isn't tried again with each pass either.
	m.key, m.at, m.beside = key, r.Clock.Now(), beside
	return err
}

// mostBeside is how many pull requests, and how many objects of each, are named that change
// the same.
const mostBeside = 5

// besides says which open pull requests change objects that one changes too: whichever is
// merged second does something else by then. They are named without a link, which forges
// would tell of in each of them.
func besides(number int, open []forge.Pull, pulls map[int]*pullMemory) []string {
	var out []string
	more := 0
	own := pulls[number].touches
	for _, p := range open {
		other := pulls[p.Number]
		if p.Number == number || other == nil {
			continue
		}
		var same []string
		for _, id := range own {
			if slices.Contains(other.touches, id) {
				same = append(same, forge.Code(id.String()))
			}
		}
		switch n := len(same); {
		case n == 0:
			continue
		case len(out) == mostBeside:
			more++
			continue
		case n > mostBeside:
			same = append(same[:mostBeside], fmt.Sprintf("%d more", n-mostBeside))
		}
		out = append(out, fmt.Sprintf("⚠️ Pull request %d, which is open, changes %s too.", p.Number, strings.Join(same, ", ")))
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more open pull requests change the same objects.", more))
	}
	return out
}

// say writes comment and status.
func (v *view) say(ctx context.Context, m *pullMemory, d *draft) error {
	body, quiet := d.body, d.quiet
	marker := v.marker(forge.Planned)
	if body.Plan != nil && body.Plan.Fleet != nil {
		marker.Before, marker.After = body.Plan.Fleet.Before.MicroUSD, body.Plan.Fleet.After.MicroUSD
	}
	did, err := forge.Stick(ctx, v.forge, v.pull.Number, forge.Post{
		Marker: marker, Quiet: quiet,
		Text: func(room int) string { return body.Text(v.forge.Limits(), room) },
	}, &m.comment)
	if err != nil {
		return err
	}
	if did == forge.Outdated {
		return errMoved
	}
	state, text := body.Verdict()
	if quiet {
		text = "no changes"
	}
	err = v.forge.SetStatus(ctx, v.pull.Head, forge.Status{
		Context: forge.Context(v.ClusterName, v.name()), State: state, Description: text,
		Summary: body.Text(forge.Limits{}, 60_000), Annotations: forge.Annotations(body.Findings),
	})
	// The commit of a fork isn't the repository's to mark on every forge.
	if err != nil && !(v.pull.Fork && forge.Denied(err)) {
		return fmt.Errorf("set the status of %s: %w", v.pull.Head, err)
	}
	return nil
}

func (v *view) marker(phase forge.Phase) forge.Marker {
	return forge.Marker{Cluster: v.ClusterName, Source: v.name(), Head: v.pull.Head, Phase: phase}
}

// errMoved says that a pull request has another head by now.
var errMoved = errors.New("the head has moved")

// treeError says what is wrong with the files of a pull request's head, which is for its
// author to mend.
type treeError struct{ text string }

func (e *treeError) Error() string { return e.text }

// look makes the body of a review, and lists the objects that the pull request changes.
// quiet says that there is nothing to say: no object of the source changes, and there are
// no findings.
func (v *view) look(ctx context.Context) (body forge.Body, touches []plan.ID, quiet bool, err error) {
	body = forge.Body{Cluster: v.ClusterName, Source: v.name(), Head: v.pull.Head}
	now, err := v.forge.Pull(ctx, v.pull.Number)
	if err != nil {
		return body, nil, false, err
	}
	if !forge.SameCommit(now.Head, v.pull.Head) || !now.Open {
		return body, nil, false, errMoved
	}
	v.pull = now
	t, err := v.trees(ctx)
	var wrong *treeError
	if errors.As(err, &wrong) {
		body.Findings = plan.HideFindings(diag.List{{Code: render.CodeTree, Message: wrong.text}}, nil)
		return body, nil, false, nil
	}
	if err != nil {
		return body, nil, false, err
	}
	if same, err := equalFiles(t.base, t.head); err != nil || same {
		return body, nil, same, err
	}
	merged, conflicts, err := merge(t.base, t.tip, t.head)
	if err != nil {
		return body, nil, false, err
	}
	for _, name := range conflicts {
		body.Notes = append(body.Notes, fmt.Sprintf("%s has changed in %s too, in the same places, and is judged as it is in the pull request: bring the branch up to date.",
			forge.Code(name), forge.Code(v.pull.BaseRef)))
	}
	b, findings, err := v.evaluate(ctx, merged, t.tip)
	if err != nil {
		return body, nil, false, err
	}
	var objects []map[string]any
	for _, o := range b.head.Objects {
		objects = append(objects, o.Value)
	}
	body.Findings = plan.HideFindings(render.InFolder(findings, v.src.Spec.Path), plan.UserData(objects...))
	if findings.HasErrors() {
		return body, nil, false, nil
	}
	if b.base != nil {
		for _, t := range plan.Targets(b.head, b.base) {
			if !reflect.DeepEqual(t.Head, t.Base) {
				touches = append(touches, t.ID)
			}
		}
	}
	body.Full = v.full()
	if v.pull.Fork {
		if body.Plan, err = forecast.Static(b.head, b.base, v.pull.Base, v.judge); err != nil {
			return body, nil, false, err
		}
		body.Notes = append(body.Notes, "This comes from a fork: it is compared with the branch, and nothing of the cluster is told.")
	} else if body.Plan, err = v.plan(ctx, b); err != nil {
		return body, nil, false, err
	}
	return body, touches, body.Plan.Silent() && len(findings)+len(conflicts) == 0, nil
}

// full says how to get what doesn't fit into a comment. Nothing in it is its author's
// choice: people paste it into a shell.
func (v *view) full() string {
	head, base := v.pull.Head, v.pull.Base
	fetch := "git fetch origin " + head
	if strings.HasPrefix(v.pull.Ref, "refs/heads/") {
		fetch = "git fetch origin"
	}
	command := "coppice plan " + cmp.Or(v.src.Spec.Path, ".")
	if v.src.Spec.Cluster != "" {
		command += " --cluster " + v.src.Spec.Cluster
	}
	if v.pull.Fork {
		command += " --against " + base
	} else {
		command += " --source " + v.name() + " --context CONTEXT"
	}
	return "All of it, in a clone:\n\n```\n" + fetch + " && git checkout " + head + "\n" + command + "\n```"
}

// trees are what a review reads.
type trees struct {
	// head and tip are the pull request's and the branch's, base what both began with. A
	// commit that doesn't have the source's folder has nil.
	head, tip, base fs.FS
}

func (v *view) trees(ctx context.Context) (trees, error) {
	var t trees
	remote, err := v.remote()
	if err != nil {
		return t, err
	}
	if t.head, err = v.fetch(ctx, remote, v.pull.Ref, v.pull.Head); err != nil {
		var bad *git.Error
		if errors.As(err, &bad) && (bad.Kind == git.ErrTree || bad.Kind == git.ErrTooLarge) {
			return t, &treeError{cmp.Or(bad.Detail, bad.Kind.Error())}
		}
		return t, err
	}
	// Forges say of the branch where it was when they last looked.
	tip, known := v.tips[v.pull.BaseRef]
	if !known {
		if tip, err = remote.Head(ctx, git.Ref{Branch: v.pull.BaseRef}); err != nil {
			return t, fmt.Errorf("find the branch %s: %w", v.pull.BaseRef, err)
		}
		v.tips[v.pull.BaseRef] = tip
	}
	v.pull.Base = tip.Hash
	if t.tip, err = v.fetch(ctx, remote, "", tip.Hash); err != nil {
		return t, err
	}
	if t.base = t.tip; v.pull.MergeBase != v.pull.Base {
		t.base, err = v.fetch(ctx, remote, "", v.pull.MergeBase)
	}
	return t, err
}

// fetch gets the source's folder of a commit. A reference that it has to be the end of
// is asked first.
func (v *view) fetch(ctx context.Context, remote git.Remote, ref, hash string) (fs.FS, error) {
	rev := git.Revision{Hash: hash}
	if ref != "" {
		got, err := remote.Head(ctx, git.Ref{Name: ref})
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", ref, err)
		}
		if got.Hash != hash {
			return nil, errMoved
		}
		rev = got
	}
	if tree, known := v.shared.trees[hash]; known {
		return tree, nil
	}
	commit, err := remote.FetchFolder(ctx, rev, v.src.Spec.Path)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", rev.Short(), err)
	}
	tree, err := commit.FS(v.src.Spec.Path)
	var missing *git.Error
	if errors.As(err, &missing) && missing.Kind == git.ErrTree && strings.Contains(missing.Detail, "no folder") {
		tree, err = nil, nil
	}
	if err == nil {
		v.shared.trees[hash] = tree
	}
	return tree, err
}

// evaluate makes objects of a pull request after its merge, and of its base.
func (v *view) evaluate(ctx context.Context, merged, tip fs.FS) (bundles, diag.List, error) {
	var b bundles
	head, findings, err := v.Evaluate(ctx, merged, v.src.Spec.Cluster)
	if err != nil {
		return b, nil, fmt.Errorf("evaluate: %w", err)
	}
	b.head = head
	if findings = findings.Sorted(); findings.HasErrors() || tip == nil {
		return b, findings, nil
	}
	base, known := v.bases[v.pull.Base]
	if !known {
		found, wrong, err := v.Evaluate(ctx, tip, v.src.Spec.Cluster)
		if err != nil {
			return b, nil, fmt.Errorf("evaluate the branch: %w", err)
		}
		if !wrong.HasErrors() {
			base = &found
		}
		v.bases[v.pull.Base] = base
	}
	b.base = base
	return b, findings, nil
}

// plan compares with what is live, and says what becomes of nodes.
func (v *view) plan(ctx context.Context, b bundles) (*plan.Plan, error) {
	picture, err := v.picture()
	if err != nil {
		return nil, err
	}
	in := forecast.Input{Picture: picture, Head: b.head, Source: v.src, BaseCommit: v.src.Status.LastAppliedRevision, Judge: v.judge}
	if rev, err := git.ParseRevision(in.BaseCommit); err == nil && rev.Hash == v.pull.Base {
		in.Base = b.base
	}
	p, err := forecast.Plan(in)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	p.Cluster, p.Commit = v.ClusterName, v.pull.Head
	return p, nil
}
