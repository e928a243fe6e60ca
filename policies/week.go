package policies

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// Part is a part of a week in which the same budgets are active for a reason.
type Part struct {
	From, To time.Time
	// Nodes are what the active budgets say, each once; the least counts. None means
	// that nothing bounds how many nodes may go at once.
	Nodes []string
}

// Blocked reports whether no node may go.
func (p Part) Blocked() bool {
	return slices.ContainsFunc(p.Nodes, func(n string) bool { return n == "0" || n == "0%" })
}

// Week splits the seven days from a time into parts, for one reason.
func Week(budgets []sugar.Budget, reason karpenter.DisruptionReason, from time.Time) ([]Part, error) {
	to := from.Add(7 * 24 * time.Hour)
	type edge struct {
		at     time.Time
		budget int
		starts bool
	}
	var edges []edge
	for i, b := range budgets {
		if !b.Covers(reason) {
			continue
		}
		windows, err := b.Windows(from, to)
		if err != nil {
			return nil, fmt.Errorf("budgets[%d]: %w", i, err)
		}
		for _, w := range windows {
			edges = append(edges, edge{w.From, i, true}, edge{w.To, i, false})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return a.at.Compare(b.at) })
	on := make([]bool, len(budgets))
	var parts []Part
	add := func(start, end time.Time) {
		if !start.Before(end) {
			return
		}
		var nodes []string
		for i, b := range budgets {
			if on[i] && !slices.Contains(nodes, b.Nodes) {
				nodes = append(nodes, b.Nodes)
			}
		}
		if slices.ContainsFunc(nodes, func(n string) bool { return n == "0" || n == "0%" }) {
			nodes = []string{"0"}
		}
		slices.Sort(nodes)
		if n := len(parts); n > 0 && slices.Equal(parts[n-1].Nodes, nodes) {
			parts[n-1].To = end
			return
		}
		parts = append(parts, Part{From: start, To: end, Nodes: nodes})
	}
	at := from
	for _, e := range edges {
		add(at, e.at)
		at, on[e.budget] = e.at, e.starts
	}
	add(at, to)
	return parts, nil
}

// BudgetsOf returns the budgets of a rendered pool, with the API's default if it has
// none: a tenth of the nodes, for every reason.
func BudgetsOf(p karpenter.NodePool, o sugar.Options) []sugar.Budget {
	if p.Spec.Disruption.Budgets == nil {
		p.Spec.Disruption.Budgets = []karpenter.Budget{{Nodes: "10%"}}
	}
	return sugar.BudgetsOf(p.Spec, o)
}

// PoolOf reads a rendered NodePool, with its options.
func PoolOf(o render.Object) (karpenter.NodePool, sugar.Options, error) {
	var p karpenter.NodePool
	text, err := json.Marshal(o.Value)
	if err != nil {
		return p, sugar.Options{}, fmt.Errorf("encode %s: %w", o.ID(), err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, sugar.Options{}, fmt.Errorf("read %s: %w", o.ID(), err)
	}
	options, err := sugar.Parse(p.Annotations)
	if err != nil {
		return p, options, fmt.Errorf("read %s: %w", o.ID(), err)
	}
	return p, options, nil
}
