package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// pass is one look at one source: what was read, what came of it, and what to
// tell. It lives for the length of one Reconcile.
type pass struct {
	*Reconciler
	// read is the source as the API server last showed it, src the same with the
	// status that this pass works on.
	read, src *coppice.NodeSource
	memory    *memory
	// applier acts as the source's ServiceAccount, if it names one.
	applier *kube.Applier

	remote git.Remote
	// ring holds the keys to verify with, artifact is what Flux has fetched.
	ring     git.Keyring
	artifact git.Artifact
	// secrets are values that must not leave the process.
	secrets []string
	// head is what the ref names, and try that together with what was asked.
	head git.Revision
	try  attempt
	// reopened is set when the last attempt failed: its failure is to be replaced
	// by another outcome, even if there is nothing new.
	reopened bool
	// todo are the objects that the commit changes, deleted how many it took away.
	todo    []pending
	deleted int

	result result
	notes  []note
}

// result is what settle needs to know of a pass.
type result struct {
	// change, drift, report and adopt are the errors of the parts.
	change, drift, report, adopt error
	// skipped is set when the part change had no reason to do anything: its
	// conditions stay as they are.
	skipped bool
	// summary says what the part change did.
	summary string
	// wake is when something that was put off is due, zero for nothing.
	wake time.Time
}

func (r *Reconciler) newPass(src *coppice.NodeSource) *pass {
	return &pass{
		Reconciler: r, read: src, src: src.DeepCopy(),
		memory: r.memories.of(client.ObjectKeyFromObject(src), src.UID),
	}
}

// change brings the cluster to the commit that the ref names. It is done early
// when there is nothing new, and leaves what is live untouched when it fails
// before the step apply.
func (p *pass) change(ctx context.Context) error {
	p.try = attempt{generation: p.src.Generation, request: request(p.src), delivery: delivered(p.src)}
	if !p.due() {
		p.result.skipped = true
		return nil
	}
	p.reopened, p.memory.open = p.memory.open, true
	for _, step := range []func(context.Context) error{
		p.connect,
		p.resolve,
		p.evaluateHead,
		p.descend,
		p.dependencies,
		p.disown,
		p.guard,
		p.preview,
		p.record,
		p.apply,
		p.prune,
		p.finish,
		p.rollout,
	} {
		err := step(ctx)
		if errors.Is(err, errNothingNew) {
			p.memory.open, p.result.skipped = false, true
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errNothingNew ends the part change without a failure.
var errNothingNew = errors.New("nothing new")

// due reports whether the repository is to be asked: the interval is over,
// something new is asked for, or the last attempt isn't done.
func (p *pass) due() bool {
	done := p.memory.done
	return p.memory.open || p.src.Spec.SourceRef != nil || !p.clock.Now().Before(p.memory.nextPoll) ||
		done.generation != p.try.generation || done.request != p.try.request || done.delivery != p.try.delivery
}

func (p *pass) interval() time.Duration {
	if d := p.src.Spec.Interval.Duration; d > 0 {
		return d
	}
	return defaultInterval
}

// spread moves an interval by up to a twentieth, so that sources that were
// created together don't poll together for ever.
func spread(d time.Duration, jitter float64) time.Duration {
	return d + time.Duration((jitter-0.5)*0.1*float64(d))
}

// key names a commit's content as this source reads it.
func (p *pass) key(rev git.Revision) string {
	where := p.src.Spec.URL
	if ref := p.src.Spec.SourceRef; ref != nil {
		where = ref.Kind + " " + ref.Name
	}
	return strings.Join([]string{where, rev.Hash, p.src.Spec.Path, p.src.Spec.Cluster}, "\n")
}

// evaluateHead makes objects of the commit. A commit with findings is refused as
// a whole, and remembered as such.
func (p *pass) evaluateHead(ctx context.Context) error {
	p.src.Status.LastAttemptedRevision = p.try.revision
	asked := p.try.request != p.memory.looked
	if asked {
		// Somebody wants another look at everything.
		p.memory.objects, p.memory.reported = map[string]seen{}, ""
	}
	if key := p.key(p.head); p.memory.head.key != key || p.memory.head.content != p.try.content || asked || p.memory.head.stale(p.clock.Now()) {
		e, err := p.fetchHead(ctx, asked)
		if err != nil {
			if classified(err, "").reason == reasonVerification {
				// It is remembered; what was thought of the commit before is over.
				p.memory.head, p.memory.looked = evaluated{}, p.try.request
			}
			p.verified("", err)
			return err
		}
		p.memory.head = e
	}
	p.memory.looked = p.try.request
	p.verified(p.memory.head.from.signer, nil)
	if findings := p.memory.head.findings; findings.HasErrors() {
		if !p.memory.head.doubtful() {
			p.memory.done, p.memory.open = p.try, false
		}
		return p.refuse(findings)
	}
	return nil
}

// fetch gets a commit and evaluates it. With verify, it must be signed as the
// source wants; what was applied was verified before.
func (p *pass) fetch(ctx context.Context, rev git.Revision, verify bool) (evaluated, error) {
	// The evaluation has bounds of its own. Cut short by this one, a tree that never
	// ends would be tried again and again, and never refused.
	timed, cancel := p.timeout(ctx)
	defer cancel()
	tree, from, err := p.tree(timed, rev, verify)
	if err != nil {
		return evaluated{}, err
	}
	deletes, err := confirmations(tree)
	if err != nil {
		return evaluated{}, terminally(reasonPruneGuard, err)
	}
	bundle, findings, err := p.evaluate(ctx, tree, p.src.Spec.Cluster)
	if err != nil {
		return evaluated{}, retrying(reasonEvaluation, fmt.Errorf("evaluate %s: %w", rev.Short(), err))
	}
	return evaluated{key: p.key(rev), from: from, cluster: bundle.Cluster, objects: declare(bundle), findings: findings.Sorted(), deletes: deletes, at: p.clock.Now()}, nil
}

// entries returns the inventory as it stands.
func (p *pass) entries() []coppice.InventoryEntry {
	if p.src.Status.Inventory == nil {
		return nil
	}
	return p.src.Status.Inventory.Entries
}

func (p *pass) setEntries(entries []coppice.InventoryEntry) {
	if len(entries) == 0 {
		p.src.Status.Inventory = nil
		return
	}
	p.src.Status.Inventory = &coppice.Inventory{Entries: slices.Clone(entries)}
}

// log tells of a pass that changed the status.
func (p *pass) log(ctx context.Context, changed bool) {
	if !changed {
		return
	}
	log := ctrllog.FromContext(ctx)
	for _, part := range []struct {
		name string
		err  error
	}{{"change", p.result.change}, {"drift", p.result.drift}, {"report", p.result.report}, {"adopt", p.result.adopt}} {
		if part.err != nil {
			log.Info("Part of a pass did not succeed", "part", part.name, "reason", classified(part.err, reasonApply).reason, "error", part.err.Error())
		}
	}
	log.V(1).Info("Status changed", "attempted", p.src.Status.LastAttemptedRevision, "applied", p.src.Status.LastAppliedRevision)
}
