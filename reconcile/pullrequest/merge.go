package pullrequest

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/git"
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
	out := map[string][]byte{}
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
				out[name] = their
			}
		case same(was, had, their, haveTheir):
			if haveOur {
				out[name] = our
			}
		default:
			if text, ok := mergeLines(was, our, their); ok && had && haveOur && haveTheir {
				out[name] = text
				continue
			}
			conflicts = append(conflicts, name)
			if haveTheir {
				out[name] = their
			}
		}
	}
	// One side's file may be the other's folder.
	for name := range out {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, file := out[dir]; !file {
				continue
			}
			conflicts = append(conflicts, dir)
			if _, keep := t[dir]; keep {
				delete(out, name)
			} else {
				delete(out, dir)
			}
		}
	}
	slices.Sort(conflicts)
	tree, err := git.Files(out)
	if err != nil {
		return nil, nil, fmt.Errorf("merge: %w", err)
	}
	return tree, slices.Compact(conflicts), nil
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
