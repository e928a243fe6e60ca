package compare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// report is all that was measured, as it is written in JSON.
type report struct {
	Karpenter    string   `json:"karpenter"`
	Kubernetes   string   `json:"kubernetes"`
	Go           string   `json:"go"`
	CPUs         int      `json:"cpus"`
	BootSeconds  float64  `json:"bootSeconds"`
	EqualBatch   bool     `json:"equalBatch"`
	KarpenterEnv []string `json:"karpenterEnv,omitempty"`
	Results      []Result `json:"results"`
}

func (r *report) write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

// metric is a row of a table.
type metric struct {
	name  string
	value func(Result) float64
	// digits are those behind the point.
	digits int
	// bar is what the median of the ratios may be at most, worst what none may be
	// above; zero is no bar.
	bar, worst float64
	// timed says that other work on the machine falsifies it.
	timed bool
	// shrinks says in which kind of scenario the row is shown: 1 where pods went,
	// -1 where they came, 0 in both.
	shrinks int
}

// metrics are the rows of every table. The bars are those that this comparison
// was set up with.
func metrics() []metric {
	return []metric{
		{name: "time to all pods bound, s", value: func(r Result) float64 { return r.BoundSeconds }, digits: 1, bar: 0.5, timed: true, shrinks: -1},
		{name: "pods not bound", value: func(r Result) float64 { return float64(r.Unbound) }},
		{name: "nodes", value: func(r Result) float64 { return float64(r.Nodes) }},
		{name: "$/h", value: func(r Result) float64 { return r.USDPerHour }, digits: 3, bar: 0.97, worst: 1},
		{name: "$/h over lower bound", value: func(r Result) float64 { return r.USDPerHour / r.LowerBound }, digits: 3},
		{name: "$ in the window", value: func(r Result) float64 { return r.USD }, digits: 4, shrinks: 1},
		{name: "last node change, s", value: func(r Result) float64 { return r.SettledSeconds }, digits: 1, shrinks: 1},
		{name: "pods moved", value: func(r Result) float64 { return float64(r.Moved) }, shrinks: 1},
		{name: "EC2 calls", value: func(r Result) float64 { return float64(r.EC2Calls) }, bar: 0.7},
		{name: "controller CPU, s", value: func(r Result) float64 { return r.CPUSeconds }, digits: 2, bar: 0.5, timed: true},
		{name: "controller peak memory, MiB", value: func(r Result) float64 { return r.PeakMiB }, digits: 0, bar: 0.7},
		{name: "CPU before, s", value: func(r Result) float64 { return r.StartCPUSeconds }, digits: 2},
		{name: "EC2 calls before", value: func(r Result) float64 { return float64(r.StartEC2Calls) }},
	}
}

// pair is a round: what was measured with each of the two, one after the other.
type pair struct{ ours, theirs Result }

// pairs returns the rounds of a scenario that both finished, and how many of them
// were disturbed and are left out. If all were, none is left out.
func (r *report) pairs(scenario string) (rounds []pair, disturbed int) {
	byRound := map[int]pair{}
	complete := map[int]int{}
	for _, res := range r.Results {
		if res.Scenario != scenario {
			continue
		}
		p := byRound[res.Round]
		if res.Controller == coppice {
			p.ours = res
		} else {
			p.theirs = res
		}
		byRound[res.Round] = p
		complete[res.Round]++
	}
	var quiet []pair
	for _, n := range slices.Sorted(maps.Keys(byRound)) {
		if complete[n] < 2 {
			continue
		}
		p := byRound[n]
		rounds = append(rounds, p)
		if p.ours.Disturbed || p.theirs.Disturbed {
			disturbed++
		} else {
			quiet = append(quiet, p)
		}
	}
	if len(quiet) > 0 {
		return quiet, disturbed
	}
	return rounds, disturbed
}

// markdown is the tables, one a scenario.
func (r *report) markdown(all []scenario) string {
	var b strings.Builder
	batch := "its default batch window"
	if r.EqualBatch {
		batch = "Coppice's batch window"
	}
	fmt.Fprintf(&b, "\nCoppice beside Karpenter %s (%s) on Kubernetes %s, %d CPUs; machines boot in %g s.\n", r.Karpenter, batch, r.Kubernetes, r.CPUs, r.BootSeconds)
	fmt.Fprintf(&b, "Median (least–most). Ratios are Coppice/Karpenter of one round. The lower bound is internal/pack's.\n")
	for _, s := range all {
		rounds, disturbed := r.pairs(s.name)
		if len(rounds) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s: %s\n\n", s.name, s.about)
		b.WriteString(table(rows(rounds, s.shrinks)))
		switch {
		case disturbed > 0 && disturbed == len(rounds) && rounds[0].anyDisturbed():
			fmt.Fprintf(&b, "\n%d rounds. In each, other work took more than %.0f %% of the machine: times and CPU are not to be relied on.\n", len(rounds), 100*s.quiet)
		case disturbed > 0:
			fmt.Fprintf(&b, "\n%d rounds. %d more are left out, as other work took more than %.0f %% of the machine.\n", len(rounds), disturbed, 100*s.quiet)
		default:
			fmt.Fprintf(&b, "\n%d rounds.\n", len(rounds))
		}
	}
	return b.String()
}

func (p pair) anyDisturbed() bool { return p.ours.Disturbed || p.theirs.Disturbed }

// rows are the cells of a scenario's table, its heading first.
func rows(rounds []pair, shrinks bool) [][]string {
	out := [][]string{{"", "Coppice", "Karpenter", "ratio", "bar", ""}}
	for _, m := range metrics() {
		if m.shrinks > 0 && !shrinks || m.shrinks < 0 && shrinks {
			continue
		}
		var ours, theirs, ratios []float64
		for _, p := range rounds {
			a, b := m.value(p.ours), m.value(p.theirs)
			ours, theirs = append(ours, a), append(theirs, b)
			if b != 0 {
				ratios = append(ratios, a/b)
			}
		}
		row := []string{m.name, spread(ours, m.digits), spread(theirs, m.digits), spread(ratios, 2), "", ""}
		if m.bar > 0 && len(ratios) > 0 {
			row[4] = fmt.Sprintf("≤ %.2f", m.bar)
			row[5] = "missed"
			if m.met(ratios) {
				row[5] = "met"
			}
			if m.timed && rounds[0].anyDisturbed() {
				row[5] += ", disturbed"
			}
		}
		out = append(out, row)
	}
	return out
}

// met says whether the ratios reach the bar. They are compared unrounded.
func (m metric) met(ratios []float64) bool {
	return median(ratios) <= m.bar && (m.worst == 0 || slices.Max(ratios) <= m.worst)
}

// spread writes the median, the least and the most; only the median if they agree.
func spread(values []float64, digits int) string {
	if len(values) == 0 {
		return "–"
	}
	f := func(v float64) string {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return "–"
		}
		return fmt.Sprintf("%.*f", digits, v)
	}
	mid, least, most := f(median(values)), f(slices.Min(values)), f(slices.Max(values))
	if least == most {
		return mid
	}
	return fmt.Sprintf("%s (%s–%s)", mid, least, most)
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}

// table writes rows as Markdown, the columns aligned for people who read it as text.
func table(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			b.WriteString("| " + cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)) + " ")
		}
		b.WriteString("|\n")
		if n == 0 {
			for _, w := range widths {
				b.WriteString("|" + strings.Repeat("-", w+2))
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}

// line tells of one run while the others go on.
func (r Result) line(s scenario) string {
	text := fmt.Sprintf("round %d %-9s ", r.Round, r.Controller)
	if s.shrinks {
		text += fmt.Sprintf("%3d pods moved, last node change %5.1f s, $%.4f", r.Moved, r.SettledSeconds, r.USD)
	} else {
		text += fmt.Sprintf("bound in %5.1f s", r.BoundSeconds)
	}
	if r.Unbound > 0 {
		text += fmt.Sprintf(", %d NOT BOUND", r.Unbound)
	}
	text += fmt.Sprintf(", %d nodes, $%.3f/h (%+.1f %%), %d EC2 calls (%s), CPU %.2f s, %.0f MiB", r.Nodes, r.USDPerHour, 100*(r.USDPerHour/r.LowerBound-1),
		r.EC2Calls, commonest(r.Calls, 4), r.CPUSeconds, r.PeakMiB)
	if r.Disturbed {
		text += fmt.Sprintf(", DISTURBED: %.0f %% of the machine went elsewhere", 100*r.OtherLoad)
	}
	return text
}

// commonest names the EC2 actions that were called most.
func commonest(calls map[string]int, n int) string {
	names := slices.DeleteFunc(slices.Collect(maps.Keys(calls)), func(name string) bool { return !strings.HasPrefix(name, "ec2:") })
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(calls[b], calls[a]), cmp.Compare(a, b)) })
	var out []string
	for _, name := range names[:min(n, len(names))] {
		out = append(out, fmt.Sprintf("%s %d", strings.TrimPrefix(name, "ec2:"), calls[name]))
	}
	return strings.Join(out, ", ")
}
