package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/memory"
)

// Write is what a branch shall hold.
type Write struct {
	// Branch is a short name. A branch that doesn't exist is begun with a commit
	// that has no parent, so that it holds nothing but what was written to it.
	Branch string
	// Files maps a path to the content that it shall have; nil removes the file.
	// Files that aren't named stay as they are.
	Files map[string][]byte
	// Seed is added to Files when the branch is begun.
	Seed map[string][]byte
	// Author is also the committer.
	Author Identity
	// Message is the whole commit message, trailers included.
	Message string
	// Now is the commit's time.
	Now time.Time
	// Signer signs the commit; nil leaves it unsigned.
	Signer *Signer
}

// Retry says how often and how patiently Push starts over when others push to
// the same branch at the same time.
type Retry struct {
	// Attempts is the number of tries in all, DefaultAttempts if zero.
	Attempts int
	// Delay is the mean wait before the second try, DefaultDelay if zero; it
	// doubles with each further one.
	Delay time.Duration
	// Jitter returns numbers in [0,1) and spreads the waits over half to one and
	// a half times their mean. Nil means no spreading.
	Jitter func() float64
}

// A try is lost only to a push that landed, so with eight attempts eight writers
// that start in the same instant all land. The seventh wait is 6.4 s long.
const (
	DefaultAttempts = 8
	DefaultDelay    = 100 * time.Millisecond
)

// Pushed is the outcome of a Push.
type Pushed struct {
	// Hash is the branch's tip afterwards, "" if there is no branch.
	Hash string
	// Changed is false if the branch held the content already; no commit was
	// made then.
	Changed bool
	// Tries counts from 1.
	Tries int
}

// Push makes the branch hold the wanted files by one commit on top of its tip,
// or does nothing if it holds them. When somebody else moves the branch
// meanwhile, it starts over from the new tip, so that no commit of others is
// ever lost or overwritten.
func (r Remote) Push(ctx context.Context, w Write, retry Retry) (Pushed, error) {
	if err := w.validate(); err != nil {
		return Pushed{}, r.fail(ctx, "push", err)
	}
	attempts, delay := retry.Attempts, retry.Delay
	if attempts == 0 {
		attempts = DefaultAttempts
	}
	if delay == 0 {
		delay = DefaultDelay
	}
	for try := 1; ; try++ {
		out, err := r.pushOnce(ctx, w)
		out.Tries = try
		if err == nil || !errors.Is(err, ErrConflict) || try == attempts {
			return out, err
		}
		spread := 0.5
		if retry.Jitter != nil {
			spread = retry.Jitter()
		}
		wait := time.NewTimer(time.Duration(float64(delay) * (0.5 + spread)))
		select {
		case <-ctx.Done():
			wait.Stop()
			return out, r.fail(ctx, "push", ctx.Err())
		case <-wait.C:
		}
		delay *= 2
	}
}

func (w Write) validate() error {
	name := plumbing.NewBranchReferenceName(w.Branch)
	if err := name.Validate(); err != nil {
		return fmt.Errorf("branch %q is not a valid name", w.Branch)
	}
	if w.Author.Name == "" || w.Author.Email == "" {
		return errors.New("the author needs a name and an e-mail address")
	}
	for _, files := range []map[string][]byte{w.Files, w.Seed} {
		for name := range files {
			if name == "." || !fs.ValidPath(name) {
				return fmt.Errorf("%q is not a path inside the repository", name)
			}
		}
	}
	return nil
}

// pushOnce builds on the tip as it is now. Its error is ErrConflict if the
// branch moved before the commit arrived.
func (r Remote) pushOnce(ctx context.Context, w Write) (Pushed, error) {
	sess, adv, err := r.openWrite(ctx)
	if err != nil {
		return Pushed{}, err
	}
	defer func() { _ = sess.Close() }()
	branch := plumbing.NewBranchReferenceName(w.Branch)
	tip := adv.References[branch.String()]

	b := builder{store: memory.NewStorage()}
	var before *object.Tree
	if !tip.IsZero() {
		if b.store, before, err = r.tipTree(ctx, tip); err != nil {
			return Pushed{}, err
		}
	}
	commit, err := b.commit(before, tip, w)
	if err != nil {
		return Pushed{}, r.fail(ctx, "push", err)
	}
	if commit.IsZero() {
		return Pushed{Hash: hashText(tip)}, nil
	}
	return r.land(ctx, sess, adv, b, &packp.Command{Name: branch, Old: tip, New: commit})
}

// openWrite opens a session for pushing, which the caller closes, and lists what is there.
func (r Remote) openWrite(ctx context.Context) (transport.ReceivePackSession, *packp.AdvRefs, error) {
	sess, err := r.writeSession(ctx)
	if err != nil {
		return nil, nil, r.fail(ctx, "push", err)
	}
	adv, err := sess.AdvertisedReferencesContext(ctx)
	if err != nil {
		_ = sess.Close()
		return nil, nil, r.fail(ctx, "push", err)
	}
	return sess, adv, nil
}

// land moves a branch on the server as a command says, and tells from where the branch
// is afterwards what became of it.
func (r Remote) land(ctx context.Context, sess transport.ReceivePackSession, adv *packp.AdvRefs, b builder, cmd *packp.Command) (Pushed, error) {
	err := b.send(ctx, sess, adv, cmd)
	if err == nil {
		return Pushed{Hash: cmd.New.String(), Changed: true}, nil
	}
	if now, listErr := r.tip(ctx, cmd.Name); listErr == nil && now == cmd.New {
		// The answer was lost, the commit wasn't.
		return Pushed{Hash: cmd.New.String(), Changed: true}, nil
	} else if listErr == nil && now != cmd.Old {
		return Pushed{Hash: hashText(now)}, r.failKind("push", ErrConflict, "branch "+cmd.Name.Short())
	}
	var refused *refusedError
	if errors.As(err, &refused) {
		return Pushed{Hash: hashText(cmd.Old)}, r.failKind("push", ErrRejected, refused.Error())
	}
	return Pushed{Hash: hashText(cmd.Old)}, r.fail(ctx, "push", err)
}

func hashText(h plumbing.Hash) string {
	if h.IsZero() {
		return ""
	}
	return h.String()
}

// tipTree gets the tree of a branch's tip. A tip that is gone by now is a
// conflict like any other.
func (r Remote) tipTree(ctx context.Context, tip plumbing.Hash) (*memory.Storage, *object.Tree, error) {
	conv, err := r.openRead(ctx)
	if err != nil {
		return nil, nil, r.fail(ctx, "push", err)
	}
	defer conv.close()
	store := memory.NewStorage()
	if err := conv.get(ctx, store, request{wants: []plumbing.Hash{tip}, depth: 1}); err != nil {
		return nil, nil, r.fail(ctx, "push", err)
	}
	c, err := object.GetCommit(store, tip)
	if err != nil {
		return nil, nil, r.failKind("push", ErrConflict, "the tip is gone")
	}
	tree, err := c.Tree()
	if err != nil {
		return nil, nil, r.fail(ctx, "push", err)
	}
	return store, tree, nil
}

// tip returns where a branch points now, or the zero hash.
func (r Remote) tip(ctx context.Context, branch plumbing.ReferenceName) (plumbing.Hash, error) {
	conv, err := r.openRead(ctx)
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return plumbing.ZeroHash, nil
	}
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer conv.close()
	return conv.adv.References[branch.String()], nil
}

// refusedError is a server's answer to a command that it did not carry out.
type refusedError struct{ status string }

func (e *refusedError) Error() string { return e.status }

// builder makes the objects of one commit and remembers which are new.
type builder struct {
	store *memory.Storage
	made  []plumbing.Hash
}

// commit returns the hash of a commit that holds the wanted files, or the zero
// hash if before does already.
func (b *builder) commit(before *object.Tree, parent plumbing.Hash, w Write) (plumbing.Hash, error) {
	files := w.Files
	if parent.IsZero() {
		files = begin(w)
		if files == nil {
			return plumbing.ZeroHash, nil
		}
	}
	root := emptyTree()
	if before != nil {
		root = before.Hash
	}
	wanted := root
	// In order, so that the same input makes the same objects in the same order.
	for _, name := range slices.Sorted(maps.Keys(files)) {
		next, err := b.put(wanted, strings.Split(name, "/"), files[name])
		if err != nil {
			return plumbing.ZeroHash, fmt.Errorf("write %q: %w", name, err)
		}
		wanted = next
	}
	if wanted == root {
		return plumbing.ZeroHash, nil
	}
	if wanted == emptyTree() {
		// Nothing made it, so nothing stored it yet.
		if _, err := b.tree(nil); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	who := object.Signature{Name: w.Author.Name, Email: w.Author.Email, When: w.Now.UTC()}
	c := &object.Commit{Author: who, Committer: who, Message: w.Message, TreeHash: wanted}
	if !parent.IsZero() {
		c.ParentHashes = []plumbing.Hash{parent}
	}
	if w.Signer != nil {
		if err := sign(c, w); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	return b.save(c)
}

// sign puts the signature into a commit that is complete otherwise.
func sign(c *object.Commit, w Write) error {
	raw := &plumbing.MemoryObject{}
	if err := c.EncodeWithoutSignature(raw); err != nil {
		return fmt.Errorf("encode commit: %w", err)
	}
	r, err := raw.Reader()
	if err != nil {
		return fmt.Errorf("encode commit: %w", err)
	}
	payload, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("encode commit: %w", err)
	}
	c.PGPSignature, err = w.Signer.sign(payload, w.Now.UTC())
	return err
}

// begin returns the files of a branch's first commit, nil if there is nothing
// that would need a branch.
func begin(w Write) map[string][]byte {
	all := map[string][]byte{}
	for name, content := range w.Files {
		if content != nil {
			all[name] = content
		}
	}
	if len(all) == 0 {
		return nil
	}
	for name, content := range w.Seed {
		if _, ok := all[name]; !ok {
			all[name] = content
		}
	}
	return all
}

// emptyTree returns the hash that Git gives a tree without entries.
func emptyTree() plumbing.Hash { return plumbing.ComputeHash(plumbing.TreeObject, nil) }

// put returns the tree that root becomes when the file at parts has the given
// content, or is gone if that is nil. Folders that become empty go too.
func (b *builder) put(root plumbing.Hash, parts []string, content []byte) (plumbing.Hash, error) {
	var entries []object.TreeEntry
	if root != emptyTree() {
		tree, err := object.GetTree(b.store, root)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		entries = slices.Clone(tree.Entries)
	}
	at := slices.IndexFunc(entries, func(e object.TreeEntry) bool { return e.Name == parts[0] })
	entry := object.TreeEntry{Name: parts[0], Mode: filemode.Regular}
	if len(parts) > 1 {
		below := emptyTree()
		if at >= 0 && entries[at].Mode == filemode.Dir {
			below = entries[at].Hash
		}
		sub, err := b.put(below, parts[1:], content)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		if sub == below {
			return root, nil
		}
		entry.Mode, entry.Hash = filemode.Dir, sub
	} else if content != nil {
		blob, err := b.blob(content)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		entry.Hash = blob
	}
	gone := entry.Hash.IsZero() || entry.Hash == emptyTree()
	switch {
	case gone && at < 0:
		return root, nil
	case gone:
		entries = slices.Delete(entries, at, at+1)
	case at >= 0 && entries[at].Hash == entry.Hash && entries[at].Mode == entry.Mode:
		return root, nil
	case at >= 0:
		entries[at] = entry
	default:
		entries = append(entries, entry)
	}
	if len(entries) == 0 {
		return emptyTree(), nil
	}
	return b.tree(entries)
}

func (b *builder) blob(content []byte) (plumbing.Hash, error) {
	obj := b.store.NewEncodedObject()
	obj.SetType(plumbing.BlobObject)
	w, err := obj.Writer()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	if _, err := w.Write(content); err != nil {
		return plumbing.ZeroHash, err
	}
	if err := w.Close(); err != nil {
		return plumbing.ZeroHash, err
	}
	return b.keep(obj)
}

func (b *builder) tree(entries []object.TreeEntry) (plumbing.Hash, error) {
	sort.Sort(object.TreeEntrySorter(entries))
	return b.save(&object.Tree{Entries: entries})
}

type encodable interface {
	Encode(plumbing.EncodedObject) error
}

func (b *builder) save(o encodable) (plumbing.Hash, error) {
	obj := b.store.NewEncodedObject()
	if err := o.Encode(obj); err != nil {
		return plumbing.ZeroHash, err
	}
	return b.keep(obj)
}

func (b *builder) keep(obj plumbing.EncodedObject) (plumbing.Hash, error) {
	h, err := b.store.SetEncodedObject(obj)
	if err == nil && !slices.Contains(b.made, h) {
		b.made = append(b.made, h)
	}
	return h, err
}

// send moves the branch from cmd.Old to cmd.New on the server, which does it
// only if the branch is still at cmd.Old.
func (b *builder) send(ctx context.Context, sess transport.ReceivePackSession, adv *packp.AdvRefs, cmd *packp.Command) error {
	var pack bytes.Buffer
	if _, err := packfile.NewEncoder(&pack, b.store, false).Encode(b.made, 0); err != nil {
		return err
	}
	req := packp.NewReferenceUpdateRequestFromCapabilities(adv.Capabilities)
	req.Commands = []*packp.Command{cmd}
	req.Packfile = io.NopCloser(&pack)
	report, err := sess.ReceivePack(ctx, req)
	if report != nil {
		for _, status := range report.CommandStatuses {
			if status.Error() != nil {
				return &refusedError{status: status.Status}
			}
		}
		if report.UnpackStatus != "ok" {
			return &refusedError{status: "unpack: " + report.UnpackStatus}
		}
	}
	return err
}
