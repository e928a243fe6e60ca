package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// guard refuses a commit that declares what another source has, or that would
// delete more than the source allows and Git confirms.
func (p *pass) guard(ctx context.Context) error {
	wanted := p.memory.head.inventory()
	if len(wanted) == 0 && len(p.entries()) > 0 {
		return terminally(reasonPruneGuard, fmt.Errorf("%s declares no object, and %s applied; to remove them all, delete them and this source",
			p.head.Short(), plural(len(p.entries()), "object is", "objects are")))
	}
	if err := p.confirmed(wanted); err != nil {
		return err
	}
	if p.src.Prunes() {
		if err := p.guardPrune(ctx, wanted); err != nil {
			return err
		}
	}
	var list coppice.NodeSourceList
	if err := p.client.List(ctx, &list); err != nil {
		return retrying(reasonApply, fmt.Errorf("list sources: %w", err))
	}
	for _, e := range wanted {
		if other := owner(p.src, list.Items, e.ID); other != nil {
			return contestedBy(e, other)
		}
	}
	return nil
}

// disown takes out of the inventory what the commit doesn't declare and the source
// has no right to delete: what it was about to apply and never did, which others may
// have made, and what another source has.
func (p *pass) disown(ctx context.Context) error {
	left := kube.Left(p.entries(), p.memory.head.inventory())
	if len(left) == 0 {
		return nil
	}
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	foreign, err := p.foreign(ctx, p.client)
	if err != nil {
		return err
	}
	drop := map[string]bool{}
	for _, e := range left {
		drop[e.ID] = foreign[e.ID] != nil
		obj, err := kube.Referenced(e)
		if drop[e.ID] || e.Digest != "" || err != nil {
			continue
		}
		live, err := p.applier.Live(ctx, obj)
		if err != nil {
			return kubeFailure(reasonPrune, err)
		}
		drop[e.ID] = live == nil || !kube.Applied(live)
	}
	p.setEntries(slices.DeleteFunc(slices.Clone(p.entries()), func(e coppice.InventoryEntry) bool { return drop[e.ID] }))
	return nil
}

// foreign returns those objects of the inventory that belong to another source, with
// that source, by id.
func (p *pass) foreign(ctx context.Context, from client.Reader) (map[string]*coppice.NodeSource, error) {
	var list coppice.NodeSourceList
	if err := from.List(ctx, &list); err != nil {
		return nil, retrying(reasonApply, fmt.Errorf("list sources: %w", err))
	}
	named := map[string]bool{}
	for i := range list.Items {
		s := &list.Items[i]
		if s.Status.Inventory == nil || s.Namespace == p.src.Namespace && s.Name == p.src.Name {
			continue
		}
		for _, e := range s.Status.Inventory.Entries {
			named[e.ID] = true
		}
	}
	out := map[string]*coppice.NodeSource{}
	for _, e := range p.entries() {
		if !named[e.ID] {
			continue
		}
		if other := owner(p.src, list.Items, e.ID); other != nil {
			out[e.ID] = other
		}
	}
	return out, nil
}

func contestedBy(e coppice.InventoryEntry, other *coppice.NodeSource) error {
	return terminally(reasonContested, fmt.Errorf("%s belongs to NodeSource %s/%s; declare it in one source alone", entryName(e), other.Namespace, other.Name))
}

// confirmed refuses a commit that declares what it also confirms the deletion of: a
// confirmation that outlives its deletion would disarm the guard for the next one.
func (p *pass) confirmed(wanted []coppice.InventoryEntry) error {
	head := p.memory.head
	for _, e := range wanted {
		if name := strings.TrimPrefix(head.cluster+"/"+entryName(e), "/"); slices.Contains(head.deletes, name) {
			return terminally(reasonPruneGuard, fmt.Errorf("%s declares %s and lists %s under deletes in %s; remove that line",
				p.head.Short(), entryName(e), name, settingsFile))
		}
	}
	return nil
}

// guardPrune looks at what a commit would delete and hasn't confirmed.
func (p *pass) guardPrune(ctx context.Context, wanted []coppice.InventoryEntry) error {
	head := p.memory.head
	left := slices.DeleteFunc(kube.Left(p.entries(), wanted), func(e coppice.InventoryEntry) bool {
		name := entryName(e)
		return slices.Contains(head.deletes, name) || slices.Contains(head.deletes, head.cluster+"/"+name)
	})
	if limit := p.src.Deletions(); len(left) > limit {
		return terminally(reasonPruneGuard, fmt.Errorf("%s would delete %s (%s), and spec.maxDeletes is %d; raise it if that is meant, or list them under deletes in %s",
			p.head.Short(), plural(len(left), "object", "objects"), someNames(left), limit, settingsFile))
	}
	if len(left) == 0 {
		return nil
	}
	var claims karpenter.NodeClaimList
	if err := p.client.List(ctx, &claims); err != nil {
		return kubeFailure(reasonApply, fmt.Errorf("list NodeClaims: %w", err))
	}
	held, nodes := bearing(left, claims.Items)
	if nodes <= maxDeletedNodes(p.src, len(claims.Items)) {
		return nil
	}
	lines := make([]string, len(held))
	for i, e := range held {
		lines[i] = strconv.Quote(strings.TrimPrefix(head.cluster+"/"+entryName(e), "/"))
	}
	return terminally(reasonPruneGuard, fmt.Errorf("%s would delete %s with %s of %d; to confirm, add deletes: [%s] to %s, or declare them again",
		p.head.Short(), someNames(held), plural(nodes, "node", "nodes"), len(claims.Items), strings.Join(lines, ", "), settingsFile))
}

// bearing returns those of entries that have nodes, and how many nodes that is.
func bearing(entries []coppice.InventoryEntry, claims []karpenter.NodeClaim) (held []coppice.InventoryEntry, nodes int) {
	taken := map[string]bool{}
	for _, e := range entries {
		u, err := kube.Referenced(e)
		if err != nil {
			continue
		}
		has := false
		for i := range claims {
			c := &claims[i]
			ref := c.Spec.NodeClassRef
			switch {
			case u.GetKind() == "NodePool" && c.Labels[karpenter.LabelNodePool] == u.GetName():
			case u.GetKind() == "EC2NodeClass" && ref != nil && ref.Group == aws.Group && ref.Name == u.GetName():
			default:
				continue
			}
			has, taken[c.Name] = true, true
		}
		if has {
			held = append(held, e)
		}
	}
	return held, len(taken)
}

// maxDeletedNodes is how many of total nodes the deletions of a commit may take.
func maxDeletedNodes(src *coppice.NodeSource, total int) int {
	text, percent := strings.CutSuffix(src.Spec.MaxDeletedNodes, "%")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0 // left out in an object that was stored before the API had it
	}
	if percent {
		return total * n / 100
	}
	return n
}

// settingsFile is where a tree confirms deletions.
const settingsFile = "coppice.cue"

// settingsBytes bounds the file: it is read in this process, and a parser's stack
// grows with what it reads.
const settingsBytes = 256 << 10

// confirmations reads the deletions that a tree confirms: the strings of the list
// deletes in its settings, each KIND/NAME or CLUSTER/KIND/NAME. They are read as
// they are written, without evaluation.
func confirmations(tree fs.FS) ([]string, error) {
	f, err := tree.Open(settingsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", settingsFile, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, settingsBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", settingsFile, err)
	}
	if len(data) > settingsBytes || !bytes.Contains(data, []byte("deletes")) {
		return nil, nil
	}
	names, findings := render.Deletions(data)
	if len(findings) > 0 {
		f := findings[0]
		return nil, fmt.Errorf("%s:%d: %s; %s", settingsFile, f.Pos.Line, f.Message, f.Help)
	}
	return names, nil
}
