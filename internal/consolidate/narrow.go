package consolidate

import (
	"slices"

	"github.com/coppice-dev/coppice/internal/pack"
)

// spotTypes is how many types a spot node must be able to become to take another spot
// node's place, and how many of them it keeps: with fewer, each replacement would be
// likelier to be interrupted than the last, down to the cheapest and scarcest type.
// Karpenter's value.
const spotTypes = 15

// narrow keeps of the nodes' options what can't cost more than slack beyond what was
// planned, in all, whichever is launched. It reports false if nothing is left of one.
//
// Of several capacity types the planned one is kept: a node that may become an
// on-demand one when spot capacity is short could cost more than what it replaces.
func narrow(nodes []pack.NewNode, slack int64) ([]pack.NewNode, bool) {
	var total int64
	for _, n := range nodes {
		total += n.MicroUSD
	}
	out := slices.Clone(nodes)
	for i := range out {
		n := &out[i]
		if n.ReservationID != "" || total <= 0 {
			continue
		}
		if !within(n, n.MicroUSD+int64(float64(slack)*float64(n.MicroUSD)/float64(total))) {
			return nil, false
		}
	}
	return out, true
}

// within narrows a node to what costs at most limit, with the capacity type of its
// cheapest offering.
func within(n *pack.NewNode, limit int64) bool {
	first := n.Options[0].Offerings[0]
	suits := func(o pack.Offering) bool { return o.CapacityType == first.CapacityType }
	options := affordable(n.Options, suits, limit)
	var zones []string
	if len(options) == 0 {
		// Only some zones are cheap enough.
		zones = []string{first.Zone}
		options = affordable(n.Options, func(o pack.Offering) bool { return suits(o) && o.Zone == first.Zone }, limit)
	}
	types := typeNames(options)
	n.Options = options
	n.Requirements = slices.Clone(n.Requirements)
	n.Requirements = require(n.Requirements, pack.LabelInstanceType, types)
	n.Requirements = require(n.Requirements, pack.LabelCapacityType, []string{first.CapacityType})
	if zones != nil {
		n.Requirements = require(n.Requirements, pack.LabelZone, zones)
	}
	for _, r := range n.Requirements {
		if r.Key == pack.LabelInstanceType && r.MinValues > len(types) {
			return false
		}
	}
	return len(options) > 0
}

func typeNames(options []pack.Option) []string {
	var out []string
	for _, o := range options {
		out = append(out, o.Type)
	}
	slices.Sort(out)
	return out
}

// affordable returns the options all of whose suitable offerings cost at most limit.
func affordable(options []pack.Option, suits func(pack.Offering) bool, limit int64) []pack.Option {
	var out []pack.Option
	for _, o := range options {
		kept := slices.DeleteFunc(slices.Clone(o.Offerings), func(f pack.Offering) bool { return !suits(f) })
		if len(kept) > 0 && kept[len(kept)-1].MicroUSD <= limit {
			out = append(out, pack.Option{Type: o.Type, Offerings: kept})
		}
	}
	return out
}

// require makes a label have one of the values.
func require(reqs []pack.Requirement, key string, values []string) []pack.Requirement {
	r := pack.Requirement{Key: key, Operator: pack.In, Values: values}
	for i := range reqs {
		if reqs[i].Key == key {
			r.MinValues = reqs[i].MinValues
			reqs[i] = r
			return reqs
		}
	}
	return append(reqs, r)
}

// spotForSpot applies the rule for spot nodes in place of spot nodes: whether the
// change is allowed, and the node narrowed to the cheapest types.
func spotForSpot(removed []candidate, nodes []pack.NewNode, allowed bool) ([]pack.NewNode, bool) {
	if !slices.ContainsFunc(removed, func(c candidate) bool { return c.spot }) {
		return nodes, true
	}
	out := slices.Clone(nodes)
	for i := range out {
		n := &out[i]
		if n.Options[0].Offerings[0].CapacityType != pack.Spot {
			continue
		}
		switch {
		case !allowed:
			return nil, false
		case len(removed) > 1:
			continue // several for one: each step makes the fleet smaller, so it ends
		case len(n.Options) < spotTypes:
			return nil, false
		}
		keep := spotTypes
		for _, r := range n.Requirements {
			if r.Key == pack.LabelInstanceType {
				keep = max(keep, r.MinValues)
			}
		}
		n.Options = n.Options[:min(keep, len(n.Options))]
		n.Requirements = require(slices.Clone(n.Requirements), pack.LabelInstanceType, typeNames(n.Options))
	}
	return out, true
}
