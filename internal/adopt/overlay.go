package adopt

import (
	"bytes"
	"io/fs"
	"path"
	"time"
)

// overlay is a tree with the content of some files replaced.
type overlay struct {
	fs.FS
	files map[string][]byte
}

// Open opens a file of the tree, or what replaces it.
func (o overlay) Open(name string) (fs.File, error) {
	if text, ok := o.files[name]; ok {
		return opened{bytes.NewReader(text), info{path.Base(name), int64(len(text))}}, nil
	}
	return o.FS.Open(name)
}

// ReadFile returns a file's content.
func (o overlay) ReadFile(name string) ([]byte, error) {
	if text, ok := o.files[name]; ok {
		return bytes.Clone(text), nil
	}
	return fs.ReadFile(o.FS, name)
}

// Lstat is that of the tree, which alone knows of symbolic links.
func (o overlay) Lstat(name string) (fs.FileInfo, error) {
	if text, ok := o.files[name]; ok {
		return info{path.Base(name), int64(len(text))}, nil
	}
	return fs.Lstat(o.FS, name)
}

// ReadLink is that of the tree.
func (o overlay) ReadLink(name string) (string, error) { return fs.ReadLink(o.FS, name) }

type opened struct {
	*bytes.Reader
	info info
}

func (f opened) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f opened) Close() error               { return nil }

// info describes a file in memory.
type info struct {
	name string
	size int64
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return 0o444 }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return false }
func (i info) Sys() any           { return nil }
