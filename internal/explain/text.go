package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/coppice-dev/coppice/internal/record"
)

// WriteText writes the answer for people.
func (a *Answer) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", a.Subject, a.Summary)
	if len(a.Holds) > 0 {
		b.WriteString("\nWhat holds it:\n")
		reasons(&b, "  ", a.Holds)
	}
	if len(a.Decisions) > 0 {
		b.WriteString("\nDecisions, the latest last:\n")
		for _, d := range a.Decisions {
			fmt.Fprintf(&b, "  %s  %s: %s", d.Since.UTC().Format("15:04:05Z"), d.Topic, d.Verdict)
			if d.Target != "" {
				fmt.Fprintf(&b, ", %s", d.Target)
			}
			if d.Times > 1 {
				fmt.Fprintf(&b, " (confirmed %d times, last %s)", d.Times-1, d.Last.UTC().Format("15:04:05Z"))
			}
			fmt.Fprintf(&b, "\n      %s\n", d.Message+until(d.Until))
			if !slices.Equal(d.Reasons, a.Holds) { // else they are above
				reasons(&b, "      ", d.Reasons)
			}
		}
	}
	if len(a.Facts) > 0 {
		b.WriteString("\nState:\n")
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, f := range a.Facts {
			fmt.Fprintf(t, "  %s\t%s\n", f.Name, f.Value)
		}
		// A strings.Builder takes everything.
		_ = t.Flush()
	}
	if len(a.Events) > 0 {
		b.WriteString("\nEvents:\n")
		for _, e := range a.Events {
			fmt.Fprintf(&b, "  %s  %s: %s\n", e.At.UTC().Format("15:04:05Z"), e.Reason, e.Note)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func reasons(b *strings.Builder, indent string, list []record.Reason) {
	for _, r := range list {
		b.WriteString(indent)
		if r.Scope != "" {
			b.WriteString(r.Scope + ": ")
		}
		b.WriteString(r.Message + "\n")
		if r.Remedy != "" {
			fmt.Fprintf(b, "%s    would help: %s\n", indent, r.Remedy)
		}
	}
}
