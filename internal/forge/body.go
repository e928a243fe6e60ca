package forge

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/plan"
)

// Body is what a comment says about a change of one cluster.
type Body struct {
	// Cluster and Source name what is spoken about, Head the commit.
	Cluster, Source, Head string
	// Findings are what is wrong, sorted; of files with paths in the repository.
	Findings diag.List
	// Plan is what the change would do, nil if that can't be said.
	Plan *plan.Plan
	// Notes are said after the verdict, one paragraph each. They are Markdown: what
	// comes from names has to be quoted by Code.
	Notes []string
	// Outcome is what has become of the change after it was merged, as Markdown. It is
	// said instead of everything else.
	Outcome string
	// Details leads to more than fits, "" for nothing. Full says how to get it where there
	// is no such place, and is said if something doesn't fit. It is Markdown too.
	Details, Full string
}

// Verdict is what a body comes to: in one line without names, as for a status. It has no
// figures of what is live: a status that changes whenever they do is noise.
func (b Body) Verdict() (State, string) { return b.verdict((*plan.Plan).Counts) }

func (b Body) verdict(say func(*plan.Plan) string) (State, string) {
	errors, warnings := b.Findings.Count(diag.Error), b.Findings.Count(diag.Warning)
	var parts []string
	if errors > 0 {
		parts = append(parts, counted(errors, "error"))
	}
	if warnings > 0 {
		parts = append(parts, counted(warnings, "warning"))
	}
	if b.Plan != nil {
		if b.alone() {
			say = func(p *plan.Plan) string {
				return counted(p.Summary.Create+p.Summary.Unchanged, "object") + ", compared with nothing"
			}
		}
		parts = append(parts, say(b.Plan))
	}
	refused := b.Plan != nil && len(b.Plan.Refused) > 0
	if refused {
		parts = append([]string{"others' fields aren't to be overwritten"}, parts...)
	}
	if len(parts) == 0 {
		parts = append(parts, "no findings")
	}
	if errors > 0 || refused {
		return Failure, strings.Join(parts, "; ")
	}
	return Success, strings.Join(parts, "; ")
}

// alone reports whether the plan says what there is and not what changes.
func (b Body) alone() bool { return b.Plan != nil && b.Plan.Against.Kind == plan.AgainstNothing }

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Context is the name of the status of a cluster and source.
func Context(cluster, source string) string {
	return strings.Join(slices.DeleteFunc([]string{"coppice", cluster, source}, func(s string) bool { return s == "" }), "/")
}

// Text writes the body as Markdown of at most so many bytes, what matters first:
// verdict, findings, plan. What doesn't fit is counted.
func (b Body) Text(l Limits, room int) string {
	var head strings.Builder
	about := "Coppice"
	if b.Cluster != "" {
		about += ", cluster " + Code(b.Cluster)
	}
	if b.Source != "" {
		about += ", source " + Code(b.Source)
	}
	fmt.Fprintf(&head, "### %s\n\n", about)
	if b.Outcome != "" {
		return cut(head.String()+b.Outcome+"\n", room)
	}
	state, text := b.verdict((*plan.Plan).Headline)
	mark := map[State]string{Success: "✅ Fine to merge", Failure: "❌ Would be refused"}[state]
	if state == Success && b.alone() {
		mark = "✅ Valid"
	}
	if state == Success && b.Findings.Count(diag.Warning) > 0 {
		mark = "⚠️ Would be applied, with warnings"
	}
	fmt.Fprintf(&head, "**%s**: %s.\n", mark, text)
	for _, n := range b.Notes {
		fmt.Fprintf(&head, "\n%s\n", n)
	}
	foot := "\n<sub>For commit " + Code(Short(b.Head)) + ". This comment is changed in place.</sub>\n"
	if l.PlainText {
		foot = "\nFor commit " + Code(Short(b.Head)) + ". This comment is changed in place.\n"
	}
	if b.Details != "" {
		foot = "\n[Everything, in full](" + b.Details + ")\n" + foot
	}
	full := ""
	if b.Full != "" && b.Details == "" {
		full = "\n" + b.Full + "\n"
	}
	room -= head.Len() + len(foot) + len(full)
	// A plan has a least size. Findings come first, but they shall not take all.
	share := room
	if b.Plan != nil {
		share = max(room/2, room-plan.MinMarkdown*2)
	}
	findings := writeFindings(b.Findings, share)
	short := len(findings) < len(writeFindings(b.Findings, ample))
	planned := ""
	if left := room - len(findings) - 1; b.Plan != nil && left >= plan.MinMarkdown {
		planned = "\n" + b.Plan.Markdown(left)
		short = short || planned != "\n"+b.Plan.Markdown(ample)
	}
	if !short {
		full = ""
	}
	out := head.String() + findings + planned + full + foot
	if l.PlainText {
		out = unfold(out)
	}
	return out
}

// ample is room enough for anything.
const ample = 1 << 30

// writeFindings writes as many findings as fit, those that stop a change first.
func writeFindings(all diag.List, room int) string {
	if len(all) == 0 {
		return ""
	}
	all = slices.Clone(all.Grouped())
	slices.SortStableFunc(all, func(a, b diag.Finding) int { return cmp.Compare(a.Severity, b.Severity) })
	write := func(l diag.List) string {
		var b strings.Builder
		fmt.Fprintf(&b, "\n#### %s\n\n", counted(len(all), "finding"))
		for _, f := range l {
			writeFinding(&b, f)
		}
		if left := len(all) - len(l); left > 0 {
			fmt.Fprintf(&b, "\n%d more don't fit here; `coppice vet` shows them all.\n", left)
		}
		return b.String()
	}
	// The largest number that fits.
	low, high := 0, len(all)
	for low < high {
		mid := (low + high + 1) / 2
		if len(write(all[:mid])) <= room {
			low = mid
		} else {
			high = mid - 1
		}
	}
	if low == 0 {
		return fmt.Sprintf("\n%s: `coppice vet` shows them.\n", counted(len(all), "finding"))
	}
	return write(all[:low])
}

func writeFinding(b *strings.Builder, f diag.Finding) {
	fmt.Fprintf(b, "- **%s** %s", f.Severity, Code(f.Code))
	if f.Pos.IsValid() {
		fmt.Fprintf(b, " at %s", Code(f.Pos.String()))
	}
	if about := strings.TrimSpace(f.Object + " " + f.Path); about != "" {
		fmt.Fprintf(b, ", %s", Code(about))
	}
	fmt.Fprintf(b, "  \n  %s\n", inert(f.Message))
	if f.Help != "" {
		fmt.Fprintf(b, "  *%s*\n", inert(f.Help))
	}
	for _, r := range f.Related {
		fmt.Fprintf(b, "  %s: %s\n", Code(r.Pos.String()), inert(r.Message))
	}
}

// inert writes text that somebody else wrote as text and nothing else, on one line.
func inert(s string) string { return diag.Inert(visible(s)) }

// visible puts text on one line, without what isn't seen or turns its direction.
func visible(s string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, s)), " ")
}

// unfold takes the HTML away that folds, outside of fenced code.
func unfold(s string) string {
	var out []string
	fence := ""
	for _, line := range strings.Split(s, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		ticks := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
		switch {
		case fence != "":
			if len(ticks) >= len(fence) && strings.TrimRight(trimmed, "` ") == "" {
				fence = ""
			}
		case len(ticks) >= 3:
			fence = ticks
		default:
			line = plainly(line)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// plainly writes a line's folding as Markdown.
func plainly(line string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(line, "<code>")
		inside, after, closed := strings.Cut(rest, "</code>")
		if !ok || !closed {
			break
		}
		b.WriteString(before + Code(html.UnescapeString(inside)))
		line = after
	}
	b.WriteString(line)
	return strings.NewReplacer("<details>", "", "</details>", "", "<summary>", "- ", "</summary>", "").Replace(b.String())
}

// Code quotes text as code, whatever backticks it has.
func Code(s string) string {
	s = visible(s)
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		return fence + " " + s + " " + fence
	}
	return fence + s + fence
}

// Short is a commit as people say it.
func Short(hash string) string {
	if len(hash) > 12 {
		return hash[:12]
	}
	return hash
}

// Annotations are findings as remarks at lines; those without a line are in the text
// alone.
func Annotations(l diag.List) []Annotation {
	var out []Annotation
	for _, f := range l {
		if f.Pos.Line == 0 {
			continue
		}
		level := map[diag.Severity]string{diag.Error: "failure", diag.Warning: "warning", diag.Info: "notice"}[f.Severity]
		message := f.Message
		if f.Help != "" {
			message += "\n" + f.Help
		}
		out = append(out, Annotation{
			File: f.Pos.File, Line: f.Pos.Line, Level: level,
			Title: strings.TrimSpace(f.Code + " " + f.Object), Message: message,
		})
	}
	return out
}
