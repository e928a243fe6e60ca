package provision

import (
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/pack"
)

// fleetToken is unique: no launch ever has another's.
func fleetToken() string { return string(uuid.NewUUID()) }

// fleet is a group of new nodes that one call can launch.
type fleet struct {
	nodes []int
	// types are those that all of them accept, and most is how many the one accepts that
	// accepts the most.
	types []string
	most  int
}

// join groups new nodes that one call can launch, and returns for each what its claim is
// to say of that, "" for one that is launched alone, and the order to create the claims
// in, those of a group one after the other, as they wait for each other. The nodes of a
// group leave with the same requirements, so that whichever claim comes first knows the
// launch of all.
//
// None gets dearer: nodes join only if what would be bought for each alone is the same.
// What else they accept shrinks to what they have in common, for each to half as many types
// at the least, so that there is still something else to be had when EC2 runs out of one.
func join(nodes []pack.NewNode, token func() string) (marks []string, order []int) {
	groups := map[string][]*fleet{}
	var all []*fleet
	for i := range nodes {
		key, types := joinKey(&nodes[i])
		if key == "" {
			order = append(order, i)
			continue
		}
		at := slices.IndexFunc(groups[key], func(f *fleet) bool { return f.take(i, types) })
		if at < 0 {
			f := &fleet{nodes: []int{i}, types: types, most: len(types)}
			groups[key] = append(groups[key], f)
			all = append(all, f)
		}
	}
	marks = make([]string, len(nodes))
	for _, f := range all {
		order = append(order, f.nodes...)
		if len(f.nodes) < 2 {
			continue
		}
		id := token()
		for index, i := range f.nodes {
			marks[i] = cloud.FleetMark(id, index, len(f.nodes))
			accept(&nodes[i], f.types)
		}
	}
	return marks, order
}

// take lets a node in that accepts the types, sorted, if enough of them are left.
func (f *fleet) take(node int, types []string) bool {
	if len(f.nodes) == cloud.MaxFleet {
		return false
	}
	common := slices.DeleteFunc(slices.Clone(f.types), func(t string) bool {
		_, ok := slices.BinarySearch(types, t)
		return !ok
	})
	most := max(f.most, len(types))
	if 2*len(common) < most {
		return false
	}
	f.nodes, f.types, f.most = append(f.nodes, node), common, most
	return true
}

// joinKey is equal for nodes that could share a launch but for the types that they
// accept, which it returns. It is "" for a node that can't share one: what reservations
// have left is counted node by node.
func joinKey(n *pack.NewNode) (key string, types []string) {
	if n.ReservationID != "" {
		return "", nil
	}
	k := struct {
		Pool         string
		Labels       map[string]string
		Requirements []pack.Requirement
		Resources    []string
		Relaxed      bool
		// Cheapest is the type that would be bought, at the price in MicroUSD.
		Cheapest string
		MicroUSD int64
	}{Pool: n.Pool, Labels: n.Labels, Resources: slices.Sorted(maps.Keys(n.Requests)), Relaxed: n.Relaxed, MicroUSD: n.MicroUSD}
	if len(n.Options) > 0 {
		k.Cheapest = n.Options[0].Type
	}
	// minValues count the types in the list, and a static pool's node hasn't chosen any.
	whole := len(n.Options) == 0 || slices.ContainsFunc(n.Requirements, func(r pack.Requirement) bool { return r.MinValues > 0 })
	for _, r := range n.Requirements {
		if !whole && listsTypes(r) {
			types = r.Values
			continue
		}
		k.Requirements = append(k.Requirements, r)
	}
	text, err := json.Marshal(k)
	if err != nil {
		panic(err) // strings and numbers alone
	}
	return string(text), types
}

func listsTypes(r pack.Requirement) bool {
	return r.Key == pack.LabelInstanceType && r.Operator == pack.In
}

// accept narrows the node to the types.
func accept(n *pack.NewNode, types []string) {
	if len(types) == 0 {
		return // all of the group say the same already
	}
	n.Requirements = slices.Clone(n.Requirements)
	for i, r := range n.Requirements {
		if listsTypes(r) {
			n.Requirements[i].Values = types
		}
	}
	n.Options = slices.DeleteFunc(n.Options, func(o pack.Option) bool { return !slices.Contains(types, o.Type) })
}
