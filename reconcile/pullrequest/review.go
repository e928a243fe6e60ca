package pullrequest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// review says what an open pull request would do, if that may have changed.
func (r *Reconciler) review(ctx context.Context, v *view, m *pullMemory) error {
	key := v.key()
	if m.key == key && r.Clock.Since(m.at) < relook {
		return nil
	}
	head := v.pull.Head
	err := v.say(ctx, m)
	var limited *forge.LimitedError
	switch {
	case errors.Is(err, errMoved):
		return nil // the next pass sees the new head
	case errors.As(err, &limited):
		return err // it goes on where it was when the limit is over
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
	m.key, m.at = key, r.Clock.Now()
	return err
}

// say reviews a pull request, and writes comment and status.
func (v *view) say(ctx context.Context, m *pullMemory) error {
	body, quiet, err := v.look(ctx)
	if err != nil {
		return err
	}
	did, err := forge.Stick(ctx, v.forge, v.pull.Number, forge.Post{
		Marker: v.marker(forge.Planned), Quiet: quiet,
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

// look makes the body of a review. quiet says that there is nothing to say: no object of
// the source changes, and there are no findings.
func (v *view) look(ctx context.Context) (body forge.Body, quiet bool, err error) {
	body = forge.Body{Cluster: v.ClusterName, Source: v.name(), Head: v.pull.Head}
	now, err := v.forge.Pull(ctx, v.pull.Number)
	if err != nil {
		return body, false, err
	}
	if !forge.SameCommit(now.Head, v.pull.Head) || !now.Open {
		return body, false, errMoved
	}
	v.pull = now
	t, err := v.trees(ctx)
	var wrong *treeError
	if errors.As(err, &wrong) {
		body.Findings = plan.HideFindings(diag.List{{Code: render.CodeTree, Message: wrong.text}}, nil)
		return body, false, nil
	}
	if err != nil {
		return body, false, err
	}
	if same, err := equalFiles(t.base, t.head); err != nil || same {
		return body, same, err
	}
	merged, conflicts, err := merge(t.base, t.tip, t.head)
	if err != nil {
		return body, false, err
	}
	for _, name := range conflicts {
		body.Notes = append(body.Notes, fmt.Sprintf("%s has changed in %s too, in the same places, and is judged as it is in the pull request: bring the branch up to date.",
			forge.Code(name), forge.Code(v.pull.BaseRef)))
	}
	b, findings, err := v.evaluate(ctx, merged, t.tip)
	if err != nil {
		return body, false, err
	}
	var objects []map[string]any
	for _, o := range b.head.Objects {
		objects = append(objects, o.Value)
	}
	body.Findings = plan.HideFindings(render.InFolder(findings, v.src.Spec.Path), plan.UserData(objects...))
	if findings.HasErrors() {
		return body, false, nil
	}
	if v.pull.Fork {
		if body.Plan, err = forecast.Static(b.head, b.base, v.pull.Base, v.judge); err != nil {
			return body, false, err
		}
		body.Notes = append(body.Notes, "This comes from a fork: it is compared with the branch, and nothing of the cluster is told.")
	} else if body.Plan, err = v.plan(ctx, b); err != nil {
		return body, false, err
	}
	return body, body.Plan.Silent() && len(findings)+len(conflicts) == 0, nil
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
