package plan

import (
	"fmt"
	"strings"
)

// MinMarkdown is the least number of bytes that a plan as Markdown can be held to.
const MinMarkdown = 4096

// mostRefusals is how many reasons to refuse a commit stand at the head of Markdown,
// which all has to fit into MinMarkdown with.
const mostRefusals = 2

// Markdown writes the plan for a comment of at most limit bytes, or MinMarkdown if that
// is more: what it comes to first, details folded. What doesn't fit is counted where it
// would stand; fences and details are whole whatever is left out. Nothing that comes
// from names or values is markup, a link or a mention.
func (p *Plan) Markdown(limit int) string {
	limit = max(limit, MinMarkdown)
	var head strings.Builder
	fmt.Fprintf(&head, "%s\n\n", p.markdownTitle())
	if p.Empty() {
		fmt.Fprintf(&head, "**Nothing changes**: %s as declared.\n", count(p.Summary.Unchanged, "object is", "objects are"))
	} else {
		fmt.Fprintf(&head, "**%d to create, %d to change, %d to delete**, %d unchanged.\n", p.Summary.Create, p.Summary.Update, p.Summary.Delete, p.Summary.Unchanged)
	}
	for i, why := range p.Refused {
		if i == mostRefusals {
			fmt.Fprintf(&head, "\n%s not shown here.\n", count(len(p.Refused)-i, "more reason to refuse it is", "more reasons to refuse it are"))
			break
		}
		fmt.Fprintf(&head, "\n**Refused**: %s.\n", plain(clip(why, 200)))
	}
	if f := p.Fleet; f != nil {
		fmt.Fprintf(&head, "\n**Nodes**: %s.\n**Cost**: %s.\n", f.sentence(), f.costs())
	}
	// The objects get what the rest leaves.
	share := limit / 10
	var tail []string
	if f := p.Fleet; f != nil {
		tail = append(tail, pools(f, share), details("Nodes", len(held(f)), heldLines(f), share), details("Launched in their place", len(f.Launches), launchLines(f), share),
			details("Pods without a place", len(f.Unplaced), unplacedLines(f), share))
	}
	tail = append(tail, details("Drift now, on these objects", len(p.Drift), driftLines(p), share))
	tail = append(tail, details("What is left to others", len(p.Left), bullets(p.Left), share))
	tail = append(tail, details("What the changed pools may launch", len(p.Market), coded(p.marketLines()), share))
	var basis []string
	if p.Fleet != nil {
		basis = p.Fleet.basis(false)
	}
	tail = append(tail, details("What this rests on and leaves open", len(basis)+len(p.Notes), bullets(append(append([]string{}, basis...), p.Notes...)), share))
	rest := strings.Join(tail, "")
	return head.String() + p.markdownObjects(limit-head.Len()-len(rest)) + rest
}

func (p *Plan) markdownTitle() string {
	text := "Plan"
	if p.Cluster != "" {
		text += " for cluster " + code(clip(p.Cluster, 100))
	}
	if p.Commit != "" {
		text += ", commit " + code(short(p.Commit))
	}
	switch a := p.Against; a.Kind {
	case AgainstCluster, AgainstSnapshot:
		text += ", against the cluster"
		if a.Commit != "" {
			text += " where " + code(short(a.Commit)) + " is applied"
		}
	case AgainstCommit:
		text += ", against commit " + code(short(a.Commit))
	default:
		text += ", against an empty cluster"
	}
	return text
}

// markdownObjects writes the changed objects, each folded, within room bytes.
func (p *Plan) markdownObjects(room int) string {
	if len(p.Changes) == 0 {
		return ""
	}
	const note = 120 // the line that says what is left out
	var b strings.Builder
	b.WriteString("\n")
	list := ordered(p.Changes)
	left, brief := 0, 0
	for i, c := range list {
		free := room - b.Len() - note
		// Those to come want at least to be named.
		full := free - 60*min(len(list)-i-1, 200)
		block := c.markdown(-1)
		if len(block) > full {
			block = ""
			if full > 600 {
				block = c.markdown(full)
			}
		}
		if block == "" {
			block = c.markdownLine()
			brief++
		}
		if left > 0 || len(block) > free {
			left++
			continue
		}
		b.WriteString(block)
	}
	brief -= left
	switch {
	case left > 0:
		fmt.Fprintf(&b, "\n%s not shown here, %d without their diff.\n", count(left, "more changed object is", "more changed objects are"), max(brief, 0))
	case brief > 0:
		fmt.Fprintf(&b, "\n%s here.\n", count(brief, "diff isn't shown", "diffs aren't shown"))
	}
	return b.String()
}

// markdown writes one changed object, folded. With room >= 0 its diff is cut to fit.
func (c Change) markdown(room int) string {
	head := fmt.Sprintf("<details><summary>%s %s%s</summary>\n\n", verb(c.Action), raw(c.Object.String()), c.note())
	const tail = "\n</details>\n"
	text := cleanLines(c.Diff)
	block := head + fence("diff", text) + tail
	if room < 0 || len(block) <= room {
		return block
	}
	lines := strings.SplitAfter(text, "\n")
	// A cut line costs the line that says so, and a fence that may be longer.
	space := room - len(head) - len(tail) - 2*longest(text, '`') - 80
	kept := 0
	for size := 0; kept < len(lines); kept++ {
		if size += len(lines[kept]); size > space {
			break
		}
	}
	if kept == 0 {
		return ""
	}
	return head + fence("diff", strings.Join(lines[:kept], "")) + fmt.Sprintf("\n%s of the diff left out here.\n", count(len(lines)-kept, "line", "lines")) + tail
}

func verb(a Action) string {
	switch a {
	case Create:
		return "Create"
	case Delete:
		return "Delete"
	}
	return "Change"
}

func (c Change) note() string {
	text := ""
	if c.Action == Update {
		text = ": " + plural(len(c.Fields), "field")
	}
	if c.File != "" {
		text += " (" + raw(c.File) + ")"
	}
	return text
}

func (c Change) markdownLine() string {
	return fmt.Sprintf("- %s %s\n", verb(c.Action), code(c.Object.String()))
}

// details folds lines away, as many as fit into room bytes; total is how many things
// they are about. Without lines it is empty.
func details(title string, total int, lines []string, room int) string {
	if len(lines) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n<details><summary>%s (%d)</summary>\n\n", title, total)
	for i, l := range lines {
		if b.Len()+len(l) > room-60 {
			fmt.Fprintf(&b, "\n%d of %d lines are left out here.\n", len(lines)-i, len(lines))
			break
		}
		b.WriteString(l)
	}
	b.WriteString("\n</details>\n")
	return b.String()
}

// pools is the table of the pools concerned.
func pools(f *Fleet, room int) string {
	if len(f.Pools) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n| NodePool | nodes | replaced | removed | held | done after | $/h | paced by |\n|---|--:|--:|--:|--:|--:|--:|---|\n")
	for i, e := range f.Pools {
		by := map[Outcome]int{}
		for _, n := range e.Affected {
			by[n.Outcome]++
		}
		cost := dollars(e.Before.MicroUSD)
		if e.Before != e.After {
			cost += " → " + dollars(e.After.MicroUSD)
		}
		var gates []string
		for _, g := range e.Gates {
			gates = append(gates, cell(g.Message+until(g.Until)))
		}
		for _, l := range e.Limits {
			gates = append(gates, cell(fmt.Sprintf("limit %s exceeded: %s of %s", l.Resource, l.Used, l.Limit)))
		}
		done := "–"
		if e.Seconds > 0 {
			done = span(e.Seconds)
		}
		row := fmt.Sprintf("| %s | %d | %d | %d | %d | %s | %s | %s |\n", cell(e.Pool), e.Nodes, by[Replaced], by[Removed], by[Held], done, cost, strings.Join(gates, "; "))
		if b.Len()+len(row) > room-50 {
			fmt.Fprintf(&b, "\n%s not shown here.\n", count(len(f.Pools)-i, "more pool is", "more pools are"))
			break
		}
		b.WriteString(row)
	}
	return b.String()
}

func held(f *Fleet) []NodeEffect {
	var out []NodeEffect
	for _, e := range f.Pools {
		out = append(out, e.Affected...)
	}
	return out
}

func heldLines(f *Fleet) []string {
	var out []string
	for _, e := range f.Pools {
		for _, why := range e.why() {
			out = append(out, "- "+code(e.Pool+": "+why)+"\n")
		}
	}
	for _, n := range heldFirst(held(f)) {
		out = append(out, fmt.Sprintf("- %s: %s\n", n.Outcome, code(n.line())))
	}
	return out
}

func launchLines(f *Fleet) []string {
	var out []string
	for _, l := range f.Launches {
		out = append(out, fmt.Sprintf("- %d × %s, %s/h each\n", l.Count, code(strings.Join([]string{l.Type, l.CapacityType, l.Zone, "from " + l.Pool}, " ")), dollars(l.MicroUSD)))
	}
	return out
}

func unplacedLines(f *Fleet) []string {
	var out []string
	for _, u := range f.Unplaced {
		out = append(out, fmt.Sprintf("- %s: %s\n", code(u.Pod), code(u.Reason)))
	}
	return out
}

func driftLines(p *Plan) []string {
	var out []string
	for _, d := range p.Drift {
		out = append(out, "- "+code(d.line())+"\n")
	}
	return out
}

func bullets(lines []string) []string {
	var out []string
	for _, l := range lines {
		out = append(out, "- "+plain(l)+"\n")
	}
	return out
}

func coded(lines []string) []string {
	var out []string
	for _, l := range lines {
		out = append(out, "- "+code(l)+"\n")
	}
	return out
}
