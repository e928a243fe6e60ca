package source

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// drift compares what was applied with what is live. Its findings go to the
// status and to memory; if they can't be had, the former ones stand.
func (p *pass) drift(ctx context.Context) error {
	if p.src.Status.LastAppliedRevision == "" {
		p.memory.diffs, p.src.Status.Drift = nil, nil
		return nil
	}
	base, err := p.base(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	if base, err = p.own(ctx, base); err != nil {
		return kubeFailure(reasonDriftCheck, err)
	}
	diffs, err := p.compare(ctx, base)
	if err != nil {
		return kubeFailure(reasonDriftCheck, err)
	}
	diffs = plan.Carry(p.memory.diffs, diffs)
	if diffs, err = p.correct(ctx, base, diffs); err != nil {
		return kubeFailure(reasonDriftCheck, err)
	}
	p.memory.diffs = diffs
	p.src.Status.Drift = summarize(diffs, p.src.Status.Drift)
	return p.survey(ctx)
}

// own returns a commit without the objects that belong to another source, which looks
// after them: two that did would correct each other for ever.
func (p *pass) own(ctx context.Context, base evaluated) (evaluated, error) {
	foreign, err := p.foreign(ctx, p.client)
	if err != nil || len(foreign) == 0 {
		return base, err
	}
	base.objects = slices.DeleteFunc(slices.Clone(base.objects), func(o declared) bool { return foreign[o.entry.ID] != nil })
	return base, nil
}

// base returns the commit that was last applied. It is fetched again only after
// a restart, and only if it is no longer the head.
func (p *pass) base(ctx context.Context) (evaluated, error) {
	rev, err := git.ParseRevision(p.src.Status.LastAppliedRevision)
	if err != nil {
		return evaluated{}, retrying(reasonDriftCheck, err)
	}
	key := p.key(rev)
	switch key {
	case p.memory.applied.key:
		return p.memory.applied, nil
	case p.memory.head.key:
		if err := p.whole(p.memory.head, rev); err != nil {
			return evaluated{}, err
		}
		p.memory.applied = p.memory.head
		return p.memory.applied, nil
	}
	if p.memory.applied.key != "" {
		// The source's own spec moved on, and the commit that it now asks for isn't
		// applied. What was, still is what was.
		return p.memory.applied, nil
	}
	if err := p.connect(ctx); err != nil {
		return evaluated{}, err
	}
	e, err := p.fetch(ctx, rev, false)
	if err != nil {
		return evaluated{}, err
	}
	if err := p.whole(e, rev); err != nil {
		return evaluated{}, err
	}
	p.memory.applied = e
	return e, nil
}

// whole fails for the applied commit if it has errors now. It was without them once,
// so the fault is rather the machine's, and nothing may be concluded from a bundle that
// lacks what wasn't reached.
func (p *pass) whole(e evaluated, rev git.Revision) error {
	for _, f := range e.findings {
		if f.Severity == diag.Error {
			return retrying(reasonEvaluation, fmt.Errorf("evaluate %s: %s", rev.Short(), p.line(f)))
		}
	}
	return nil
}

// compare looks at every object of the commit that was applied as the commit has
// it. An object that looks as it did before isn't read again.
func (p *pass) compare(ctx context.Context, base evaluated) ([]plan.Difference, error) {
	found, rules := make([]seen, len(base.objects)), p.rules()
	errs := kube.Each(len(base.objects), func(i int) error {
		o := base.objects[i]
		if applied, ok := kube.Find(p.entries(), o.entry.ID); !ok || applied.Digest != o.entry.Digest || p.mode(o) == coppice.DriftOff {
			return nil
		}
		state, err := p.state(ctx, o.object)
		if err != nil {
			return err
		}
		known, ok := p.memory.objects[o.entry.ID]
		if !ok || known.state != state || known.digest != o.entry.Digest+rules {
			if known, err = p.look(ctx, o, rules); err != nil {
				return err
			}
		}
		found[i] = known
		return nil
	})
	err := cmp.Or(errs...) // of the first object, whichever failed first
	var out []plan.Difference
	for i, f := range found {
		if f.digest != "" {
			p.memory.objects[base.objects[i].entry.ID] = f
			out = append(out, f.diffs...)
		}
	}
	return out, err
}

// state identifies what the watch last showed of an object: its generation, which
// counts every change but that of metadata and status, and the metadata that Git
// may hold.
func (p *pass) state(ctx context.Context, obj *unstructured.Unstructured) (string, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(obj.GroupVersionKind())
	err := p.client.Get(ctx, client.ObjectKeyFromObject(obj), meta)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s/%s: %w", obj.GetKind(), obj.GetName(), err)
	}
	return stateOf(meta), nil
}

func stateOf(o client.Object) string {
	// Encoding sorts the maps' keys. No map and an empty one are the same.
	notes := func(m map[string]string) map[string]string {
		if len(m) == 0 {
			return nil
		}
		return m
	}
	data, err := json.Marshal([]any{o.GetUID(), o.GetGeneration(), notes(o.GetLabels()), notes(o.GetAnnotations())})
	if err != nil {
		panic(fmt.Sprintf("source: metadata is no JSON: %v", err))
	}
	return string(data)
}

// look reads an object and compares it with what Git holds.
func (p *pass) look(ctx context.Context, o declared, rules string) (seen, error) {
	now, err := p.applier.Look(ctx, o.object)
	if err != nil {
		return seen{}, err
	}
	observed := plan.Observed{ID: planID(o.Object), File: p.file(o.Object), Git: o.Value, Judge: p.judge(o)}
	out := seen{digest: o.entry.Digest + rules}
	if now.Live != nil {
		observed.Live, observed.Want = now.Live.Object, now.Want.Object
		out.state = stateOf(now.Live)
	}
	out.diffs = plan.Drift([]plan.Observed{observed})
	return out, nil
}

func planID(o render.Object) plan.ID {
	return plan.ID{Group: o.GVK.Group, Kind: o.GVK.Kind, Name: o.Name}
}

// file is where an object is declared, as a path in the repository.
func (p *pass) file(o render.Object) string {
	pos := o.Position("spec")
	if !pos.IsValid() {
		return ""
	}
	return path.Join(p.src.Spec.Path, pos.File)
}

// correct puts Git's values back in objects whose mode says so, and returns what
// still differs. It does so at most once per interval: whoever insists on another
// value is not fought.
func (p *pass) correct(ctx context.Context, base evaluated, diffs []plan.Difference) ([]plan.Difference, error) {
	differs := map[plan.ID]bool{}
	for _, d := range diffs {
		differs[d.Object] = true
	}
	todo := slices.DeleteFunc(slices.Clone(base.objects), func(o declared) bool {
		return !differs[planID(o.Object)] || p.mode(o) != coppice.DriftCorrect
	})
	if len(todo) == 0 {
		return diffs, nil
	}
	if next := p.memory.corrected.Add(p.interval()); p.clock.Now().Before(next) {
		p.wake(next)
		return diffs, nil
	}
	p.memory.corrected = p.clock.Now()
	wrote := false
	for _, o := range todo {
		look, err := p.applier.Preview(ctx, o.object)
		if err != nil {
			return diffs, err
		}
		mine, look, _, err := p.leave(ctx, o, look)
		if err != nil {
			return diffs, err
		}
		if !look.Writes {
			continue // what differs is what a rule forbids to set
		}
		if _, err := p.applier.Apply(ctx, mine); err != nil {
			return diffs, err
		}
		delete(p.memory.objects, o.entry.ID)
		wrote = true
	}
	if !wrote {
		return diffs, nil
	}
	left, err := p.compare(ctx, base)
	if err != nil {
		return diffs, err
	}
	left = plan.Carry(diffs, left)
	gone := slices.DeleteFunc(slices.Clone(diffs), func(d plan.Difference) bool {
		return slices.ContainsFunc(left, func(l plan.Difference) bool { return l.Object == d.Object && l.Field == d.Field })
	})
	if len(gone) > 0 {
		p.warn(reasonCorrected, p.clock.Now().String(), "Git's values are put back: %s", plan.Summary(gone))
	}
	return left, nil
}

// The bounds of a drift summary: the API's limit of items, and a length at which
// a value still fits a line.
const (
	driftItems = 10
	valueBytes = 200
)

// summarize makes the status of differences, nil for none. The commit and
// the pull request that the former status names stay until there are others.
func summarize(diffs []plan.Difference, before *coppice.DriftSummary) *coppice.DriftSummary {
	if len(diffs) == 0 {
		return nil
	}
	objects, fields := plan.Count(diffs)
	out := &coppice.DriftSummary{Objects: int32(objects), Fields: int32(fields)}
	for i, d := range diffs {
		if i == driftItems {
			break
		}
		out.Items = append(out.Items, coppice.DriftItem{
			Object: d.Object.String(), Field: d.Field,
			Git: clip(d.Git.String(), valueBytes), Live: clip(d.Live.String(), valueBytes), Manager: d.Manager,
		})
	}
	if before != nil {
		out.ReportCommit, out.PullRequest = before.ReportCommit, before.PullRequest
	}
	return out
}
