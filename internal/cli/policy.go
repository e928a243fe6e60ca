package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/isolate"
	"github.com/coppice-dev/coppice/policies"
	"github.com/coppice-dev/coppice/render"
)

// policyFlags say how policies are applied.
type policyFlags struct {
	apply []string
	at    string
}

func (p *policyFlags) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&p.apply, "policies", nil, "apply these `rules` or groups as well, as in all or security,limits-set")
	f.StringVar(&p.at, "at", "", "judge waivers and budgets as of this `time`, as in 2027-01-31 or 2027-01-31T18:00:00Z (default now)")
}

func (p policyFlags) options() (policies.Options, error) {
	at, err := timeOf(p.at)
	return policies.Options{At: at, Apply: p.apply}, err
}

// timeOf reads a time, or a day that stands for its beginning; "" is now.
func timeOf(text string) (time.Time, error) {
	if text == "" {
		return time.Now(), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, usagef("--at %q: write a time such as 2027-01-31T18:00:00Z, or a day such as 2027-01-31", text)
}

func newPolicyCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "List, explain and test the rules that 'coppice vet' judges by",
		Args: func(_ *cobra.Command, _ []string) error {
			return usagef("coppice policy takes list, explain or test; see 'coppice policy --help'")
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(newPolicyListCommand(s), newPolicyExplainCommand(s), newPolicyTestCommand(s))
	return cmd
}

type policyOptions struct {
	dir, id, output string
	limits          limits
}

// report reads the rules of a tree in a child process; those of the library alone
// without a tree.
func (o policyOptions) report() (*policies.Report, localTree, []string, error) {
	if o.dir == "" {
		return policies.New(nil, policies.Options{At: time.Now()}).Report([]string{""}), localTree{}, nil, nil
	}
	tree, _, err := treeAround(o.dir, "")
	if err != nil {
		return nil, tree, nil, err
	}
	clusters, err := render.Clusters(tree.fs)
	if err != nil {
		return nil, tree, nil, &ExitError{Code: ExitFailed, Err: err}
	}
	limits, err := o.limits.options()
	if err != nil {
		return nil, tree, nil, err
	}
	limits.Policies = func() policies.Options { return policies.Options{At: time.Now()} }
	report, err := isolate.Report(context.Background(), tree.fs, clusters, limits)
	if err != nil {
		return nil, tree, nil, &ExitError{Code: ExitFailed, Err: err}
	}
	return report, tree, clusters, nil
}

// complain prints findings, and ends the command if one of them is an error.
func complain(out io.Writer, tree localTree, found diag.List) error {
	if len(found) == 0 {
		return nil
	}
	if err := diag.WriteText(out, tree.located(found).Sorted(), diag.TextOptions{Sources: tree.source}); err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	if found.HasErrors() {
		return &ExitError{Code: ExitInvalid}
	}
	return nil
}

func newPolicyListCommand(s Streams) *cobra.Command {
	var o policyOptions
	cmd := &cobra.Command{
		Use:   "list [DIR]",
		Short: "List the rules, and which of them apply to the clusters of the tree at DIR",
		Example: `  coppice policy list
  coppice policy list . -o json`,
		Args: atMostArgs(1, "at most DIR, the root of a tree"),
		RunE: func(_ *cobra.Command, args []string) error {
			o.dir = strings.Join(args, "")
			report, tree, clusters, err := o.report()
			if err != nil {
				return err
			}
			switch o.output {
			case "json":
				err = writeJSON(s.Out, struct {
					Rules   []policies.Rule              `json:"rules"`
					Applied map[string]map[string]string `json:"applied,omitempty"`
				}{report.Rules, report.Applied})
			case "text":
				err = writeRules(s.Out, report, clusters)
			default:
				return usagef("output %q: give text or json", o.output)
			}
			if err != nil {
				return &ExitError{Code: ExitFailed, Err: err}
			}
			return complain(s.Err, tree, report.Faults)
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "text or json")
	o.limits.flags(cmd.Flags())
	return cmd
}

func writeRules(out io.Writer, report *policies.Report, clusters []string) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	head := "RULE\tSEVERITY\tKIND\tGROUPS\tTITLE"
	if clusters != nil {
		head = "RULE\tSEVERITY\tKIND\tAPPLIES TO\tTITLE"
	}
	fmt.Fprintln(w, head)
	for _, r := range report.Rules {
		where := strings.Join(r.Groups, ",")
		if clusters != nil {
			where = appliesTo(report, r.ID, clusters)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.ID, r.Severity, r.Kind, where, r.Title)
	}
	return w.Flush()
}

// appliesTo names the clusters that a rule applies to, with its severity there.
func appliesTo(report *policies.Report, id string, clusters []string) string {
	var out []string
	levels := map[string]bool{}
	for _, c := range clusters {
		if level := report.Applied[c][id]; level != "" {
			levels[level] = true
			out = append(out, strings.TrimPrefix(c+":"+level, ":"))
		}
	}
	switch {
	case len(out) == 0:
		return "-"
	case len(out) == len(clusters) && len(levels) == 1 && len(clusters) > 1:
		return "all:" + strings.SplitN(out[0], ":", 2)[1]
	}
	return strings.Join(out, ",")
}

func newPolicyExplainCommand(s Streams) *cobra.Command {
	var o policyOptions
	cmd := &cobra.Command{
		Use:   "explain RULE [DIR]",
		Short: "Say what a rule wants and why, with an example",
		Example: `  coppice policy explain ebs-encrypted
  coppice policy explain team-label .`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usagef("coppice policy explain takes RULE and, for a tree's own rules, DIR; see 'coppice policy explain --help'")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			o.id, o.dir = args[0], strings.Join(args[1:], "")
			report, _, _, err := o.report()
			if err != nil {
				return err
			}
			i := slices.IndexFunc(report.Rules, func(r policies.Rule) bool { return r.ID == o.id })
			if i < 0 {
				var ids []string
				for _, r := range report.Rules {
					ids = append(ids, r.ID)
				}
				if near := render.Nearest(o.id, ids); near != "" {
					return usagef("there is no rule %s; did you mean %s?", o.id, near)
				}
				return usagef("there is no rule %s; list them with 'coppice policy list'", o.id)
			}
			if _, err := io.WriteString(s.Out, explainRule(report.Rules[i])); err != nil {
				return &ExitError{Code: ExitFailed, Err: err}
			}
			return nil
		},
	}
	o.limits.flags(cmd.Flags())
	return cmd
}

func explainRule(r policies.Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n", r.ID, r.Title)
	fmt.Fprintf(&b, "severity  %s\nkind      %s\n", r.Severity, r.Kind)
	if len(r.Groups) > 0 {
		fmt.Fprintf(&b, "groups    %s\n", strings.Join(r.Groups, ", "))
	}
	if r.Own {
		fmt.Fprintf(&b, "stands    %s\n", r.Pos)
	}
	fmt.Fprintf(&b, "\nwhy   %s\nhelp  %s\n", r.Why, r.Help)
	for _, part := range []struct{ title, text string }{
		{"parameters, with their defaults", r.Params}, {"breaks the rule", r.Bad}, {"keeps it", r.Good},
	} {
		if part.text != "" {
			fmt.Fprintf(&b, "\n%s:\n\n    %s\n", part.title, strings.ReplaceAll(part.text, "\n", "\n    "))
		}
	}
	return b.String()
}

func newPolicyTestCommand(s Streams) *cobra.Command {
	var o policyOptions
	cmd := &cobra.Command{
		Use:   "test [DIR]",
		Short: "Run the cases of the rules in the tree at DIR, or of the library",
		Args:  atMostArgs(1, "at most DIR, the root of a tree with a folder policies"),
		RunE: func(_ *cobra.Command, args []string) error {
			o.dir = strings.Join(args, "")
			report, tree, _, err := o.report()
			if err != nil {
				return err
			}
			if o.dir != "" && !slices.ContainsFunc(report.Rules, func(r policies.Rule) bool { return r.Own }) && !report.Findings.HasErrors() {
				return usagef("%s has no rules: write them in its folder policies", o.dir)
			}
			failed := 0
			for _, f := range report.Findings {
				if f.Code == policies.CodeCase && f.Severity == diag.Error {
					failed++
				}
			}
			if err := complain(s.Out, tree, report.Findings); err != nil {
				if report.Cases > 0 {
					fmt.Fprintf(s.Err, "%d of %d cases failed\n", failed, report.Cases)
				}
				return err
			}
			fmt.Fprintf(s.Err, "%d cases passed\n", report.Cases)
			return nil
		},
	}
	o.limits.flags(cmd.Flags())
	return cmd
}

// atMostArgs wants up to n arguments.
func atMostArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef("%s takes %s; see '%s --help'", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}

func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
