package sugar

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/coppice-dev/coppice/schemas/karpenter"
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
func Allowed(budgets []Budget, reason karpenter.DisruptionReason, nodes int, now time.Time) (Limit, error) {
	least := Limit{Nodes: math.MaxInt}
	for i, b := range budgets {
		if !b.Covers(reason) {
			continue
		}
		c, err := b.calendar()
		if err != nil {
			return Limit{}, fmt.Errorf("budgets[%d]: %w", i, err)
		}
		until, on := c.active(now)
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

// Covers reports whether the budget applies to a reason.
func (b Budget) Covers(reason karpenter.DisruptionReason) bool {
	return len(b.Reasons) == 0 || slices.Contains(b.Reasons, reason)
}

// BudgetsOf returns a pool's own budgets and those of its options, as one list.
func BudgetsOf(spec karpenter.NodePoolSpec, o Options) []Budget {
	var out []Budget
	for _, b := range spec.Disruption.Budgets {
		x := Budget{Nodes: b.Nodes, Reasons: b.Reasons}
		if b.Schedule != nil {
			x.Schedule = *b.Schedule
		}
		if b.Duration != nil {
			x.Duration = b.Duration.Duration.String()
		}
		out = append(out, x)
	}
	return append(out, o.Budgets...)
}

// Window is a time in which a budget is active, from From until just before To.
type Window struct{ From, To time.Time }

// Windows returns when the budget is active between two times, in order. Windows
// that touch are one.
func (b Budget) Windows(from, to time.Time) ([]Window, error) {
	c, err := b.calendar()
	if err != nil {
		return nil, err
	}
	var out []Window
	for now := from; now.Before(to); {
		until, on := c.active(now)
		if !on {
			next := c.next(now)
			if next.IsZero() {
				break
			}
			now = next
			continue
		}
		if until.IsZero() || until.After(to) {
			until = to
		}
		if n := len(out); n > 0 && out[n-1].To.Equal(now) {
			out[n-1].To = until
		} else {
			out = append(out, Window{now, until})
		}
		now = until
	}
	return out, nil
}

// calendar is a budget's schedule, ready to be asked.
type calendar struct {
	zone *time.Location
	// first and end bound the days on which it counts; zero is no bound.
	first, end time.Time
	schedule   *cron.SpecSchedule // nil: always
	lasts      time.Duration
}

func (b Budget) calendar() (calendar, error) {
	// The API's own budgets are in UTC whatever the machine's zone.
	zone, err := time.LoadLocation(b.TimeZone)
	if err != nil {
		return calendar{}, fmt.Errorf("time zone %q: %w", b.TimeZone, err)
	}
	c := calendar{zone: zone}
	if b.From != "" {
		if c.first, err = time.ParseInLocation(time.DateOnly, b.From, zone); err != nil {
			return calendar{}, fmt.Errorf("from %q: %w", b.From, err)
		}
	}
	if b.Until != "" {
		last, err := time.ParseInLocation(time.DateOnly, b.Until, zone)
		if err != nil {
			return calendar{}, fmt.Errorf("until %q: %w", b.Until, err)
		}
		c.end = last.AddDate(0, 0, 1)
	}
	if b.Schedule == "" {
		return c, nil
	}
	if b.Duration == "" {
		return calendar{}, fmt.Errorf("schedule %q has no duration", b.Schedule)
	}
	if c.lasts, err = time.ParseDuration(b.Duration); err != nil {
		return calendar{}, fmt.Errorf("duration %q: %w", b.Duration, err)
	}
	parsed, err := cron.ParseStandard(b.Schedule)
	if err != nil {
		return calendar{}, fmt.Errorf("schedule %q: %w", b.Schedule, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return calendar{}, fmt.Errorf("schedule %q: write five cron fields or a macro such as @daily", b.Schedule)
	}
	spec.Location = zone
	c.schedule = spec
	return c, nil
}

// active reports whether now lies within the budget's days and within its duration
// after one of its schedule's times, and when that ends.
func (c calendar) active(now time.Time) (until time.Time, on bool) {
	now = now.In(c.zone)
	if now.Before(c.first) || !c.end.IsZero() && !now.Before(c.end) {
		return time.Time{}, false
	}
	if c.schedule == nil {
		return c.end, true
	}
	// Next is strictly later than its argument, so a window that opened exactly
	// lasts ago has just closed.
	from := now.Add(-c.lasts)
	start := c.schedule.Next(from)
	// A time that the clocks jump over in spring never comes. The window opens then as
	// if they had not been changed: a budget that is missing would bound nothing.
	if s := c.skipped(from, now); !s.IsZero() && (start.IsZero() || s.Before(start)) {
		start = s
	}
	if start.IsZero() || start.After(now) {
		return time.Time{}, false
	}
	// The last start until now is when the window ends from. It is searched for by
	// halves: a long window over a dense schedule has millions of starts.
	later := func(t time.Time) (time.Time, bool) {
		next := c.schedule.Next(t)
		return next, !next.IsZero() && !next.After(now)
	}
	if next, ok := later(start); ok {
		start = next
		for low, high := start, now; high.Sub(low) > time.Second; {
			middle := low.Add(high.Sub(low) / 2)
			if next, ok := later(middle); ok {
				low, start = middle, next
			} else {
				high = middle
			}
		}
	}
	until = start.Add(c.lasts)
	if !c.end.IsZero() && until.After(c.end) {
		until = c.end
	}
	return until, true
}

// skipped returns the first start after from, and not after to, that never comes because
// the clocks are put forward over it: the time at which it would come had they not been.
func (c calendar) skipped(from, to time.Time) time.Time {
	change, next := from.In(c.zone).ZoneBounds()
	for ; !change.After(to); change, next = next.In(c.zone).ZoneBounds() {
		if !change.IsZero() {
			_, before := change.Add(-time.Second).In(c.zone).Zone()
			_, after := change.In(c.zone).Zone()
			still := *c.schedule
			still.Location = time.FixedZone("", before)
			since := change.Add(-time.Second)
			if since.Before(from) {
				since = from
			}
			gap := change.Add(time.Duration(after-before) * time.Second)
			if s := still.Next(since.In(still.Location)); !s.IsZero() && s.Before(gap) && !s.After(to) {
				return s.In(c.zone)
			}
		}
		if next.IsZero() {
			break
		}
	}
	return time.Time{}
}

// next returns the first time after now, at which it isn't active, when it may be, or
// the zero time if there is none.
func (c calendar) next(now time.Time) time.Time {
	now = now.In(c.zone)
	switch {
	case !c.end.IsZero() && !now.Before(c.end):
		return time.Time{}
	case now.Before(c.first):
		return c.first
	case c.schedule == nil:
		return time.Time{}
	}
	next := c.schedule.Next(now)
	if next.IsZero() {
		return next
	}
	if s := c.skipped(now, next); !s.IsZero() && s.Before(next) {
		next = s
	}
	return next
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
