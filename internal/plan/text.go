package plan

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// TextOptions say how a plan is written for a terminal.
type TextOptions struct {
	// Color marks what comes, goes and changes.
	Color bool
	// Diff shows changed objects as unified diffs instead of field by field.
	Diff bool
	// Nodes is how many machines of a pool are listed; 0 stands for 10.
	Nodes int
}

// WriteText writes the plan for people: what it comes to first, then the objects, the
// nodes, what paces them, and what the figures rest on.
func (p *Plan) WriteText(w io.Writer, o TextOptions) error {
	o.Nodes = cmp.Or(o.Nodes, 10)
	t := &texter{o: o}
	t.head(p)
	t.objects(p)
	t.drift(p)
	if p.Fleet != nil {
		t.fleet(p.Fleet)
	}
	t.list("What the changed pools may launch", p.marketLines())
	t.list("What is left to others", p.Left)
	t.list("What this leaves open", p.Notes)
	if _, err := w.Write(t.b.Bytes()); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	return nil
}

type texter struct {
	b bytes.Buffer
	o TextOptions
}

func (t *texter) line(format string, args ...any) { fmt.Fprintf(&t.b, format+"\n", args...) }

// paint colours a line by what happens to what it speaks of.
func (t *texter) paint(a Action, text string) string {
	colors := map[Action]string{Create: "32", Update: "33", Delete: "31"}
	if !t.o.Color || colors[a] == "" {
		return text
	}
	return "\x1b[" + colors[a] + "m" + text + "\x1b[0m"
}

func sign(a Action) string {
	switch a {
	case Create:
		return "+"
	case Delete:
		return "-"
	}
	return "~"
}

func (t *texter) head(p *Plan) {
	t.line("%s", p.title())
	if p.Empty() {
		t.line("Nothing changes: %s as declared.", count(p.Summary.Unchanged, "object is", "objects are"))
	} else {
		t.line("Objects: %d to create, %d to change, %d to delete, %d unchanged.", p.Summary.Create, p.Summary.Update, p.Summary.Delete, p.Summary.Unchanged)
	}
	for _, why := range p.Refused {
		t.line("Refused: %s.", clean(why))
	}
	if f := p.Fleet; f != nil {
		t.line("Nodes: %s.", f.sentence())
		t.line("Cost: %s.", f.costs())
	}
}

// title says what is planned against what.
func (p *Plan) title() string {
	text := "Plan"
	if p.Cluster != "" {
		text += " for cluster " + clean(p.Cluster)
	}
	if p.Commit != "" {
		text += ": commit " + short(p.Commit)
		if p.Edited {
			text += " and what isn't committed"
		}
	}
	switch a := p.Against; a.Kind {
	case AgainstCluster, AgainstSnapshot:
		text += " against the cluster"
		if !a.At.IsZero() {
			text += " as of " + a.At.UTC().Format(time.RFC3339)
		}
		if a.Commit != "" {
			text += ", where " + short(a.Commit) + " is applied"
		}
	case AgainstCommit:
		text += " against commit " + short(a.Commit)
	default:
		text += " against an empty cluster"
	}
	return text
}

// short is the first digits of a commit's hash, whatever is around it.
func short(commit string) string {
	if _, hash, ok := strings.Cut(commit, ":"); ok {
		commit = hash
	}
	return clip7(clean(commit))
}

func clip7(s string) string {
	if len(s) == 40 || len(s) == 64 {
		return s[:12]
	}
	return clip(s, 60)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// sentence says what becomes of the nodes.
func (f *Fleet) sentence() string {
	if f.Touched() == 0 {
		text := fmt.Sprintf("all %d stay", f.Nodes)
		if f.InPlace > 0 {
			text += fmt.Sprintf(", %d of them changed in place", f.InPlace)
		}
		return text
	}
	var parts []string
	if f.Replace > 0 {
		parts = append(parts, count(f.Replace, "is replaced", "are replaced"))
	}
	if f.Remove > 0 {
		parts = append(parts, count(f.Remove, "is removed", "are removed"))
	}
	if f.Hold > 0 {
		parts = append(parts, count(f.Hold, "is held back", "are held back"))
	}
	text := fmt.Sprintf("of %d, %s, %s", f.Nodes, strings.Join(parts, ", "), count(f.Nodes-f.Touched(), "stays", "stay"))
	if f.InPlace > 0 {
		text += fmt.Sprintf(", %s changed in place", count(f.InPlace, "is", "are"))
	}
	if f.Already > 0 {
		text += fmt.Sprintf(" (%s out of date before the change, too)", count(f.Already, "is", "are"))
	}
	if f.Moves > 0 {
		text += "; " + count(f.Moves, "pod moves", "pods move")
	}
	switch {
	case f.Replace+f.Remove == 0:
	case f.Complete:
		text += fmt.Sprintf("; done after %s at the earliest", span(f.Seconds))
	default:
		text += fmt.Sprintf("; what can go has gone after %s at the earliest", span(f.Seconds))
	}
	return text
}

// costs says what the nodes cost before and after.
func (f *Fleet) costs() string {
	text := f.Before.String()
	if f.Before.MicroUSD != f.After.MicroUSD {
		d := f.After.MicroUSD - f.Before.MicroUSD
		plus := ""
		if d > 0 {
			plus = "+"
		}
		text = fmt.Sprintf("%s → %s (%s%s/h", f.Before, f.After, plus, dollars(d))
		if f.Before.MicroUSD > 0 {
			text += fmt.Sprintf(", %s%.1f %%", plus, float64(d)/float64(f.Before.MicroUSD)*100)
		}
		text += ")"
	} else {
		text += ", as before"
	}
	if n := max(f.Before.Unpriced, f.After.Unpriced); n > 0 {
		text += fmt.Sprintf("; the price of %s isn't known", plural(n, "node"))
	}
	return text
}

func (t *texter) objects(p *Plan) {
	for _, c := range ordered(p.Changes) {
		at := ""
		if c.File != "" {
			at = "  (" + clean(c.File) + ")"
		}
		t.line("")
		t.line("%s", t.paint(c.Action, sign(c.Action)+" "+clean(c.Object.String()))+at)
		switch {
		case c.Action == Create, c.Action == Update && t.o.Diff:
			t.diff(c.Diff)
		case c.Action == Update:
			for _, f := range c.Fields {
				t.line("    %s", f.line())
			}
		default:
			t.line("    deleted, with %s", plural(len(c.Fields), "declared field"))
		}
	}
}

// ordered puts what can do most harm first.
func ordered(changes []Change) []Change {
	rank := map[Action]int{Delete: 0, Update: 1, Create: 2}
	out := slices.Clone(changes)
	slices.SortStableFunc(out, func(a, b Change) int { return rank[a.Action] - rank[b.Action] })
	return out
}

func (f Field) line() string {
	var text string
	switch {
	case f.Before.IsAbsent():
		text = fmt.Sprintf("+ %s: %s", clean(f.Path), clip(clean(f.After.String()), 400))
	case f.After.IsAbsent():
		text = fmt.Sprintf("- %s: %s", clean(f.Path), clip(clean(f.Before.String()), 400))
	case f.Before == f.After:
		text = fmt.Sprintf("~ %s: %s, changed", clean(f.Path), clip(clean(f.After.String()), 400))
	default:
		text = fmt.Sprintf("~ %s: %s → %s", clean(f.Path), clip(clean(f.Before.String()), 400), clip(clean(f.After.String()), 400))
	}
	if f.Drift {
		text += "  (set by hand; see drift)"
	}
	return text
}

func (t *texter) diff(text string) {
	for l := range strings.Lines(text) {
		l = clean(strings.TrimSuffix(l, "\n"))
		if strings.HasPrefix(l, "@@") {
			continue
		}
		a := Action("")
		switch {
		case strings.HasPrefix(l, "+"):
			a = Create
		case strings.HasPrefix(l, "-"):
			a = Delete
		}
		t.line("    %s", t.paint(a, l))
	}
}

func (t *texter) drift(p *Plan) {
	if len(p.Drift) == 0 {
		return
	}
	t.line("")
	t.line("Drift now, on the objects above")
	for _, d := range p.Drift {
		t.line("    %s", clean(d.line()))
	}
}

func (d Drifted) line() string {
	if d.Path == "" {
		return d.Object.String() + " is missing"
	}
	live := "removed"
	if !d.Live.IsAbsent() {
		live = clip(d.Live.String(), 400)
	}
	text := fmt.Sprintf("%s %s: Git %s, live %s", d.Object, d.Path, clip(d.Git.String(), 400), live)
	if d.Manager != "" {
		text += " (by " + d.Manager
		if !d.When.IsZero() {
			text += " at " + d.When.UTC().Format(time.RFC3339)
		}
		text += ")"
	}
	return text
}

func (t *texter) fleet(f *Fleet) {
	for _, e := range f.Pools {
		t.line("")
		t.line("%s NodePool %s: %s", sign(e.Action), clean(e.Pool), e.sentence())
		for _, why := range e.why() {
			t.line("    why       %s", clean(why))
		}
		for _, g := range e.Gates {
			t.line("    paced by  %s%s", clean(g.Message), until(g.Until))
		}
		for _, l := range e.Limits {
			t.line("    limit     %s: %s used of %s; nothing is launched before that is less", clean(l.Resource), clean(l.Used), clean(l.Limit))
		}
		if e.Before != e.After {
			t.line("    cost      %s → %s", e.Before, e.After)
		}
		t.nodes(e)
	}
	if len(f.Launches) > 0 {
		t.line("")
		t.line("Launched in their place")
		for _, l := range f.Launches {
			t.line("    %d × %s %s %s from %s, %s/h each", l.Count, clean(l.Type), clean(l.CapacityType), clean(l.Zone), clean(l.Pool), dollars(l.MicroUSD))
		}
	}
	if len(f.Unplaced) > 0 {
		t.line("")
		t.line("Pods without a place")
		for i, u := range f.Unplaced {
			if i == t.o.Nodes {
				t.line("    and %d more", len(f.Unplaced)-i)
				break
			}
			t.line("    %s: %s", clean(u.Pod), clean(u.Reason))
		}
	}
	t.list("What the figures rest on", f.basis(true))
}

func (t *texter) nodes(e PoolEffect) {
	list := heldFirst(e.Affected)
	for i, n := range list {
		if i == t.o.Nodes {
			t.line("    and %d more", len(list)-i)
			break
		}
		t.line("    %-9s %s", n.Outcome, clean(n.line()))
	}
}

// heldFirst puts the machines that somebody may have to look after before the others.
func heldFirst(list []NodeEffect) []NodeEffect {
	rank := map[Outcome]int{Held: 0, Removed: 1, Replaced: 2}
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b NodeEffect) int {
		return cmp.Or(rank[a.Outcome]-rank[b.Outcome], cmp.Compare(a.Seconds, b.Seconds), strings.Compare(a.Node, b.Node))
	})
	return out
}

func (n NodeEffect) line() string {
	text := n.Node
	if n.Type != "" {
		text += " (" + n.Type + ")"
	}
	text += ", " + plural(n.Pods, "pod")
	if n.Hold != nil {
		return text + ": " + n.Hold.Message + until(n.Hold.Until)
	}
	return text + ", gone after " + span(n.Seconds)
}

func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", until " + t.UTC().Format(time.RFC3339)
}

func (e PoolEffect) sentence() string {
	by := map[Outcome]int{}
	for _, n := range e.Affected {
		by[n.Outcome]++
	}
	if len(e.Affected) == 0 {
		return count(e.Nodes, "node, which stays", "nodes, which stay")
	}
	var parts []string
	for _, o := range []Outcome{Replaced, Removed, Held} {
		if by[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", by[o], o))
		}
	}
	text := fmt.Sprintf("of %s, %s, %s", plural(e.Nodes, "node"), strings.Join(parts, ", "), count(e.Stay, "stays", "stay"))
	if e.Seconds > 0 {
		text += "; after " + span(e.Seconds)
	}
	return text
}

// why counts the reasons, with the fields that cause each.
func (e PoolEffect) why() []string {
	type key struct {
		reason  string
		cause   string
		assumed bool
		already bool
	}
	counts := map[key]int{}
	var order []key
	for _, n := range e.Affected {
		k := key{n.Reason, strings.Join(n.Cause, ", "), n.Assumed, n.Already}
		if counts[k] == 0 {
			order = append(order, k)
		}
		counts[k]++
	}
	slices.SortFunc(order, func(a, b key) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a.reason, b.reason), strings.Compare(a.cause, b.cause))
	})
	var out []string
	for _, k := range order {
		text := fmt.Sprintf("%s on %s", k.reason, plural(counts[k], "node"))
		if k.cause != "" {
			text += ": " + k.cause
		}
		if k.assumed {
			text += " (assumed: only the cloud can tell)"
		}
		if k.already {
			text += " (out of date before the change, too)"
		}
		out = append(out, text)
	}
	return out
}

func (t *texter) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	t.line("")
	t.line("%s", title)
	for _, l := range lines {
		t.line("    %s", clean(l))
	}
}
