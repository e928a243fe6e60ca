package isolate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/policies"
	"github.com/coppice-dev/coppice/render"
)

// Limits on what is passed to the child. They are above render's own limits, which
// the child applies to what it reads; these bound what the parent reads.
const (
	maxFile  = 4 << 20
	maxText  = 64 << 20
	maxFiles = 20_000
)

// header is the first line of a request; the files' contents follow in order.
type header struct {
	Clusters []string `json:"clusters"`
	// Alone says that each cluster is to be loaded by itself.
	Alone bool `json:"alone,omitempty"`
	// Policies says that the tree's policies are to be applied. Report asks for its rules
	// instead of its objects.
	Policies *policies.Options `json:"policies,omitempty"`
	Report   bool              `json:"report,omitempty"`
	Memory   int64             `json:"memory"`
	CPU      int64             `json:"cpu"`
	Files    []entry           `json:"files"`
}

// entry is one file or link. Of a link, and of a file that is too large to be
// read, the child gets to know that it exists and how large it is.
type entry struct {
	Name string      `json:"name"`
	Mode fs.FileMode `json:"mode"`
	Size int64       `json:"size"`
	Sent bool        `json:"sent,omitempty"`
}

// request is a tree on its way to the child.
type request struct {
	header header
	body   bytes.Buffer
}

// pack reads what an evaluation may need of a tree: its CUE, and if any of it
// embeds files, those that can be embedded. It returns how many bytes of CUE there are.
// read, if it isn't nil, gets each file of CUE.
func pack(tree fs.FS, clusters []string, read func(name string, text []byte)) (*request, int64, diag.List, error) {
	r := &request{}
	var text int64
	var data []entry
	embeds := false
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if d.IsDir() {
			if base := path.Base(name); base != "." && base != ".coppice-modules" && (strings.HasPrefix(base, ".") || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		e := entry{Name: name, Mode: info.Mode(), Size: info.Size()}
		switch ext := path.Ext(name); {
		case ext == ".cue":
			text += e.Size
			content, err := r.add(tree, e)
			if err != nil {
				return err
			}
			if read != nil {
				read(name, content)
			}
			embeds = embeds || bytes.Contains(content, []byte("@embed"))
		// A link in place of the folder of rules isn't followed, but must be seen.
		case name == ".gitmodules", name == ".git", path.Base(name) == ".git", name == "policies":
			_, err = r.add(tree, e)
			return err
		case Embeddable(name), !e.Mode.IsRegular():
			data = append(data, e)
		}
		return nil
	})
	// Data that nothing embeds may be as much as it likes: it isn't even counted.
	if embeds && err == nil {
		for _, e := range data {
			if _, err = r.add(tree, e); err != nil {
				break
			}
		}
	}
	tooLarge := func(message string) (*request, int64, diag.List, error) {
		return nil, 0, diag.List{{
			Code: CodeSize, Message: message, Pos: render.Place(tree, clusters[0]),
			Help: "keep the fleet's CUE in a folder of its own and let the source's path point there",
		}}, nil
	}
	switch {
	case errors.Is(err, errTooMany):
		return tooLarge(fmt.Sprintf("the tree has more than %d files", maxFiles))
	case errors.Is(err, errTooMuch):
		return tooLarge(fmt.Sprintf("the tree has more than %d MiB of CUE and data", maxText>>20))
	}
	return r, text, nil, err
}

// Embeddable reports whether a file may be read by CUE that embeds files, which says so by
// the word @embed.
func Embeddable(name string) bool {
	return slices.Contains([]string{".json", ".jsonl", ".yaml", ".yml", ".toml", ".xml", ".txt", ".textproto"}, path.Ext(name))
}

var (
	errTooMany = errors.New("too many files")
	errTooMuch = errors.New("too much text")
)

// add appends a file to the request and returns its content, if it is read.
func (r *request) add(tree fs.FS, e entry) ([]byte, error) {
	if len(r.header.Files) >= maxFiles {
		return nil, errTooMany
	}
	if !e.Mode.IsRegular() || e.Size > maxFile {
		r.header.Files = append(r.header.Files, e)
		return nil, nil
	}
	content, err := fs.ReadFile(tree, e.Name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", e.Name, err)
	}
	e.Sent, e.Size = true, int64(len(content))
	if int64(r.body.Len())+e.Size > maxText {
		return nil, errTooMuch
	}
	r.header.Files = append(r.header.Files, e)
	r.body.Write(content)
	return content, nil
}

// open returns what the child reads.
func (r *request) open() (io.Reader, error) {
	head, err := json.Marshal(r.header)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return io.MultiReader(bytes.NewReader(append(head, '\n')), bytes.NewReader(r.body.Bytes())), nil
}

// unpack reads a request in the child.
func unpack(in io.Reader) (header, *memFS, error) {
	r := bufio.NewReader(in)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return header{}, nil, fmt.Errorf("read request: %w", err)
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return header{}, nil, fmt.Errorf("read request: %w", err)
	}
	tree := &memFS{nodes: map[string]*node{".": {name: ".", mode: fs.ModeDir | 0o555}}}
	for _, e := range h.Files {
		n := &node{name: path.Base(e.Name), mode: e.Mode, size: e.Size}
		if e.Sent {
			n.content = make([]byte, e.Size)
			if _, err := io.ReadFull(r, n.content); err != nil {
				return header{}, nil, fmt.Errorf("read request: %s: %w", e.Name, err)
			}
		}
		tree.insert(e.Name, n)
	}
	tree.sort()
	return h, tree, nil
}

// memFS is the tree in the child's memory.
type memFS struct {
	nodes map[string]*node
}

type node struct {
	name     string
	mode     fs.FileMode
	size     int64
	content  []byte
	children []fs.DirEntry
}

// insert adds a file and the folders that lead to it.
func (m *memFS) insert(name string, n *node) {
	m.nodes[name] = n
	for child := n; ; {
		dir := path.Dir(name)
		parent, ok := m.nodes[dir]
		if !ok {
			parent = &node{name: path.Base(dir), mode: fs.ModeDir | 0o555}
			m.nodes[dir] = parent
		}
		parent.children = append(parent.children, child)
		if ok {
			return
		}
		name, child = dir, parent
	}
}

func (m *memFS) sort() {
	for _, n := range m.nodes {
		slices.SortFunc(n.children, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	}
}

func (m *memFS) find(op, name string) (*node, error) {
	if n := m.nodes[name]; n != nil && fs.ValidPath(name) {
		return n, nil
	}
	return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// Open implements fs.FS.
func (m *memFS) Open(name string) (fs.File, error) {
	n, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	if !n.IsDir() && int64(len(n.content)) != n.size || !n.IsDir() && !n.mode.IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("is not a plain file of a bearable size")}
	}
	return &openFile{node: n, Reader: bytes.NewReader(n.content)}, nil
}

// ReadDir implements fs.ReadDirFS.
func (m *memFS) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := m.find("readdir", name)
	if err != nil {
		return nil, err
	}
	if !n.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("is not a folder")}
	}
	return slices.Clone(n.children), nil
}

// Stat implements fs.StatFS. A link isn't followed.
func (m *memFS) Stat(name string) (fs.FileInfo, error) {
	n, err := m.find("stat", name)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// Lstat implements fs.ReadLinkFS.
func (m *memFS) Lstat(name string) (fs.FileInfo, error) { return m.Stat(name) }

// ReadLink implements fs.ReadLinkFS. The child doesn't know where links lead.
func (m *memFS) ReadLink(name string) (string, error) {
	return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrPermission}
}

func (n *node) Name() string               { return n.name }
func (n *node) Size() int64                { return n.size }
func (n *node) Mode() fs.FileMode          { return n.mode }
func (n *node) Type() fs.FileMode          { return n.mode.Type() }
func (n *node) ModTime() time.Time         { return time.Time{} }
func (n *node) IsDir() bool                { return n.mode.IsDir() }
func (n *node) Sys() any                   { return nil }
func (n *node) Info() (fs.FileInfo, error) { return n, nil }

type openFile struct {
	*node
	*bytes.Reader
	read int
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.node, nil }
func (f *openFile) Close() error               { return nil }
func (f *openFile) Size() int64                { return f.node.size }

// ReadDir implements fs.ReadDirFile.
func (f *openFile) ReadDir(count int) ([]fs.DirEntry, error) {
	rest := f.children[f.read:]
	if count > 0 {
		if len(rest) == 0 {
			return nil, io.EOF
		}
		rest = rest[:min(count, len(rest))]
	}
	f.read += len(rest)
	return slices.Clone(rest), nil
}
