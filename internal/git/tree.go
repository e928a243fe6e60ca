package git

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// maxDepth bounds how deep folders nest; a repository for people stays far below.
const maxDepth = 64

// refusedShown is how many refused entries an error names.
const refusedShown = 5

// FS shows a folder of the commit ("" or "." is its root) as a read-only file
// system. Everything below the folder is looked at first: if there is a
// symbolic link, a submodule or a malformed name anywhere, the result is an
// error of kind ErrTree that names the first few. Files report no time of
// change, so that the file system is a function of the tree alone.
func (c *Commit) FS(dir string) (fs.FS, error) {
	clean, err := cleanDir(dir)
	if err != nil {
		return nil, &Error{Op: "read", URL: c.remote, Kind: ErrTree, Detail: err.Error()}
	}
	root := c.tree
	if clean != "." {
		root, err = c.tree.Tree(clean)
		if err != nil {
			return nil, &Error{Op: "read", URL: c.remote, Kind: ErrTree,
				Detail: fmt.Sprintf("there is no folder %q in %s", clean, c.Revision.Short())}
		}
	}
	t := &treeFS{store: c.store, nodes: map[string]*node{}}
	ix := indexer{commit: c, fs: t, base: clean, left: c.limits.Files}
	if err := ix.folder(root, ".", 0); err != nil {
		return nil, &Error{Op: "read", URL: c.remote, Kind: ErrTooLarge, Detail: err.Error()}
	}
	if len(ix.refused) > 0 {
		return nil, &Error{Op: "read", URL: c.remote, Kind: ErrTree, Detail: refusedText(ix.refused)}
	}
	return t, nil
}

// cleanDir makes a path that fs.ValidPath accepts of what users write.
func cleanDir(dir string) (string, error) {
	clean := path.Clean(strings.TrimPrefix(strings.TrimPrefix(dir, "./"), "/"))
	if dir == "" || dir == "/" || dir == "./" {
		clean = "."
	}
	if !fs.ValidPath(clean) || strings.Contains(clean, `\`) {
		return "", fmt.Errorf("%q leads out of the repository", dir)
	}
	return clean, nil
}

func refusedText(refused []string) string {
	shown := refused
	if len(shown) > refusedShown {
		shown = shown[:refusedShown]
	}
	text := strings.Join(shown, ", ")
	if more := len(refused) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + "; replace them by plain files, or point the source at a folder without them"
}

// treeFS is an index over the files of a tree.
type treeFS struct {
	// store holds the content of the nodes that have none of their own.
	store storer.EncodedObjectStorer
	nodes map[string]*node
}

// node is a file or a folder. It is its own fs.FileInfo and fs.DirEntry.
type node struct {
	name     string
	hash     plumbing.Hash
	data     []byte
	size     int64
	folder   bool
	exec     bool
	children []fs.DirEntry
}

func (n *node) Name() string               { return n.name }
func (n *node) IsDir() bool                { return n.folder }
func (n *node) Size() int64                { return n.size }
func (n *node) ModTime() time.Time         { return time.Time{} }
func (n *node) Sys() any                   { return nil }
func (n *node) Type() fs.FileMode          { return n.Mode().Type() }
func (n *node) Info() (fs.FileInfo, error) { return n, nil }

// sort brings a folder's entries in the order of fs.ReadDir. (Git sorts folders as
// if their names ended in a slash.)
func (n *node) sort() {
	slices.SortFunc(n.children, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
}

func (n *node) Mode() fs.FileMode {
	switch {
	case n.folder:
		return fs.ModeDir | 0o555
	case n.exec:
		return 0o555
	}
	return 0o444
}

// indexer fills a treeFS and collects what is refused.
type indexer struct {
	commit  *Commit
	fs      *treeFS
	base    string
	left    int
	refused []string
}

func (ix *indexer) folder(tree *object.Tree, at string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("folders nest deeper than %d at %q", maxDepth, path.Join(ix.base, at))
	}
	dir := &node{name: path.Base(at), folder: true}
	ix.fs.nodes[at] = dir
	seen := make(map[string]bool, len(tree.Entries))
	for _, e := range tree.Entries {
		if ix.left--; ix.left < 0 {
			return fmt.Errorf("more than %d files and folders", ix.commit.limits.Files)
		}
		full := path.Join(at, e.Name)
		switch {
		case !plainName(e.Name) || seen[e.Name]:
			ix.refuse(full, "malformed name")
			continue
		case e.Mode == filemode.Symlink:
			ix.refuse(full, "symbolic link")
			continue
		case e.Mode == filemode.Submodule:
			ix.refuse(full, "submodule")
			continue
		}
		seen[e.Name] = true
		if e.Mode == filemode.Dir {
			sub, err := object.GetTree(ix.commit.store, e.Hash)
			if err != nil {
				ix.refuse(full, "missing folder")
				continue
			}
			if err := ix.folder(sub, full, depth+1); err != nil {
				return err
			}
			dir.children = append(dir.children, ix.fs.nodes[full])
			continue
		}
		size, err := ix.commit.store.EncodedObjectSize(e.Hash)
		if err != nil {
			ix.refuse(full, "missing content")
			continue
		}
		n := &node{name: e.Name, hash: e.Hash, size: size, exec: e.Mode == filemode.Executable}
		ix.fs.nodes[full] = n
		dir.children = append(dir.children, n)
	}
	dir.sort()
	return nil
}

func (ix *indexer) refuse(at, what string) {
	ix.refused = append(ix.refused, fmt.Sprintf("%q (%s)", path.Join(ix.base, at), what))
}

// plainName reports whether a tree entry's name is one path element.
func plainName(name string) bool {
	return name != "." && fs.ValidPath(name) && !strings.ContainsAny(name, "/\\\x00") &&
		!strings.EqualFold(name, ".git")
}

func (t *treeFS) find(op, name string) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	n, ok := t.nodes[name]
	if !ok {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return n, nil
}

// Open implements fs.FS.
func (t *treeFS) Open(name string) (fs.File, error) {
	n, err := t.find("open", name)
	if err != nil {
		return nil, err
	}
	if n.folder {
		return &openDir{node: n, path: name}, nil
	}
	data, err := t.read(n)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &openFile{node: n, Reader: bytes.NewReader(data)}, nil
}

// ReadFile implements fs.ReadFileFS.
func (t *treeFS) ReadFile(name string) ([]byte, error) {
	n, err := t.find("read", name)
	if err != nil {
		return nil, err
	}
	if n.folder {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("is a directory")}
	}
	data, err := t.read(n)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return data, nil
}

// ReadDir implements fs.ReadDirFS.
func (t *treeFS) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.find("readdir", name)
	if err != nil {
		return nil, err
	}
	if !n.folder {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("not a directory")}
	}
	return slices.Clone(n.children), nil
}

// Stat implements fs.StatFS.
func (t *treeFS) Stat(name string) (fs.FileInfo, error) {
	n, err := t.find("stat", name)
	if err != nil {
		return nil, err
	}
	return n, nil
}

func (t *treeFS) read(n *node) ([]byte, error) {
	if t.store == nil {
		return slices.Clone(n.data), nil
	}
	obj, err := t.store.EncodedObject(plumbing.BlobObject, n.hash)
	if err != nil {
		return nil, err
	}
	rd, err := obj.Reader()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(rd)
	return data, errors.Join(err, rd.Close())
}

// openFile is a file being read.
type openFile struct {
	*bytes.Reader
	node *node
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.node, nil }
func (f *openFile) Close() error               { return nil }

// openDir is a folder being listed.
type openDir struct {
	node *node
	path string
	next int
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.node, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.path, Err: errors.New("is a directory")}
}

// ReadDir implements fs.ReadDirFile.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	rest := d.node.children[d.next:]
	if n > 0 {
		if len(rest) == 0 {
			return nil, io.EOF
		}
		rest = rest[:min(n, len(rest))]
	}
	d.next += len(rest)
	return slices.Clone(rest), nil
}
