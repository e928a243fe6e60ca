package sugar

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestWindowsAreWhenABudgetIsActive compares Windows, which jumps from one change to
// the next, with the plain question whether the budget is active at a time.
func TestWindowsAreWhenABudgetIsActive(t *testing.T) {
	budgets := map[string]Budget{
		"always":          {Nodes: "1"},
		"weekdays":        {Nodes: "1", Schedule: "0 9 * * mon-fri", Duration: "8h"},
		"overlapping":     {Nodes: "1", Schedule: "*/30 * * * *", Duration: "1h"},
		"every minute":    {Nodes: "1", Schedule: "* * * * *", Duration: "30s"},
		"in the gap":      {Nodes: "1", Schedule: "30 2 * * *", Duration: "2h", TimeZone: "Europe/Berlin"},
		"long":            {Nodes: "1", Schedule: "0 0 * * sun", Duration: "100h", TimeZone: "America/New_York"},
		"within days":     {Nodes: "1", Schedule: "0 22 * * *", Duration: "4h", TimeZone: "Asia/Tokyo", From: "2026-03-27", Until: "2026-03-30"},
		"days alone":      {Nodes: "1", TimeZone: "Europe/Berlin", From: "2026-03-28", Until: "2026-03-29"},
		"never in a week": {Nodes: "1", Schedule: "0 0 1 7 *", Duration: "1h"},
	}
	// The week in which Berlin's clocks are put forward.
	from := time.Date(2026, 3, 25, 13, 17, 0, 0, time.UTC)
	to := from.AddDate(0, 0, 7)
	for name, b := range budgets {
		windows, err := b.Windows(from, to)
		if err != nil {
			t.Fatal(err)
		}
		c, err := b.calendar()
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range windows {
			if !w.From.Before(w.To) || i > 0 && !windows[i-1].To.Before(w.From) {
				t.Errorf("%s: window %d of %v is empty or touches the one before", name, i, windows)
			}
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 3000 {
			at := from.Add(time.Duration(r.Int64N(int64(to.Sub(from)/time.Second))) * time.Second)
			_, want := c.active(at)
			got := false
			for _, w := range windows {
				got = got || !at.Before(w.From) && at.Before(w.To)
			}
			if got != want {
				t.Fatalf("%s: at %s active is %v, but its windows are %v", name, at, want, windows)
			}
		}
	}
}
