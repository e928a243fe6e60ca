package pullrequest

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
)

// merge returns the files of a tree as they are after both sides' changes to base, and
// the files that both changed in the same places, which are shown as theirs. Hidden
// files and links have no part in it.
func merge(base, ours, theirs fs.FS) (fs.FS, []string, error) {
	b, err := files(base)
	if err != nil {
		return nil, nil, err
	}
	o, err := files(ours)
	if err != nil {
		return nil, nil, err
	}
	t, err := files(theirs)
	if err != nil {
		return nil, nil, err
	}
	out := &memory3{files: map[string][]byte{}, dirs: map[string][]fs.DirEntry{}}
	var conflicts []string
	names := map[string]bool{}
	for _, m := range []map[string][]byte{o, t} {
		for name := range m {
			names[name] = true
		}
	}
	for name := range names {
		was, had := b[name]
		our, haveOur := o[name]
		their, haveTheir := t[name]
		same := func(x []byte, inX bool, y []byte, inY bool) bool { return inX == inY && bytes.Equal(x, y) }
		switch {
		case same(our, haveOur, their, haveTheir), same(was, had, our, haveOur):
			if haveTheir {
				out.files[name] = their
			}
		case same(was, had, their, haveTheir):
			if haveOur {
				out.files[name] = our
			}
		default:
			if text, ok := mergeLines(was, our, their); ok && had && haveOur && haveTheir {
				out.files[name] = text
				continue
			}
			conflicts = append(conflicts, name)
			if haveTheir {
				out.files[name] = their
			}
		}
	}
	slices.Sort(conflicts)
	out.index()
	return out, conflicts, nil
}

// mergeLines merges two changes of a text if they touch different lines that don't
// border on each other. Each side's change is taken as one range of lines, from the
// first that differs to the last.
func mergeLines(base, ours, theirs []byte) ([]byte, bool) {
	b, o, t := bytes.SplitAfter(base, []byte("\n")), bytes.SplitAfter(ours, []byte("\n")), bytes.SplitAfter(theirs, []byte("\n"))
	ourFrom, ourTo := changed(b, o)
	theirFrom, theirTo := changed(b, t)
	if theirFrom < ourFrom {
		o, t = t, o
		ourFrom, ourTo, theirFrom, theirTo = theirFrom, theirTo, ourFrom, ourTo
	}
	if ourTo >= theirFrom {
		return nil, false
	}
	var out []byte
	for _, part := range [][][]byte{o[:len(o)-(len(b)-ourTo)], b[ourTo:theirFrom], t[theirFrom:]} {
		out = append(out, bytes.Join(part, nil)...)
	}
	return out, true
}

// changed is the range of a's lines that b has otherwise.
func changed(a, b [][]byte) (from, to int) {
	n := min(len(a), len(b))
	for from < n && bytes.Equal(a[from], b[from]) {
		from++
	}
	end := 0
	for end < n-from && bytes.Equal(a[len(a)-1-end], b[len(b)-1-end]) {
		end++
	}
	return from, len(a) - end
}

// files reads the files of a tree that an evaluation may need.
func files(tree fs.FS) (map[string][]byte, error) {
	out := map[string][]byte{}
	if tree == nil {
		return out, nil
	}
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".") && d.Name() != ".coppice-modules":
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		out[name] = text
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the tree: %w", err)
	}
	return out, nil
}

// equalFiles reports whether two trees hold the same.
func equalFiles(a, b fs.FS) (bool, error) {
	x, err := files(a)
	if err != nil {
		return false, err
	}
	y, err := files(b)
	if err != nil || len(x) != len(y) {
		return false, err
	}
	for name, text := range x {
		other, ok := y[name]
		if !ok || !bytes.Equal(text, other) {
			return false, nil
		}
	}
	return true, nil
}

// memory3 is the tree that a merge of three makes.
type memory3 struct {
	files map[string][]byte
	dirs  map[string][]fs.DirEntry
}

// index lists the folders' entries.
func (m *memory3) index() {
	m.dirs["."] = nil
	seen := map[string]bool{".": true}
	add := func(e entry) {
		dir := path.Dir(e.path)
		m.dirs[dir] = append(m.dirs[dir], e)
	}
	for name, text := range m.files {
		add(entry{path: name, size: int64(len(text))})
		for dir := path.Dir(name); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			add(entry{path: dir, dir: true})
		}
	}
	for _, list := range m.dirs {
		slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	}
}

func (m *memory3) find(op, name string) (entry, error) {
	if !fs.ValidPath(name) {
		return entry{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	if text, ok := m.files[name]; ok {
		return entry{path: name, size: int64(len(text))}, nil
	}
	if _, ok := m.dirs[name]; ok {
		return entry{path: name, dir: true}, nil
	}
	return entry{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// Open opens a file or a folder.
func (m *memory3) Open(name string) (fs.File, error) {
	e, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	return &openEntry{entry: e, Reader: bytes.NewReader(m.files[name]), left: m.dirs[name]}, nil
}

// Stat describes a file or a folder.
func (m *memory3) Stat(name string) (fs.FileInfo, error) {
	e, err := m.find("stat", name)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// entry is a file or a folder.
type entry struct {
	path string
	dir  bool
	size int64
}

func (e entry) Name() string               { return path.Base(e.path) }
func (e entry) IsDir() bool                { return e.dir }
func (e entry) Type() fs.FileMode          { return e.Mode().Type() }
func (e entry) Info() (fs.FileInfo, error) { return e, nil }
func (e entry) Size() int64                { return e.size }
func (e entry) ModTime() time.Time         { return time.Time{} }
func (e entry) Sys() any                   { return nil }

func (e entry) Mode() fs.FileMode {
	if e.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

type openEntry struct {
	entry
	*bytes.Reader
	left []fs.DirEntry
}

func (o *openEntry) Stat() (fs.FileInfo, error) { return o.entry, nil }
func (o *openEntry) Size() int64                { return o.entry.size }
func (o *openEntry) Close() error               { return nil }

func (o *openEntry) Read(p []byte) (int, error) {
	if o.dir {
		return 0, &fs.PathError{Op: "read", Path: o.path, Err: errors.New("is a folder")}
	}
	return o.Reader.Read(p)
}

func (o *openEntry) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		list := o.left
		o.left = nil
		return list, nil
	}
	if len(o.left) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(o.left))
	list := o.left[:n]
	o.left = o.left[n:]
	return list, nil
}
