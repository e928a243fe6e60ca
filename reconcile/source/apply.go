package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// pending is an object that the commit changes, or that was never applied.
type pending struct {
	declared
	// writes and creates say what applying it will do.
	writes, creates bool
	// state identifies the object as it is once applied.
	state string
	// mine is the object without the fields that are left to others.
	mine *unstructured.Unstructured
	// orphans are fields that Git held until now and that somebody has changed by
	// hand: applying alone would leave them.
	orphans [][]string
}

// owner returns the other source that has an object, nil if there is none. Of
// two that have it, the one that applied it wins, and of two that did, the older.
func owner(self *coppice.NodeSource, all []coppice.NodeSource, id string) *coppice.NodeSource {
	rank := func(s *coppice.NodeSource) (has, applied bool) {
		if s.Status.Inventory == nil {
			return false, false
		}
		e, ok := kube.Find(s.Status.Inventory.Entries, id)
		return ok, ok && e.Digest != ""
	}
	_, mine := rank(self)
	for i := range all {
		other := &all[i]
		if other.Namespace == self.Namespace && other.Name == self.Name {
			continue
		}
		has, theirs := rank(other)
		switch {
		case !has, mine && !theirs:
		case theirs && !mine, older(other, self):
			return other
		}
	}
	return nil
}

func older(a, b *coppice.NodeSource) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Namespace+"/"+a.Name < b.Namespace+"/"+b.Name
}

// preview asks the API server about every object that the commit changes, before
// any of them is written. Whatever it refuses is a finding at the author's line.
func (p *pass) preview(ctx context.Context) error {
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	p.todo = nil
	for _, o := range p.memory.head.objects {
		// What Git says hasn't changed, so it is not applied again: what somebody
		// changed by hand is for the part drift to judge.
		if old, ok := kube.Find(p.entries(), o.entry.ID); ok && old.Digest == o.entry.Digest {
			continue
		}
		p.todo = append(p.todo, pending{declared: o})
	}
	former := p.former(ctx)
	refused := make([]diag.List, len(p.todo))
	contested := make([][]plan.Difference, len(p.todo))
	errs := kube.Each(len(p.todo), func(i int) error {
		t := &p.todo[i]
		look, err := p.applier.Preview(ctx, t.object)
		var invalid *kube.InvalidError
		switch {
		case errors.As(err, &invalid):
			refused[i] = located(t.Object, invalid)
			return nil
		case err != nil:
			return kubeFailure(reasonApply, err)
		case look.Live != nil && look.Live.GetDeletionTimestamp() != nil:
			return waiting(reasonTerminating, terminatingDelay, fmt.Errorf("%s is being deleted; it is applied again once it is gone", t.ID()))
		}
		if t.mine, look, contested[i], err = p.leave(ctx, t.declared, look); err != nil {
			return kubeFailure(reasonApply, err)
		}
		t.writes, t.creates = look.Writes, look.Live == nil
		if look.Live != nil {
			orphans := plan.Orphaned(former[t.entry.ID], t.Value, look.Live.Object, kube.Manager)
			var failed []plan.Difference
			t.orphans, failed = plan.Released(plan.Observed{ID: planID(t.Object), Live: look.Live.Object}, orphans, kube.Manager, p.judge(t.declared))
			contested[i] = append(contested[i], failed...)
			t.state = stateOf(look.Live)
			t.writes = t.writes || len(t.orphans) > 0
		}
		return nil
	})
	err := cmp.Or(errs...) // of the first object, whichever failed first
	if all := slices.Concat(refused...); len(all) > 0 {
		return p.refuse(all.Sorted())
	}
	if all := slices.Concat(contested...); len(all) > 0 && err == nil {
		return p.contested(all)
	}
	return err
}

// former returns what Git held of the objects that the commit changes, as it was
// applied, by inventory id. After a restart it takes another fetch; a commit that
// can't be had any more is done without.
func (p *pass) former(ctx context.Context) map[string]map[string]any {
	known := false
	for _, t := range p.todo {
		old, ok := kube.Find(p.entries(), t.entry.ID)
		known = known || ok && old.Digest != ""
	}
	if !known {
		return nil
	}
	base, err := p.base(ctx)
	if err != nil {
		return nil
	}
	out := map[string]map[string]any{}
	for _, o := range base.objects {
		if old, ok := kube.Find(p.entries(), o.entry.ID); ok && old.Digest == o.entry.Digest {
			out[o.entry.ID] = o.Value
		}
	}
	return out
}

// located gives what the API server says the author's position.
func located(o render.Object, invalid *kube.InvalidError) diag.List {
	var out diag.List
	for _, c := range invalid.Causes {
		out = append(out, diag.Finding{
			Code: "API001", Message: c.Message, Pos: o.Position(c.Path...),
			Object: o.ID(), Path: plan.PathString(c.Path),
		})
	}
	return out
}

// record writes down what is about to be created, so that a crash between the
// writing of an object and that of the status never loses sight of one.
func (p *pass) record(ctx context.Context) error {
	var intents []coppice.InventoryEntry
	for _, t := range p.todo {
		if _, ok := kube.Find(p.entries(), t.entry.ID); !ok {
			intents = append(intents, coppice.InventoryEntry{ID: t.entry.ID, Version: t.entry.Version})
		}
	}
	if len(intents) == 0 {
		return nil
	}
	p.setEntries(kube.Merge(p.entries(), intents))
	p.src.Status.Conditions = withProgress(p.src.Status.Conditions, p.src.Generation, "Applying "+p.head.Short(), p.clock.Now())
	if _, err := kube.PatchStatus(ctx, p.client, p.read, p.src); err != nil {
		return retrying(reasonApply, err)
	}
	p.read = p.src.DeepCopy()
	return p.first(ctx, intents)
}

// first looks again whose the objects are that the source is about to create, now
// that its intents are there for others to see: of two sources that were made at the
// same time, each may have passed the guard before the other wrote anything down. The
// one that loses takes its intents back.
func (p *pass) first(ctx context.Context, intents []coppice.InventoryEntry) error {
	foreign, err := p.foreign(ctx, p.reader)
	if err != nil {
		return err
	}
	for _, e := range intents {
		if other := foreign[e.ID]; other != nil {
			p.setEntries(kube.Left(p.entries(), intents))
			return contestedBy(e, other)
		}
	}
	return nil
}

// apply makes the API server hold the objects, in the bundle's order.
func (p *pass) apply(ctx context.Context) error {
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	var lost []plan.Difference
	rules := p.rules()
	for _, t := range p.todo {
		if t.writes {
			live, err := p.applier.Apply(ctx, t.mine)
			if err == nil {
				live, err = p.applier.Remove(ctx, live, t.orphans)
			}
			if err != nil {
				return kubeFailure(reasonApply, err)
			}
			t.state = stateOf(live)
			lost = append(lost, p.differencesOf(t.Object)...)
		}
		// It is as Git has it, so the part drift need not look.
		p.memory.objects[t.entry.ID] = seen{state: t.state, digest: t.entry.Digest + rules}
		p.setEntries(kube.Merge(p.entries(), []coppice.InventoryEntry{t.entry}))
	}
	if len(lost) > 0 {
		p.warn(reasonOverwritten, p.try.revision, "%s sets what somebody had changed by hand: %s", p.head.Short(), plan.Summary(lost))
	}
	return nil
}

func (p *pass) differencesOf(o render.Object) []plan.Difference {
	var out []plan.Difference
	for _, d := range p.memory.diffs {
		if d.Object == planID(o) {
			out = append(out, d)
		}
	}
	return out
}

// prune deletes what the source applied once and the commit doesn't declare. What
// can't be deleted stays in the inventory and is tried again.
func (p *pass) prune(ctx context.Context) error {
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	wanted := p.memory.head.inventory()
	left := kube.Left(p.entries(), wanted)
	var errs []error
	var gone []coppice.InventoryEntry
	for _, e := range left {
		if p.src.Prunes() {
			obj, err := kube.Referenced(e)
			var done kube.Deletion
			if err == nil {
				done, err = p.applier.Delete(ctx, obj)
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if done == kube.Deleted {
				p.deleted++
				gone = append(gone, e)
			}
		}
		delete(p.memory.objects, e.ID)
		p.setEntries(slices.DeleteFunc(slices.Clone(p.entries()), func(o coppice.InventoryEntry) bool { return o.ID == e.ID }))
	}
	if len(errs) > 0 {
		return kubeFailure(reasonPrune, errors.Join(errs...))
	}
	if len(gone) > 0 {
		p.info(reasonPruned, p.try.revision, "%s no longer declares %s; deleted", p.head.Short(), someNames(gone))
	}
	return nil
}

// finish notes that the cluster matches the commit.
func (p *pass) finish(context.Context) error {
	created, changed := 0, 0
	for _, t := range p.todo {
		switch {
		case t.creates:
			created++
		case t.writes:
			changed++
		}
	}
	if p.src.Status.LastAppliedRevision != p.try.revision {
		p.info(reasonApplied, p.try.revision, "%s is applied: %d created, %d changed, %d as they were", p.head.Short(),
			created, changed, len(p.memory.head.objects)-created-changed)
	}
	p.src.Status.LastAppliedRevision = p.try.revision
	p.memory.applied = p.memory.head
	p.memory.done, p.memory.open = p.try, false
	p.result.summary = fmt.Sprintf("%d created, %d changed, %d deleted", created, changed, p.deleted)
	return nil
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// someNames lists the first few of some entries.
func someNames(entries []coppice.InventoryEntry) string {
	const shown = 5
	var names []string
	for i, e := range entries {
		if i == shown {
			return strings.Join(names, ", ") + fmt.Sprintf(" and %d more", len(entries)-shown)
		}
		names = append(names, entryName(e))
	}
	return strings.Join(names, ", ")
}

func entryName(e coppice.InventoryEntry) string {
	u, err := kube.Referenced(e)
	if err != nil {
		return e.ID
	}
	return u.GetKind() + "/" + u.GetName()
}
