package render

import (
	"path"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/diag"
)

// InFolder returns the findings of a tree that lies in a folder of a repository, with
// paths from the repository's root. Places in the schemas stay as they are.
func InFolder(l diag.List, folder string) diag.List {
	move := func(p diag.Position) diag.Position {
		if p.IsValid() && !strings.HasPrefix(p.File, SchemaModule+"/") {
			p.File = path.Join(strings.Trim(folder, "/"), p.File)
		}
		return p
	}
	out := slices.Clone(l)
	for i := range out {
		f := &out[i]
		f.Pos, f.Related = move(f.Pos), slices.Clone(f.Related)
		for j := range f.Related {
			f.Related[j].Pos = move(f.Related[j].Pos)
		}
	}
	return out
}
