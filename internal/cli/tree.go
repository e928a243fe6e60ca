package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
)

// localTree is a folder that was named on the command line. Findings in it are
// shown with paths that the user can open from where they are.
type localTree struct {
	fs fs.FS
	// prefix is the way to the tree, "" or a path with a slash at its end.
	prefix string
	// names are the tree's own names of files by those that they are shown with.
	names map[string]string
}

func openTree(dir string) (localTree, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return localTree{}, usagef("there is no folder %s", dir)
	case err != nil:
		return localTree{}, &ExitError{Code: ExitFailed, Err: err}
	case !info.IsDir():
		return localTree{}, usagef("%s is not a folder; name the root of the tree", dir)
	}
	prefix := ""
	if name := slashed(dir); name != "." {
		prefix = strings.TrimSuffix(name, "/") + "/"
	}
	return localTree{fs: os.DirFS(dir), prefix: prefix, names: map[string]string{}}, nil
}

// dir is the tree's folder on the disk.
func (t localTree) dir() string {
	if t.prefix == "" {
		return "."
	}
	return filepath.FromSlash(t.prefix)
}

// located returns the findings with the tree's own path before its files.
func (t localTree) located(l diag.List) diag.List {
	out := make(diag.List, len(l))
	move := func(p diag.Position) diag.Position {
		if p.IsValid() && !strings.HasPrefix(p.File, render.SchemaModule+"/") {
			p.File = t.shown(p.File)
		}
		return p
	}
	for i, f := range l {
		f.Pos = move(f.Pos)
		related := make([]diag.Related, len(f.Related))
		for j, r := range f.Related {
			related[j] = diag.Related{Pos: move(r.Pos), Message: r.Message}
		}
		f.Related = related
		out[i] = f
	}
	return out
}

// shown is the way to a file of the tree. From inside of the tree it doesn't go up only
// to come down again.
func (t localTree) shown(file string) string {
	if t.prefix == "" && t.names == nil {
		return file
	}
	name := path.Join(t.prefix, file)
	if strings.HasPrefix(name, "../") {
		if here, err := filepath.Abs("."); err == nil {
			if rel, err := filepath.Rel(here, filepath.Join(here, name)); err == nil {
				name = filepath.ToSlash(rel)
			}
		}
	}
	t.names[name] = file
	return name
}

// source returns the text of a file by the name that located gave it.
func (t localTree) source(name string) []byte {
	file, ok := t.names[name]
	if !ok {
		return nil
	}
	text, err := plainText(t.fs, file)
	if err != nil {
		return nil
	}
	return text
}

// treeAround opens the tree that a folder belongs to. It is the folder itself, unless
// that is a part of a tree: below a module's root, or a cluster's folder in clusters.
// The cluster is the one that was asked for, or the one whose folder it is.
func treeAround(dir, cluster string) (localTree, string, error) {
	root, below, err := rootOf(dir)
	if err != nil {
		return localTree{}, "", &ExitError{Code: ExitFailed, Err: err}
	}
	tree, err := openTree(root)
	if err != nil {
		return localTree{}, "", err
	}
	name := clusterOf(below)
	if known, err := render.Clusters(tree.fs); err != nil || !slices.Contains(known, name) {
		name = ""
	}
	switch {
	case cluster == "":
		cluster = name
	case name != "" && name != cluster:
		return localTree{}, "", usagef("%s is part of the cluster %s, not of %s", dir, name, cluster)
	}
	return tree, cluster, nil
}

// clusterOf is the cluster whose folder a path in a tree leads into, or "".
func clusterOf(name string) string {
	if parts := strings.Split(name, "/"); len(parts) > 1 && parts[0] == "clusters" {
		return parts[1]
	}
	return ""
}

// rootOf finds the root of the tree that a folder belongs to, and the way from there to
// the folder, "." if that is the root. A repository's root is never left.
func rootOf(dir string) (root, below string, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", "", fmt.Errorf("find the root of %s: %w", dir, err)
	}
	exists := func(parts ...string) bool {
		_, err := os.Stat(filepath.Join(parts...))
		return err == nil
	}
	found := ""
	for at := abs; ; at = filepath.Dir(at) {
		if exists(at, "cue.mod") {
			found = at
			break
		}
		if found == "" && filepath.Base(filepath.Dir(at)) == "clusters" {
			found = filepath.Dir(filepath.Dir(at))
		}
		if exists(at, ".git") || at == filepath.Dir(at) {
			break
		}
	}
	if found == "" || found == abs {
		return dir, ".", nil
	}
	rel, err := filepath.Rel(found, abs)
	if err != nil {
		return "", "", fmt.Errorf("find the root of %s: %w", dir, err)
	}
	root = found
	if !filepath.IsAbs(dir) {
		// The way up from where the user is, as it was taken down.
		root = filepath.Join(dir, strings.Repeat("../", strings.Count(filepath.ToSlash(rel), "/")+1))
	}
	return root, filepath.ToSlash(rel), nil
}

// clusterIn opens the tree that a folder belongs to, and says which of its clusters is
// asked for, see treeAround and mustHave. The folder has to be there.
func clusterIn(dir, cluster string, one bool) (localTree, string, error) {
	if _, err := openTree(dir); err != nil {
		return localTree{}, "", err
	}
	tree, cluster, err := treeAround(dir, cluster)
	if err != nil {
		return localTree{}, "", err
	}
	return tree, cluster, tree.mustHave(cluster, one)
}

// mustHave wants a cluster of that name in the tree; with one it wants it to be clear
// which one is meant. A tree without any is for a finding to speak about.
func (t localTree) mustHave(cluster string, one bool) error {
	if cluster == "" && !one {
		return nil
	}
	_, findings := render.FindCluster(t.fs, cluster)
	if known, err := render.Clusters(t.fs); err != nil || len(known) == 0 && cluster == "" || len(findings) == 0 {
		return nil
	}
	return usagef("%s: %s; %s", path.Clean(t.prefix), findings[0].Message, findings[0].Help)
}
