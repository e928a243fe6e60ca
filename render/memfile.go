package render

import (
	"bytes"
	"io/fs"
	"path"
	"time"
)

// memFile is a file that exists in memory alone.
type memFile struct {
	*bytes.Reader
	info memInfo
}

func openBytes(name string, data []byte) (fs.File, error) {
	return memFile{bytes.NewReader(data), memInfo{name: path.Base(name), size: int64(len(data)), mode: 0o444}}, nil
}

func (f memFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f memFile) Close() error               { return nil }

type memInfo struct {
	name string
	size int64
	mode fs.FileMode
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) Mode() fs.FileMode  { return i.mode }
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) IsDir() bool        { return i.mode.IsDir() }
func (i memInfo) Sys() any           { return nil }

// guardedDir is a folder of the author's tree as a file system of its own,
// under the same checks as the tree.
type guardedDir struct {
	tree *tree
	dir  string
}

func (g guardedDir) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return g.tree.openBase(path.Join(g.dir, name))
}

func (g guardedDir) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := g.tree.checkPath(path.Join(g.dir, name)); err != nil {
		return nil, err
	}
	return fs.ReadDir(g.tree.base, path.Join(g.dir, name))
}

func (g guardedDir) Stat(name string) (fs.FileInfo, error) {
	return fs.Stat(g.tree.base, path.Join(g.dir, name))
}
