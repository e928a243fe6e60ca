package source

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// evaluated is what a commit says.
type evaluated struct {
	// key names the commit, the folder and the cluster; "" for nothing.
	key string
	// content identifies what else it hangs on, as attempt's does.
	content  string
	from     origin
	cluster  string
	objects  []declared
	findings diag.List
	// deletes are the deletions that the tree confirms.
	deletes []string
	// at is when it was evaluated.
	at time.Time
}

// limitCodes begins the codes of findings that say that an evaluation hit a limit
// of time or memory. A tree can be to blame for that, or a busy machine.
const limitCodes = "EVAL"

// secondLook is the pause before a tree that hit a limit is evaluated again. A
// hostile one then costs seconds an hour.
const secondLook = 10 * time.Minute

// doubtful reports whether another evaluation might find something else.
func (e evaluated) doubtful() bool {
	return slices.ContainsFunc(e.findings, func(f diag.Finding) bool { return strings.HasPrefix(f.Code, limitCodes) })
}

// stale reports whether it is time for that.
func (e evaluated) stale(now time.Time) bool {
	return e.doubtful() && !now.Before(e.at.Add(secondLook))
}

// declared is an object of a commit: as its author wrote it, as it is applied,
// and as the inventory lists it.
type declared struct {
	render.Object
	object *unstructured.Unstructured
	entry  coppice.InventoryEntry
}

func declare(bundle render.Bundle) []declared {
	var out []declared
	for _, o := range bundle.Objects {
		obj := kube.Object(o.GVK, o.Value)
		out = append(out, declared{Object: o, object: obj, entry: kube.Entry(obj)})
	}
	return out
}

// inventory lists what a commit declares, sorted.
func (e evaluated) inventory() []coppice.InventoryEntry {
	var out []coppice.InventoryEntry
	for _, d := range e.objects {
		out = append(out, d.entry)
	}
	return kube.Merge(nil, out)
}

// seen is the outcome of looking at one object.
type seen struct {
	// state identifies the live object's content, metadata of others included.
	state string
	// digest identifies what it was compared with.
	digest string
	diffs  []plan.Difference
}

// memory is what earlier passes over one source found out. One pass at a time
// uses it.
type memory struct {
	// head and applied are the last attempted and the last applied commit.
	head, applied evaluated
	// done is the attempt that needs nothing further.
	done attempt
	// open is set while the last attempt needs something further.
	open bool
	// nextPoll is when the repository is asked again.
	nextPoll time.Time
	failures failures
	// looked is the last request for another look at everything that was obeyed.
	looked string
	// objects by inventory id.
	objects map[string]seen
	// diffs are the differences of the last look, with the times of the first.
	diffs []plan.Difference
	// reported identifies the report that is on the branch, "" if that's unknown.
	reported string
	// pushed and corrected are when those things last happened.
	pushed, corrected time.Time
	adoption          adoption
	unsigned          unsigned
	// asked is the last question about the history, ancestry its answer.
	asked    lineage
	ancestry git.Ancestry
	// announced are the events that were written, by name.
	announced map[string]bool
}

// attempt is a commit and what was asked about it.
type attempt struct {
	revision   string
	generation int64
	request    string
	// delivery is the last push that the forge told of. It asks whether there is another
	// commit, and not, as a person's request does, for another look at everything: a busy
	// repository has a push every few seconds, and most are to other branches.
	delivery string
	// content is an artifact's digest, or identifies how the commit was verified.
	content string
}

// memories holds a memory for each source.
type memories struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*memory
	// uids tells a source from an earlier one of the same name.
	uids map[types.NamespacedName]types.UID
}

func newMemories() *memories {
	return &memories{all: map[types.NamespacedName]*memory{}, uids: map[types.NamespacedName]types.UID{}}
}

func (m *memories) of(name types.NamespacedName, uid types.UID) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[name] == nil || m.uids[name] != uid {
		m.all[name] = &memory{objects: map[string]seen{}, announced: map[string]bool{}}
		m.uids[name] = uid
	}
	return m.all[name]
}

func (m *memories) forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, name)
	delete(m.uids, name)
}
