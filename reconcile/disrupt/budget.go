package disrupt

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// Limit is how many nodes of a pool may be on their way out for a reason.
type Limit struct {
	Nodes int
	// By is the budget that says so, "" if none does.
	By string
	// Until is when that budget's present window ends; zero for one without a schedule.
	Until time.Time
}

// Allowed returns what the budgets that are active at time now and cover the reason
// say: the least of them. Percentages are of nodes and round up. With no such budget
// it is unlimited. A budget that can't be read allows none, and comes with the error.
func Allowed(budgets []sugar.Budget, reason karpenter.DisruptionReason, nodes int, now time.Time) (Limit, error) {
	least := Limit{Nodes: math.MaxInt}
	for i, b := range budgets {
		if len(b.Reasons) > 0 && !slices.Contains(b.Reasons, reason) {
			continue
		}
		until, on, err := active(b, now)
		if err != nil {
			return Limit{}, fmt.Errorf("budgets[%d]: %w", i, err)
		}
		if !on {
			continue
		}
		n, err := count(b.Nodes, nodes)
		if err != nil {
			return Limit{}, fmt.Errorf("budgets[%d]: %w", i, err)
		}
		if n < least.Nodes {
			least = Limit{Nodes: n, By: b.Nodes, Until: until}
			if b.Schedule != "" {
				least.By += " from " + b.Schedule
			}
		}
	}
	return least, nil
}

// budgets returns a pool's own budgets and those of its annotations.
func (p Pool) budgets() []sugar.Budget {
	var out []sugar.Budget
	for _, b := range p.Spec.Disruption.Budgets {
		x := sugar.Budget{Nodes: b.Nodes, Reasons: b.Reasons}
		if b.Schedule != nil {
			x.Schedule = *b.Schedule
		}
		if b.Duration != nil {
			x.Duration = b.Duration.Duration.String()
		}
		out = append(out, x)
	}
	return append(out, p.Options.Budgets...)
}

// active reports whether now lies within the budget's days and within its duration
// after one of its schedule's times, and when that ends.
func active(b sugar.Budget, now time.Time) (until time.Time, on bool, err error) {
	// The API's own budgets are in UTC whatever the machine's zone.
	zone, err := time.LoadLocation(b.TimeZone)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("time zone %q: %w", b.TimeZone, err)
	}
	now = now.In(zone)
	day := now.Format(time.DateOnly)
	if b.From != "" && day < b.From || b.Until != "" && day > b.Until {
		return time.Time{}, false, nil
	}
	if b.Schedule == "" {
		return time.Time{}, true, nil
	}
	if b.Duration == "" {
		return time.Time{}, false, fmt.Errorf("schedule %q has no duration", b.Schedule)
	}
	lasts, err := time.ParseDuration(b.Duration)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("duration %q: %w", b.Duration, err)
	}
	parsed, err := cron.ParseStandard(b.Schedule)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("schedule %q: %w", b.Schedule, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return time.Time{}, false, fmt.Errorf("schedule %q: write five cron fields or a macro such as @daily", b.Schedule)
	}
	spec.Location = zone
	// Next is strictly later than its argument, so a window that opened exactly
	// lasts ago has just closed.
	from := now.Add(-lasts)
	start := spec.Next(from)
	// A time that the clocks jump over in spring never comes. The window opens then as
	// if they had not been changed: a budget that is missing would bound nothing.
	_, before := from.Zone()
	if _, after := now.Zone(); after > before {
		still := *spec
		still.Location = time.FixedZone("", before)
		if s := still.Next(from.In(still.Location)); s.Before(start) {
			start = s
		}
	}
	if start.IsZero() || start.After(now) {
		return time.Time{}, false, nil
	}
	// The last start until now is when the window ends from.
	for next := spec.Next(start); !next.IsZero() && !next.After(now); next = spec.Next(next) {
		start = next
	}
	return start.Add(lasts), true, nil
}

func count(text string, nodes int) (int, error) {
	percent, isPercent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(percent)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("nodes %q is neither a count nor a percentage", text)
	}
	if isPercent {
		return (n*nodes + 99) / 100, nil
	}
	return n, nil
}
