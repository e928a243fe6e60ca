package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
)

// control talks to a simulator's control API.
type control struct {
	endpoint, info string
	out            io.Writer
}

func ec2Command(stdout io.Writer) *cobra.Command {
	c := &control{out: stdout}
	cmd := &cobra.Command{
		Use:   "ec2",
		Short: "List what is in a running EC2 simulator, and make things happen there",
		Long: `List what is in a running EC2 simulator, and make things happen there. It is found
by --endpoint, by the file that sandbox up or sandbox ec2sim wrote with --info, or
by AWS_ENDPOINT_URL.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&c.endpoint, "endpoint", "", "`URL` of the simulator")
	cmd.PersistentFlags().StringVar(&c.info, "info", "", "`file` with its address")
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List instances and what they cost", Args: noArguments, RunE: c.list},
		&cobra.Command{Use: "state", Short: "Show time, spending and what is in force, as JSON", Args: noArguments, RunE: c.state},
		&cobra.Command{Use: "calls", Short: "Count the calls so far, by action", Args: noArguments, RunE: c.calls},
		&cobra.Command{Use: "play FILE", Short: "Play a scenario from now on", Args: exactArguments(1), RunE: c.play},
		c.simple("clear", "End shortages, price changes, outages and faults", http.MethodDelete, "effects"),
		c.simple("reset", "Take back all that came of calls and scenarios", http.MethodPost, "reset"),
	)
	victims := func(name, short string, set func(*ec2sim.Step, *ec2sim.Victims)) {
		cmd.AddCommand(c.step(name+" [ID...]", short, cobra.ArbitraryArgs, func(f *pflag.FlagSet) func([]string) ec2sim.Step {
			v := &ec2sim.Victims{}
			matchFlags(f, &v.Match)
			f.IntVar(&v.Count, "count", 0, "how many of those that match; 0 for all")
			return func(ids []string) ec2sim.Step {
				v.IDs = ids
				var st ec2sim.Step
				set(&st, v)
				return st
			}
		}))
	}
	victims("interrupt", "Take spot instances back, with two minutes' notice", func(st *ec2sim.Step, v *ec2sim.Victims) { st.Interrupt = v })
	victims("reclaim", "Take instances in capacity reservations back, with two minutes' notice", func(st *ec2sim.Step, v *ec2sim.Victims) { st.Reclaim = v })
	victims("rebalance", "Recommend to move away from spot instances", func(st *ec2sim.Step, v *ec2sim.Victims) { st.Rebalance = v })
	victims("retire", "Schedule the retirement of instances", func(st *ec2sim.Step, v *ec2sim.Victims) { st.Retire = v })
	victims("terminate", "End instances without notice", func(st *ec2sim.Step, v *ec2sim.Victims) { st.Terminate = v })
	victims("impair", "Fail the status checks of instances", func(st *ec2sim.Step, v *ec2sim.Victims) { st.Impair = v })
	cmd.AddCommand(
		c.step("shortage", "Leave capacity pools room for few instances, or none", noArguments, func(f *pflag.FlagSet) func([]string) ec2sim.Step {
			s := &ec2sim.Shortage{}
			matchFlags(f, &s.Match)
			f.IntVar(&s.Left, "left", 0, "how many instances a pool holds, those that run included")
			return func([]string) ec2sim.Step { return ec2sim.Step{Shortage: s} }
		}),
		c.step("prices", "Multiply spot prices", noArguments, func(f *pflag.FlagSet) func([]string) ec2sim.Step {
			p := &ec2sim.PriceChange{}
			matchFlags(f, &p.Match)
			f.Float64Var(&p.Factor, "factor", 2, "what to multiply by")
			return func([]string) ec2sim.Step { return ec2sim.Step{Prices: p} }
		}),
		c.step("outage ZONE...", "Take zones down, and all that runs there", cobra.MinimumNArgs(1), func(*pflag.FlagSet) func([]string) ec2sim.Step {
			return func(zones []string) ec2sim.Step { return ec2sim.Step{Outage: &ec2sim.Outage{Zones: zones}} }
		}),
		c.step("boot", "Delay boots, or let them fail", noArguments, func(f *pflag.FlagSet) func([]string) ec2sim.Step {
			b := &ec2sim.BootFault{}
			matchFlags(f, &b.Match)
			f.DurationVar((*time.Duration)(&b.Delay), "delay", 0, "`time` added to each boot")
			f.Float64Var(&b.Fail, "fail", 0, "`fraction` of instances that end without having run")
			f.Float64Var(&b.Hang, "hang", 0, "`fraction` of instances that run and never become nodes")
			return func([]string) ec2sim.Step { return ec2sim.Step{Boot: b} }
		}),
		c.step("fault [SERVICE:ACTION...]", "Slow down or fail API calls, as in ec2:CreateFleet or ec2:Describe*", cobra.ArbitraryArgs, func(f *pflag.FlagSet) func([]string) ec2sim.Step {
			x := &ec2sim.CallFault{}
			f.DurationVar((*time.Duration)(&x.Delay), "delay", 0, "`time` added to each call")
			f.StringVar(&x.Code, "code", "", "error `code` to answer with")
			f.Float64Var(&x.Fraction, "fraction", 0, "`fraction` of the calls that are hit; 0 for all")
			f.IntVar(&x.Count, "count", 0, "after how many hits it is over; 0 for never")
			return func(actions []string) ec2sim.Step {
				x.Actions = actions
				return ec2sim.Step{Calls: x}
			}
		}),
	)
	return cmd
}

func exactArguments(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.ExactArgs(n)(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

func matchFlags(f *pflag.FlagSet, m *ec2sim.Match) {
	f.StringSliceVar(&m.Types, "type", nil, "instance `types`, patterns as in m5.* too (default all)")
	f.StringSliceVar(&m.Zones, "zone", nil, "`zones`, by name or ID (default all)")
	f.StringSliceVar(&m.CapacityTypes, "capacity-type", nil, "spot or on-demand (default both)")
}

// step is a command that carries out one step. A step that lasts takes --for.
func (c *control) step(use, short string, args cobra.PositionalArgs, flags func(*pflag.FlagSet) func([]string) ec2sim.Step) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return usageError{err}
		}
		return nil
	}}
	var last time.Duration
	build := flags(cmd.Flags())
	cmd.Flags().DurationVar(&last, "for", 0, "`time` that it lasts; 0 for good")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		st := build(args)
		st.For = ec2sim.Duration(last)
		body, err := json.Marshal(st)
		if err != nil {
			return fmt.Errorf("encode the step: %w", err)
		}
		var hit struct{ Instances []string }
		if err := c.call(cmd.Context(), http.MethodPost, "do", body, &hit); err != nil {
			return err
		}
		for _, id := range hit.Instances {
			fmt.Fprintln(c.out, id)
		}
		return nil
	}
	return cmd
}

func (c *control) simple(use, short, method, path string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: noArguments, RunE: func(cmd *cobra.Command, _ []string) error {
		return c.call(cmd.Context(), method, path, nil, nil)
	}}
}

func (c *control) list(cmd *cobra.Command, _ []string) error {
	var all []ec2sim.Instance
	if err := c.call(cmd.Context(), http.MethodGet, "instances", nil, &all); err != nil {
		return err
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "INSTANCE\tTYPE\tZONE\tCAPACITY\tSTATE\tADDRESS\tNODEPOOL\t$/H")
	sum := int64(0)
	for _, i := range all {
		state := i.State
		switch {
		case i.StateReason != "":
			state += " (" + i.StateReason + ")"
		case i.Failed:
			state += " (hangs)"
		case i.Impaired:
			state += " (impaired)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.4f\n", i.ID, i.Type, i.Zone, i.CapacityType, state, i.PrivateIP, cmp.Or(i.Tags["karpenter.sh/nodepool"], "-"), float64(i.MicroUSD)/1e6)
		sum += i.MicroUSD
	}
	fmt.Fprintf(w, "%d\t\t\t\t\t\t\t%.4f\n", len(all), float64(sum)/1e6)
	return w.Flush()
}

func (c *control) state(cmd *cobra.Command, _ []string) error {
	var st ec2sim.State
	if err := c.call(cmd.Context(), http.MethodGet, "state", nil, &st); err != nil {
		return err
	}
	enc := json.NewEncoder(c.out)
	enc.SetIndent("", "  ")
	return enc.Encode(st)
}

func (c *control) calls(cmd *cobra.Command, _ []string) error {
	var all []ec2sim.Calls
	if err := c.call(cmd.Context(), http.MethodGet, "calls", nil, &all); err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b ec2sim.Calls) int { return cmp.Compare(b.Calls, a.Calls) })
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CALLS\tACTION\tREFUSED")
	for _, call := range all {
		refused := []string{}
		for code, n := range call.Errors {
			refused = append(refused, fmt.Sprintf("%s %d", code, n))
		}
		slices.Sort(refused)
		fmt.Fprintf(w, "%d\t%s\t%s\n", call.Calls, call.Action, strings.Join(refused, ", "))
	}
	return w.Flush()
}

func (c *control) play(cmd *cobra.Command, args []string) error {
	data, err := os.ReadFile(args[0])
	if err != nil {
		return usageError{fmt.Errorf("read the scenario: %w", err)}
	}
	return c.call(cmd.Context(), http.MethodPost, "play", data, nil)
}

// address finds the simulator.
func (c *control) address() (string, error) {
	if c.endpoint != "" {
		return c.endpoint, nil
	}
	if c.info != "" {
		e, err := endpoints.Read(c.info)
		return e.EC2, err
	}
	if env := os.Getenv("AWS_ENDPOINT_URL"); env != "" {
		return env, nil
	}
	return "", usageError{errors.New("no simulator is named: give --endpoint or --info, or set AWS_ENDPOINT_URL")}
}

// call asks the control API, and decodes the answer into out unless that is nil.
func (c *control) call(ctx context.Context, method, path string, body []byte, out any) error {
	base, err := c.address()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+"/_sim/"+path, bytes.NewReader(body))
	if err != nil {
		return usageError{fmt.Errorf("reach the simulator: %w", err)}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("reach the simulator: %w", err)
	}
	defer res.Body.Close() // it has been read
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("read the simulator's answer: %w", err)
	}
	if res.StatusCode >= 300 {
		var refusal struct{ Error string }
		if json.Unmarshal(data, &refusal) == nil && refusal.Error != "" {
			return usageError{errors.New(refusal.Error)}
		}
		return fmt.Errorf("the simulator at %s answered with %s", base, res.Status)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("read the simulator's answer: %w", err)
	}
	return nil
}
