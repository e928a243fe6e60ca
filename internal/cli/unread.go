package cli

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue/parser"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
)

// reading knows which files of a tree were read. A file that somebody put among them
// and that isn't read would pass for one without faults.
type reading struct {
	tree fs.FS
	read map[string]bool
	// embeds holds the folders with files that embed others, settings the files of the
	// package that says what the tree is.
	embeds, settings map[string]bool
	// unknown says that what a cluster reads could not be found out.
	unknown bool
}

func newReading(tree fs.FS) *reading {
	return &reading{tree: tree, read: map[string]bool{}, embeds: map[string]bool{}, settings: map[string]bool{}}
}

// seen notes what a file is, as it is read for the evaluation.
func (r *reading) seen(name string, text []byte) {
	dir := path.Dir(name)
	if bytes.Contains(text, []byte("@embed")) {
		r.embeds[dir] = true
	}
	if dir == "." {
		f, err := parser.ParseFile(name, text, parser.PackageClauseOnly)
		// What can't be read is told by who reads the settings.
		r.settings[name] = name == render.SettingsPackage+".cue" || err == nil && f.PackageName() == render.SettingsPackage
	}
}

func (r *reading) note(result render.Result) {
	if len(result.Files) == 0 {
		r.unknown = true
	}
	for _, f := range result.Files {
		r.read[f] = true
	}
}

// unread is the finding about a file that isn't read.
func unread(file, why, help string) diag.Finding {
	return diag.Finding{
		Severity: diag.Warning, Code: render.CodeUnread, Pos: diag.Position{File: file},
		Message: why + ", so it wasn't read", Help: help,
	}
}

// unread reports what stands in the named folders, or was named itself, and wasn't read.
func (r *reading) unread(p *part) diag.List {
	if r.unknown {
		return nil
	}
	var out diag.List
	for _, file := range p.files {
		if isPackageFile(file) && !r.read[file] && !r.settings[file] && !strings.HasPrefix(file, "policies/") {
			out = append(out, unread(file, notImported, "import its package, or add it to a cluster's"))
		}
	}
	for _, folder := range p.folders {
		// Of a shared folder there is no saying who should read it but all.
		if !p.all {
			for _, c := range p.clusters {
				if clusterOf(folder) == "" || clusterOf(folder) == c {
					out = append(out, r.below(path.Join("clusters", c))...)
				}
			}
			continue
		}
		out = append(out, r.below(folder)...)
		if folder == "." {
			out = append(out, r.emptyClusters()...)
		}
	}
	return out
}

const notImported = "no cluster that was checked imports this"

// below reports what isn't read of a folder of the tree.
// The folder policies is read by those who judge by what is in it.
func (r *reading) below(folder string) diag.List {
	var out diag.List
	// A folder that can't be read was reported by whoever had to read it.
	_ = fs.WalkDir(r.tree, folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if !d.IsDir() {
			return nil
		}
		if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "node_modules" || name == "cue.mod" || name == "policies") {
			return fs.SkipDir
		}
		f, submodule := r.folder(name)
		out = append(out, f...)
		if submodule {
			return fs.SkipDir
		}
		return nil
	})
	return out
}

// folder reports what isn't read of the files that stand in a folder, those of CUE
// as one finding.
func (r *reading) folder(dir string) (out diag.List, submodule bool) {
	entries, err := fs.ReadDir(r.tree, dir)
	if err != nil {
		return nil, false
	}
	var cue, data []string
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case e.Name() == ".git" && e.Type().IsRegular():
			submodule = dir != "."
		case e.Type()&fs.ModeSymlink != 0 && (isPackageFile(name) || isData(name) && (dir == "." || clusterOf(name) != "")):
			out = append(out, unread(name, "is a symbolic link, which is never followed", "replace the link with the file that it leads to"))
		case isPackageFile(name) && !e.IsDir() && !r.read[name]:
			if !r.settings[name] {
				cue = append(cue, name)
			}
		case isData(name):
			data = append(data, name)
		}
	}
	if submodule {
		if len(cue) > 0 {
			out = append(out, unread(dir, "is a Git submodule, which is never fetched", "make what it holds part of this repository"))
		}
		return out, true
	}
	if len(cue) > 0 {
		what := notImported
		if n := len(cue) - 1; n > 0 {
			what += fmt.Sprintf(" and %d more of the folder's files", n)
		}
		out = append(out, unread(cue[0], what, "import its package, add it to a cluster's, or begin its name with _"))
	}
	for _, name := range data {
		if !r.embeds[dir] && (clusterOf(name) != "" || r.holdsObjects(dir, name)) {
			out = append(out, unread(name, "a tree of CUE has no manifests", "declare the object in CUE, or embed the file"))
		}
	}
	return out, false
}

// maxText is how long a file may be that is looked into, in bytes: as long as one that
// is rendered.
const maxText = 4 << 20

// plainText reads a plain file of a tree. This process has no limits: what a link leads
// to, such as a device, could fill its memory.
func plainText(tree fs.FS, name string) ([]byte, error) {
	info, err := fs.Lstat(tree, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxText {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrInvalid}
	}
	return fs.ReadFile(tree, name)
}

// isData reports whether a file's name is one of those that manifests have.
func isData(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) && !strings.HasPrefix(path.Base(name), ".")
}

// holdsObjects reports whether a file beside the package of a single cluster looks as if
// it was meant for the cluster.
func (r *reading) holdsObjects(dir, name string) bool {
	if dir != "." || len(r.read) == 0 {
		return false
	}
	text, err := plainText(r.tree, name)
	return err == nil && (bytes.Contains(text, []byte("karpenter.sh/v1")) || bytes.Contains(text, []byte("karpenter.k8s.aws/v1")))
}

// emptyClusters reports folders of clusters that declare none.
func (r *reading) emptyClusters() diag.List {
	entries, err := fs.ReadDir(r.tree, "clusters")
	if err != nil {
		return nil
	}
	known, err := render.Clusters(r.tree)
	if err != nil {
		return nil
	}
	var out diag.List
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(e.Name(), "_") && !slices.Contains(known, e.Name()) {
			out = append(out, diag.Finding{
				Severity: diag.Warning, Code: render.CodeUnread, Pos: diag.Position{File: path.Join("clusters", e.Name())},
				Message: "the folder holds no file of CUE, so it is no cluster", Help: "add the cluster's package to it, or remove it",
			})
		}
	}
	return out
}

// isPackageFile reports whether a file's name is one of those that packages consist of.
func isPackageFile(name string) bool {
	base := path.Base(name)
	return path.Ext(base) == ".cue" && base[0] != '.' && base[0] != '_' && !strings.HasPrefix(name, "cue.mod/") &&
		!strings.HasSuffix(base, "_tool.cue") && !strings.HasSuffix(base, "_test.cue")
}
