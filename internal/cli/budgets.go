package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/isolate"
	"github.com/coppice-dev/coppice/policies"
	"github.com/coppice-dev/coppice/render"
)

type budgetsOptions struct {
	dir, cluster, at, zone, output string
	limits                         limits
}

func newBudgetsCommand(s Streams) *cobra.Command {
	var o budgetsOptions
	cmd := &cobra.Command{
		Use:   "budgets DIR",
		Short: "Show the week that each pool's disruption budgets make",
		Long: `For each pool of the tree at DIR, and each reason to take nodes away, print how many
nodes may be on their way out at which hours of the week that begins at --at.
Reasons with the same week share a row. Hours in which no budget bounds anything
are marked UNLIMITED, those in which the pool is paused say so.`,
		Example: `  coppice budgets . --cluster prod-eu --zone Europe/Berlin
  coppice budgets . --at 2026-12-24 -o markdown`,
		Args: exactArgs(1, "DIR, the root of the tree"),
		RunE: func(_ *cobra.Command, args []string) error {
			o.dir = args[0]
			return runBudgets(s, o)
		},
	}
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "show this cluster alone, the `name` of a folder of clusters/")
	cmd.Flags().StringVar(&o.at, "at", "", "the `time` at which the week begins, as in 2026-12-24 or 2026-12-24T18:00:00Z (default now)")
	cmd.Flags().StringVar(&o.zone, "zone", "", "show times in this `zone` beside UTC, as in Europe/Berlin")
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "text, markdown or json")
	o.limits.flags(cmd.Flags())
	return cmd
}

// budgetWeek is the week of one pool for the reasons that have it in common.
type budgetWeek struct {
	Cluster string       `json:"cluster,omitempty"`
	Pool    string       `json:"pool"`
	Reasons []string     `json:"reasons"`
	Parts   []budgetPart `json:"parts"`
	// UnlimitedHours is how much of the week no budget bounds.
	UnlimitedHours float64 `json:"unlimitedHours"`
	// Pause says who paused the pool until when, if that is later than the week's begin.
	Pause string `json:"pause,omitempty"`
}

type budgetPart struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Nodes are those of the active budgets, of which the least counts; none is unlimited.
	Nodes []string `json:"nodes"`
	// Paused says that no node may go, whatever the budgets are.
	Paused bool `json:"paused,omitempty"`
}

func runBudgets(s Streams, o budgetsOptions) error {
	if !slices.Contains([]string{"text", "markdown", "json"}, o.output) {
		return usagef("output %q: give text, markdown or json", o.output)
	}
	from, err := timeOf(o.at)
	if err != nil {
		return err
	}
	from = from.UTC().Truncate(time.Minute)
	zone := time.UTC
	if o.zone != "" {
		if zone, err = time.LoadLocation(o.zone); err != nil || o.zone == "Local" {
			return usagef("--zone %q: write a time zone such as Europe/Berlin", o.zone)
		}
	}
	tree, cluster, err := clusterIn(o.dir, o.cluster, false)
	if err != nil {
		return err
	}
	clusters := []string{cluster}
	if cluster == "" {
		if clusters, err = render.Clusters(tree.fs); err != nil {
			return &ExitError{Code: ExitFailed, Err: err}
		}
		if len(clusters) == 0 {
			clusters = []string{""} // Rendering says that there is none.
		}
	}
	bounds, err := o.limits.options()
	if err != nil {
		return err
	}
	var weeks []budgetWeek
	var found diag.List
	err = isolate.Each(context.Background(), tree.fs, clusters, bounds, func(r render.Result) {
		for _, f := range r.Findings {
			if f.Severity == diag.Error {
				found = append(found, f)
			}
		}
		for _, object := range r.Bundle.Objects {
			if object.GVK.Kind != "NodePool" {
				continue
			}
			w, err := weeksOf(r.Bundle.Cluster, object, from)
			if err != nil && !found.HasErrors() {
				found = append(found, diag.Finding{Code: render.CodeSugar, Message: err.Error(), Pos: object.Position(), Object: object.ID(), Help: "correct the budgets"})
			}
			weeks = append(weeks, w...)
		}
	})
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	if err := complain(s.Err, tree, found); err != nil {
		return err
	}
	switch o.output {
	case "json":
		err = writeJSON(s.Out, weeks)
	case "markdown":
		err = writeBudgetsMarkdown(s.Out, weeks, from, zone)
	default:
		err = writeBudgets(s.Out, weeks, from, zone)
	}
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: fmt.Errorf("write budgets: %w", err)}
	}
	return nil
}

// weeksOf returns the weeks of one pool, reasons with the same one together.
func weeksOf(cluster string, object render.Object, from time.Time) ([]budgetWeek, error) {
	p, options, err := policies.PoolOf(object)
	if err != nil {
		return nil, err
	}
	budgets := policies.BudgetsOf(p, options)
	var out []budgetWeek
	for _, reason := range policies.Reasons() {
		parts, err := policies.Week(budgets, reason, from)
		if err != nil {
			return nil, err
		}
		w := budgetWeek{Cluster: cluster, Pool: object.Name, Reasons: []string{string(reason)}}
		until, paused := options.PausedUntil(from)
		if paused {
			w.Pause = options.Pause.String()
			if end := from.Add(7 * 24 * time.Hour); until.After(end) {
				until = end
			}
			w.Parts = append(w.Parts, budgetPart{From: from, To: until.UTC(), Nodes: []string{"0"}, Paused: true})
		}
		for _, part := range parts {
			if paused && part.From.Before(until) {
				part.From = until
			}
			if !part.From.Before(part.To) {
				continue
			}
			w.Parts = append(w.Parts, budgetPart{From: part.From.UTC(), To: part.To.UTC(), Nodes: append([]string{}, part.Nodes...)})
			if len(part.Nodes) == 0 {
				w.UnlimitedHours += part.To.Sub(part.From).Hours()
			}
		}
		same := slices.IndexFunc(out, func(x budgetWeek) bool {
			return slices.EqualFunc(x.Parts, w.Parts, func(a, b budgetPart) bool {
				return a.From.Equal(b.From) && a.To.Equal(b.To) && slices.Equal(a.Nodes, b.Nodes)
			})
		})
		if same >= 0 {
			out[same].Reasons = append(out[same].Reasons, string(reason))
			continue
		}
		out = append(out, w)
	}
	return out, nil
}

// rows are the lines of the table, each a list of cells.
func budgetRows(weeks []budgetWeek, zone *time.Location) [][]string {
	var rows [][]string
	for _, w := range weeks {
		pool := w.Pool
		if w.Cluster != "" {
			pool = w.Cluster + "/" + pool
		}
		reasons := strings.Join(w.Reasons, ", ")
		if len(w.Reasons) == len(policies.Reasons()) {
			reasons = "all"
		}
		for _, part := range w.Parts {
			row := []string{pool, reasons, clockOf(part.From, part.To, time.UTC)}
			if zone != time.UTC {
				row = append(row, clockOf(part.From, part.To, zone))
			}
			rows = append(rows, append(row, nodesOf(part)))
		}
	}
	return rows
}

func clockOf(from, to time.Time, zone *time.Location) string {
	const layout = "Mon 02 Jan 15:04"
	return from.In(zone).Format(layout) + " - " + to.In(zone).Format(layout)
}

func nodesOf(part budgetPart) string {
	nodes := part.Nodes
	switch len(nodes) {
	case 0:
		return "UNLIMITED"
	case 1:
		if part.Paused {
			return "none (paused)"
		}
		if nodes[0] == "0" {
			return "none"
		}
		return nodes[0]
	}
	return "least of " + strings.Join(nodes, ", ")
}

func budgetHead(zone *time.Location) []string {
	head := []string{"POOL", "REASONS", "UTC"}
	if zone != time.UTC {
		head = append(head, strings.ToUpper(zone.String()))
	}
	return append(head, "NODES")
}

func writeBudgets(out io.Writer, weeks []budgetWeek, from time.Time, zone *time.Location) error {
	fmt.Fprintf(out, "the week from %s\n\n", from.Format(time.RFC3339))
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(budgetHead(zone), "\t"))
	last := ""
	for _, row := range budgetRows(weeks, zone) {
		// What a row has in common with the one above isn't repeated.
		if who := row[0] + "\x00" + row[1]; who == last {
			row[0], row[1] = "", ""
		} else {
			last = who
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(weeks) == 0 {
		fmt.Fprintln(out, "\nthe tree declares no NodePool")
	}
	told := ""
	for _, x := range weeks {
		if who := x.Cluster + "/" + x.Pool; x.Pause != "" && who != told {
			told = who
			fmt.Fprintf(out, "\n%s: paused %s\n", x.Pool, x.Pause)
		}
		if x.UnlimitedHours > 0 {
			fmt.Fprintf(out, "\n%s: nothing bounds disruption for %.4g hours (%s)\n", x.Pool, x.UnlimitedHours, strings.Join(x.Reasons, ", "))
		}
	}
	return nil
}

func writeBudgetsMarkdown(out io.Writer, weeks []budgetWeek, from time.Time, zone *time.Location) error {
	var b strings.Builder
	fmt.Fprintf(&b, "The week from %s:\n\n", from.Format(time.RFC3339))
	head := budgetHead(zone)
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, row := range budgetRows(weeks, zone) {
		if n := len(row) - 1; row[n] == "UNLIMITED" {
			row[n] = "**unlimited**"
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	_, err := io.WriteString(out, b.String())
	return err
}
