package render

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"cuelang.org/go/cue/ast"

	"github.com/coppice-dev/coppice/internal/diag"
)

// Limits on what is read from one tree. A fleet's CUE is kilobytes; the limits
// only keep an accident or an attack from filling the memory.
const (
	maxFileBytes = 4 << 20
	maxTreeBytes = 64 << 20
)

// mountRoot is where modules are visible to CUE's loader, outside of the
// author's folders. The name can't clash with a package's folder, since the
// loader takes no package from below a folder whose name begins with a dot.
const mountRoot = ".coppice-modules"

// errRefused is what CUE's loader gets for a file that the tree refuses. The
// finding that explains it is kept in tree.refused.
var errRefused = errors.New("refused")

// mount makes a module visible at mountRoot/path.
type mount struct {
	// module is the module's path without its major version.
	module string
	layers []fs.FS
	// origin is the folder that the files really stand in, for positions.
	origins []string
}

// tree is the author's tree as CUE's loader sees it: with the mounted modules,
// with replaced files, without the folders that mounts replace, and without
// symbolic links and oversized files.
//
// It must not be copied.
type tree struct {
	base   fs.FS
	mounts []mount
	// replaced holds files that stand in for the author's.
	replaced map[string][]byte

	submodules []string
	// module is the path of the tree's own module, without its major version.
	module string

	// imports holds what importsOf found by folder and name of a package, notText the
	// faults of files that can't be CUE, and files those that the last package
	// consists of, with what it imports.
	imports map[[2]string][]*ast.File
	notText map[string]diag.Finding
	files   []string

	holes holes
	// edits change the author's files before they are compiled.
	edits []func(*ast.File)

	// omitted are files that were refused, and are no more to be seen.
	omitted map[string]bool

	mu      sync.Mutex
	read    int64
	checked map[string]error
	refused diag.List
}

func newTree(base fs.FS) *tree {
	return &tree{
		base: base, replaced: map[string][]byte{}, submodules: submodules(base), checked: map[string]error{}, omitted: map[string]bool{},
		imports: map[[2]string][]*ast.File{}, notText: map[string]diag.Finding{},
	}
}

// hidden reports whether the loader may not see name at all: vendored modules
// are mounted instead, and a local-module.cue could point outside of the tree.
func hidden(name string) bool {
	for _, h := range []string{"cue.mod/pkg", "cue.mod/gen", "cue.mod/usr", "cue.mod/local-module.cue"} {
		if name == h || strings.HasPrefix(name, h+"/") {
			return true
		}
	}
	return false
}

// refuse records why a file isn't read and returns the error for the loader.
func (t *tree) refuse(name, message, help string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused = append(t.refused, diag.Finding{
		Code:    CodeTree,
		Message: message,
		Pos:     diag.Position{File: name},
		Help:    help,
	})
	return &fs.PathError{Op: "open", Path: name, Err: errRefused}
}

// omitRefused hides the files that were refused, so that what stands beside them can be
// evaluated. It returns false if it isn't files of a package alone that were.
func (t *tree) omitRefused() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.refused {
		if path.Ext(f.Pos.File) != ".cue" || t.read > maxTreeBytes {
			return false
		}
	}
	for _, f := range t.refused {
		t.omitted[f.Pos.File] = true
	}
	t.refused, t.holes.unread = nil, true
	return true
}

// Open implements fs.FS.
func (t *tree) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if data, ok := t.replaced[name]; ok {
		return openBytes(name, data)
	}
	if name == mountRoot {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if m, rest, ok := t.mounted(name); ok {
		if rest == "cue.mod/module.cue" {
			return openBytes(name, m.moduleFile())
		}
		for _, layer := range m.layers {
			if f, err := layer.Open(rest); err == nil {
				return f, nil
			}
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if hidden(name) || t.omitted[name] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return t.openBase(name)
}

// ReadDir implements fs.ReadDirFS.
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	if m, rest, ok := t.mounted(name); ok {
		return m.readDir(rest)
	}
	if hidden(name) {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	if err := t.checkPath(name); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(t.base, name)
	if err != nil && len(t.replacedIn(name)) == 0 {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e fs.DirEntry) bool {
		file := path.Join(name, e.Name())
		return hidden(file) || t.omitted[file]
	}), nil
}

// Stat implements fs.StatFS, so that asking for a file's existence isn't reading it.
func (t *tree) Stat(name string) (fs.FileInfo, error) {
	if len(t.replacedIn(name)) > 0 {
		return memInfo{name: path.Base(name), mode: fs.ModeDir | 0o555}, nil
	}
	if _, ok := t.replaced[name]; !ok {
		if _, _, mounted := t.mounted(name); !mounted && !hidden(name) {
			return fs.Stat(t.base, name)
		}
	}
	f, err := t.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	return info, errors.Join(err, f.Close())
}

// replacedIn lists the replaced files that stand directly in folder dir.
func (t *tree) replacedIn(dir string) []string {
	var names []string
	for name := range t.replaced {
		if path.Dir(name) == dir {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// openBase opens a file of the author's tree after checking that it is one.
func (t *tree) openBase(name string) (fs.File, error) {
	if err := t.checkPath(name); err != nil {
		return nil, err
	}
	// Opening may mean reading all of it, so the size is asked for first.
	info, err := fs.Stat(t.base, name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return t.base.Open(name)
	}
	if !info.Mode().IsRegular() {
		return nil, t.refuse(name, "is not a regular file", "replace it with a plain file")
	}
	if info.Size() > maxFileBytes {
		return nil, t.refuse(name,
			fmt.Sprintf("is %d MiB, more than the limit of %d MiB", info.Size()>>20, maxFileBytes>>20),
			"split the file, or keep data that isn't configuration out of the package")
	}
	t.mu.Lock()
	t.read += info.Size()
	over := t.read > maxTreeBytes
	t.mu.Unlock()
	if over {
		return nil, t.refuse(name,
			fmt.Sprintf("brings the text of this tree above the limit of %d MiB", maxTreeBytes>>20),
			"split the tree into several sources")
	}
	return t.base.Open(name)
}

// checkPath refuses a path that leads through a symbolic link or into a
// submodule: what stands there isn't part of the commit.
func (t *tree) checkPath(name string) error {
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		prefix := name[:i]
		if prefix == "" || prefix == "." {
			continue
		}
		t.mu.Lock()
		known, seen := t.checked[prefix]
		t.mu.Unlock()
		if !seen {
			known = t.checkEntry(prefix)
			t.mu.Lock()
			t.checked[prefix] = known
			t.mu.Unlock()
		}
		if known != nil {
			return known
		}
	}
	return nil
}

func (t *tree) checkEntry(name string) error {
	if info, err := fs.Lstat(t.base, name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return t.refuse(name, "is a symbolic link, which is never followed",
			"replace the link with the file or folder that it points to, or import that package")
	}
	git, err := fs.Stat(t.base, name+"/.git")
	if slices.Contains(t.submodules, name) || err == nil && git.Mode().IsRegular() {
		return t.refuse(name, "is a Git submodule, which is never fetched",
			"vendor what it holds under cue.mod/pkg, or make it part of this repository")
	}
	return nil
}

// submodules lists the folders that .gitmodules declares.
func submodules(base fs.FS) []string {
	info, err := fs.Lstat(base, ".gitmodules")
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil
	}
	text, err := fs.ReadFile(base, ".gitmodules")
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == "path" {
			out = append(out, path.Clean(strings.Trim(strings.TrimSpace(value), `"`)))
		}
	}
	return out
}

// mounted splits a path below mountRoot into its mount and the rest.
func (t *tree) mounted(name string) (*mount, string, bool) {
	below, ok := strings.CutPrefix(name, mountRoot+"/")
	if !ok {
		return nil, "", false
	}
	for i, m := range t.mounts {
		if below == m.module {
			return &t.mounts[i], ".", true
		}
		if rest, ok := strings.CutPrefix(below, m.module+"/"); ok {
			return &t.mounts[i], rest, true
		}
	}
	return nil, "", false
}

// origin turns a file name of the loader into the name that people know.
func (t *tree) origin(name string) string {
	name = strings.TrimPrefix(name, "/")
	m, rest, ok := t.mounted(name)
	if !ok {
		return name
	}
	for i, layer := range m.layers {
		if _, err := fs.Stat(layer, rest); err == nil {
			return path.Join(m.origins[i], rest)
		}
	}
	return path.Join(m.origins[0], rest)
}

// foreign reports whether the loader's file name belongs to a mounted module.
func foreign(name string) bool {
	return strings.HasPrefix(strings.TrimPrefix(name, "/"), mountRoot+"/")
}

// moduleFile is the module file that the loader wants to see in a module.
func (m *mount) moduleFile() []byte {
	return fmt.Appendf(nil, "module: %q\nlanguage: version: %q\n", m.module+"@v0", languageVersion)
}

func (m *mount) readDir(name string) ([]fs.DirEntry, error) {
	var all []fs.DirEntry
	found := false
	for _, layer := range m.layers {
		entries, err := fs.ReadDir(layer, name)
		if err != nil {
			continue
		}
		found = true
		for _, e := range entries {
			if !slices.ContainsFunc(all, func(o fs.DirEntry) bool { return o.Name() == e.Name() }) {
				all = append(all, e)
			}
		}
	}
	if !found {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all, nil
}
