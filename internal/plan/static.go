package plan

import (
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/admission"
)

// Of names an object by its own fields.
func Of(obj map[string]any) ID {
	id := ID{}
	if api, _ := obj["apiVersion"].(string); strings.Contains(api, "/") {
		id.Group, _, _ = strings.Cut(api, "/")
	}
	id.Kind, _ = obj["kind"].(string)
	if meta, ok := obj["metadata"].(map[string]any); ok {
		id.Namespace, _ = meta["namespace"].(string)
		id.Name, _ = meta["name"].(string)
	}
	return id
}

// Targets lists the objects of a commit and of the one that was applied before, nil if
// that isn't known, in the order of the first and then of the second. What is live is
// left to be filled in.
func Targets(head render.Bundle, base *render.Bundle) []Target {
	var out []Target
	at := map[ID]int{}
	for _, o := range head.Objects {
		id := Of(o.Value)
		at[id] = len(out)
		out = append(out, Target{ID: id, File: place(o.Position()), Head: o.Value})
	}
	if base == nil {
		return out
	}
	for _, o := range base.Objects {
		id := Of(o.Value)
		if i, ok := at[id]; ok {
			out[i].Base = o.Value
			continue
		}
		out = append(out, Target{ID: id, File: place(o.Position()), Base: o.Value})
	}
	return out
}

func place(p diag.Position) string {
	switch {
	case !p.IsValid():
		return ""
	case p.Line == 0:
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line)
}

// Static plans without a cluster: what a commit changes of what another one declares,
// or of nothing if base is nil.
func Static(head render.Bundle, base *render.Bundle, commit string, judge *admission.Judge) *Plan {
	against := Against{Kind: AgainstNothing}
	if base != nil {
		against = Against{Kind: AgainstCommit, Commit: commit}
	}
	changes, _ := Changes(Targets(head, base), judge, false, "")
	p := New(head.Cluster, against, len(head.Objects), changes, nil)
	p.Notes = append(p.Notes, "No cluster was asked: what is live may differ from what Git holds, and what becomes of nodes isn't known.")
	return p
}
