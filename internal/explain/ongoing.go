package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// named is how many nodes are named that wait for the same; programs get all.
const named = 3

// WriteText writes what is going on for people.
func (d *Disruptions) WriteText(w io.Writer) error {
	var b strings.Builder
	b.WriteString("Under way:\n")
	for _, u := range d.UnderWay {
		fmt.Fprintf(&b, "  %s  %s: %s\n      %s, for %s\n", u.Since.UTC().Format("15:04:05Z"), u.Reason, few(u.Nodes), u.Stage, span(d.TakenAt.Sub(u.Since)))
		for _, r := range u.Replacements {
			fmt.Fprintf(&b, "      NodeClaim %s: %s\n", r.Claim, r.Stage)
		}
		reasons(&b, "      ", u.Holds)
	}
	none(&b, len(d.UnderWay))
	b.WriteString("\nNext:\n")
	d.waiting(&b, d.Next)
	b.WriteString("\nBlocked until somebody acts:\n")
	d.waiting(&b, d.Blocked)
	b.WriteString("\nBudgets:\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, p := range d.Pools {
		var limits []string
		for _, l := range p.Limits {
			limits = append(limits, l.Reason+" "+l.text())
		}
		fmt.Fprintf(t, "  %s\t%d nodes\t%d going\tat a time: %s\n", p.Pool, p.Nodes, p.Going, strings.Join(limits, ", "))
		if p.Paused != "" {
			fmt.Fprintf(t, "  \tpaused %s\n", p.Paused)
		}
	}
	// A strings.Builder takes everything.
	_ = t.Flush()
	none(&b, len(d.Pools))
	if !d.Recorded {
		b.WriteString("\nWhat keeps nodes from being consolidated is known to the controller alone: give --controller.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func none(b *strings.Builder, n int) {
	if n == 0 {
		b.WriteString("  nothing\n")
	}
}

func few(names []string) string {
	if more := len(names) - named; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:named], ", "), more)
	}
	return strings.Join(names, ", ")
}

func (l ReasonLimit) text() string {
	text := fmt.Sprint(l.Nodes)
	if l.Nodes < 0 {
		text = "any"
	}
	return text + until(l.Until)
}

// until says when something ends, if that is known.
func until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", until " + t.UTC().Format("2006-01-02 15:04:05Z")
}

// waiting lists machines, those that wait for the same together.
func (d *Disruptions) waiting(b *strings.Builder, list []Waiting) {
	none(b, len(list))
	type key struct{ pool, reasons, code, message, until string }
	var order []key
	nodes := map[key][]string{}
	for _, w := range list {
		k := key{w.Pool, strings.Join(w.Reasons, ", "), w.Code, w.Message, until(w.Until)}
		if !slices.Contains(order, k) {
			order = append(order, k)
		}
		nodes[k] = append(nodes[k], w.name())
	}
	for _, k := range order {
		fmt.Fprintf(b, "  %s of NodePool %s (%s)\n      %s: %s%s\n", few(nodes[k]), k.pool, k.reasons, k.code, k.message, k.until)
	}
}
