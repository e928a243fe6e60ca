package provision

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/pack"
)

func TestJoin(t *testing.T) {
	node := func(types string, alter ...func(*pack.NewNode)) pack.NewNode {
		n := pack.NewNode{Pool: "general", Labels: map[string]string{"team": "a"}, MicroUSD: 100, Requests: pack.Resources{"cpu": 1}}
		names := strings.Fields(types)
		for _, name := range names {
			n.Options = append(n.Options, pack.Option{Type: name})
		}
		slices.Sort(names)
		n.Requirements = []pack.Requirement{
			{Key: pack.LabelCapacityType, Operator: pack.In, Values: []string{"on-demand"}},
			{Key: pack.LabelInstanceType, Operator: pack.In, Values: names},
			{Key: pack.LabelZone, Operator: pack.In, Values: []string{"a", "b"}},
		}
		for _, f := range alter {
			f(&n)
		}
		return n
	}
	static := func(n *pack.NewNode) { n.Options, n.MicroUSD = nil, 0 }
	variety := func(n *pack.NewNode) { n.Requirements[1].MinValues = 2 }
	tests := map[string]struct {
		why   string
		nodes []pack.NewNode
		want  string // mark and types for each
	}{
		"alone":     {"", []pack.NewNode{node("c m")}, "- c m"},
		"same":      {"", []pack.NewNode{node("c m"), node("c m")}, "1 0/2 c m; 1 1/2 c m"},
		"in common": {"half of each list is left", []pack.NewNode{node("c m"), node("c m r"), node("c x")}, "1 0/2 c m; 1 1/2 c m; - c x"},
		"too little": {"if EC2 is out of one, something else must be left",
			[]pack.NewNode{node("c m r x"), node("c a b d")}, "- c m r x; - a b c d"},
		"second group": {"", []pack.NewNode{node("c m r x"), node("c a b d"), node("c b d")}, "- c m r x; 1 0/2 b c d; 1 1/2 b c d"},
		"dearer": {"who can have a cheaper type isn't made to take a dearer one",
			[]pack.NewNode{node("c m"), node("m r")}, "- c m; - m r"},
		"same type, other price": {"in another zone or market", []pack.NewNode{node("c m"), node("c m", func(n *pack.NewNode) { n.MicroUSD = 90 })}, "- c m; - c m"},
		"pools":                  {"", []pack.NewNode{node("c m"), node("c m", func(n *pack.NewNode) { n.Pool = "other" })}, "- c m; - c m"},
		"labels":                 {"the kubelet registers with them", []pack.NewNode{node("c m"), node("c m", func(n *pack.NewNode) { n.Labels = map[string]string{"team": "b"} })}, "- c m; - c m"},
		"zones":                  {"", []pack.NewNode{node("c m"), node("c m", func(n *pack.NewNode) { n.Requirements[2].Values = []string{"a"} })}, "- c m; - c m"},
		"resources": {"an adapter has a launch template of its own",
			[]pack.NewNode{node("c m"), node("c m", func(n *pack.NewNode) { n.Requests = pack.Resources{"cpu": 1, "vpc.amazonaws.com/efa": 1} })}, "- c m; - c m"},
		"reserved":    {"what a reservation has left is counted node by node", []pack.NewNode{node("c", func(n *pack.NewNode) { n.ReservationID = "cr-1" }), node("c", func(n *pack.NewNode) { n.ReservationID = "cr-1" })}, "- c; - c"},
		"minValues":   {"the list has as many types as it must", []pack.NewNode{node("c m r", variety), node("c m x", variety)}, "- c m r; - c m x"},
		"static pool": {"its nodes are all the same", []pack.NewNode{node("c m", static), node("c m", static)}, "1 0/2 c m; 1 1/2 c m"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := 0
			before := tt.nodes[0].Requirements
			saved := slices.Clone(before[1].Values)
			marks, order := join(tt.nodes, func() string { n++; return fmt.Sprint(n) })
			var got []string
			for i, node := range tt.nodes {
				mark := marks[i]
				if mark == "" {
					mark = "-"
				}
				got = append(got, mark+" "+strings.Join(node.Requirements[1].Values, " "))
				if k := len(node.Options); k > 0 && k != len(node.Requirements[1].Values) {
					t.Errorf("node %d has %d options", i, k)
				}
			}
			if s := strings.Join(got, "; "); s != tt.want {
				t.Errorf("%s\n got %s\nwant %s", tt.why, s, tt.want)
			}
			if slices.Sort(order); len(order) != len(tt.nodes) || slices.Max(order) != len(order)-1 || len(slices.Compact(order)) != len(tt.nodes) {
				t.Errorf("the order is %v", order)
			}
			if !slices.Equal(before[1].Values, saved) {
				t.Error("a list that others may share was changed")
			}
		})
	}
	many := slices.Repeat([]pack.NewNode{node("c m")}, 2*cloud.MaxFleet+1)
	marks, _ := join(many, fleetToken)
	if marks[0] != strings.Replace(marks[1], " 1/", " 0/", 1) || strings.HasPrefix(marks[cloud.MaxFleet], strings.Fields(marks[0])[0]) || marks[2*cloud.MaxFleet] != "" {
		t.Errorf("marks of %d: %q", len(many), marks)
	}

	mixed := []pack.NewNode{node("c"), node("m"), node("c"), node("c", func(n *pack.NewNode) { n.ReservationID = "cr-1" }), node("m")}
	if _, order := join(mixed, fleetToken); !slices.Equal(order, []int{3, 0, 2, 1, 4}) {
		t.Errorf("claims are created in the order %v", order)
	}
}
