package sugar

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestAllowed(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	schedule := func(nodes, cron string, d time.Duration) Budget {
		return Budget{Nodes: nodes, Schedule: cron, Duration: d.String()}
	}
	in := func(b Budget, zone, from, until string) Budget {
		b.TimeZone, b.From, b.Until = zone, from, until
		return b
	}
	tests := map[string]struct {
		why     string
		budgets []Budget
		nodes   int
		now     time.Time
		want    int
		wantErr bool
	}{
		"none":               {"no budget bounds nothing", nil, 10, at("2026-01-01T00:00:00Z"), math.MaxInt, false},
		"percent rounds up":  {"a small pool must be able to move at all", []Budget{{Nodes: "10%"}}, 11, at("2026-01-01T00:00:00Z"), 2, false},
		"percent of nothing": {"no nodes, none to take", []Budget{{Nodes: "10%"}}, 0, at("2026-01-01T00:00:00Z"), 0, false},
		"zero":               {"a switch that turns disruption off", []Budget{{Nodes: "0"}}, 10, at("2026-01-01T00:00:00Z"), 0, false},
		"least wins":         {"budgets only restrict", []Budget{{Nodes: "5"}, {Nodes: "3"}}, 100, at("2026-01-01T00:00:00Z"), 3, false},
		"another reason":     {"a budget with reasons leaves others alone", []Budget{{Nodes: "0", Reasons: []karpenter.DisruptionReason{karpenter.DisruptionReasonDrifted}}}, 10, at("2026-01-01T00:00:00Z"), math.MaxInt, false},
		"inside the window":  {"09:00 for 8 h", []Budget{schedule("0", "0 9 * * *", 8*time.Hour)}, 10, at("2026-01-05T12:00:00Z"), 0, false},
		"opens at its minute": {"the first instant belongs to the window",
			[]Budget{schedule("0", "0 9 * * *", 8*time.Hour)}, 10, at("2026-01-05T09:00:00Z"), 0, false},
		"closes at its end": {"the last instant doesn't", []Budget{schedule("0", "0 9 * * *", 8*time.Hour)}, 10, at("2026-01-05T17:00:00Z"), math.MaxInt, false},
		"UTC whatever the clock's zone": {"17:00 in UTC-8 is 01:00 UTC",
			[]Budget{schedule("0", "0 1 * * *", time.Hour)}, 10, at("2026-01-05T17:30:00-08:00"), 0, false},
		"macro": {"@daily is midnight", []Budget{schedule("1", "@daily", 10*time.Minute)}, 10, at("2026-01-05T00:05:00Z"), 1, false},
		"in a time zone": {"09:00 in Berlin is 07:00 UTC in summer",
			[]Budget{in(schedule("0", "0 9 * * *", time.Hour), "Europe/Berlin", "", "")}, 10, at("2026-07-01T07:30:00Z"), 0, false},
		"in a time zone in winter": {"and 08:00 in winter",
			[]Budget{in(schedule("0", "0 9 * * *", time.Hour), "Europe/Berlin", "", "")}, 10, at("2026-01-05T07:30:00Z"), math.MaxInt, false},
		"a time that the clocks jump over": {"02:30 doesn't come on that Sunday, but the window must",
			[]Budget{in(schedule("0", "30 2 * * *", 8*time.Hour), "America/New_York", "", "")}, 10, at("2026-03-08T12:00:00Z"), 0, false},
		"leap day": {"only every fourth year",
			[]Budget{schedule("0", "0 0 29 2 *", 24*time.Hour)}, 10, at("2028-02-29T23:59:00Z"), 0, false},
		"before its days":   {"from is the first", []Budget{in(Budget{Nodes: "0"}, "", "2026-12-24", "2026-12-26")}, 10, at("2026-12-23T23:59:59Z"), math.MaxInt, false},
		"on its first day":  {"from is the first", []Budget{in(Budget{Nodes: "0"}, "", "2026-12-24", "2026-12-26")}, 10, at("2026-12-24T00:00:00Z"), 0, false},
		"on its last day":   {"until counts", []Budget{in(Budget{Nodes: "0"}, "", "2026-12-24", "2026-12-26")}, 10, at("2026-12-26T23:59:59Z"), 0, false},
		"days have a zone":  {"it is the 24th in Tokyo", []Budget{in(Budget{Nodes: "0"}, "Asia/Tokyo", "2026-12-24", "")}, 10, at("2026-12-23T15:00:00Z"), 0, false},
		"no such time zone": {"what can't be read allows nothing", []Budget{in(Budget{Nodes: "5"}, "Mars/Olympus", "", "")}, 10, at("2026-01-05T00:05:00Z"), 0, true},
		"no cron":           {"an interval isn't in the API", []Budget{schedule("5", "@every 1h", time.Hour)}, 10, at("2026-01-05T00:05:00Z"), 0, true},
		"bad cron":          {"what can't be read allows nothing", []Budget{schedule("5", "0 9 * * sat-sun", time.Hour)}, 10, at("2026-01-05T00:05:00Z"), 0, true},
		"bad cron hour":     {"hour 25", []Budget{schedule("5", "0 25 * * *", time.Hour)}, 10, at("2026-01-05T00:05:00Z"), 0, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Allowed(tc.budgets, karpenter.DisruptionReasonEmpty, tc.nodes, tc.now)
			if got.Nodes != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("Allowed() = %+v, %v; want %d (%s)", got, err, tc.want, tc.why)
			}
		})
	}
}

func TestLimitSaysUntilWhen(t *testing.T) {
	b := []Budget{{Nodes: "0", Schedule: "0 * * * *", Duration: "90m"}}
	got, err := Allowed(b, karpenter.DisruptionReasonEmpty, 10, time.Date(2026, 1, 5, 12, 10, 0, 0, time.UTC))
	if want := time.Date(2026, 1, 5, 13, 30, 0, 0, time.UTC); err != nil || !got.Until.Equal(want) {
		t.Errorf("Allowed() = %+v, %v; of overlapping windows the last one's end counts: %v", got, err, want)
	}
}

// plainActive looks at every minute of the duration before now.
func plainActive(b Budget, minutes, hours, days, weekdays map[int]bool, lasts time.Duration, now time.Time) bool {
	zone, err := time.LoadLocation(b.TimeZone)
	if err != nil {
		panic(err)
	}
	matches := func(t time.Time) bool {
		dayOK := days == nil || days[t.Day()]
		weekOK := weekdays == nil || weekdays[int(t.Weekday())]
		either := dayOK && weekOK
		if days != nil && weekdays != nil {
			either = dayOK || weekOK
		}
		return (minutes == nil || minutes[t.Minute()]) && (hours == nil || hours[t.Hour()]) && either
	}
	from := now.Add(-lasts).In(zone)
	_, before := from.Zone()
	for m := now.Truncate(time.Minute); m.After(from); m = m.Add(-time.Minute) {
		local := m.In(zone)
		if matches(local) {
			return true
		}
		if _, off := local.Zone(); off > before && matches(m.In(time.FixedZone("", before))) {
			return true
		}
	}
	return false
}

// TestSchedulesAgreeWithAPlainReading compares 10,000 random budgets with a minute by
// minute search, mostly around changes of the clocks and leap days.
func TestSchedulesAgreeWithAPlainReading(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	field := func(most, least int) (string, map[int]bool) {
		if r.IntN(3) == 0 {
			return "*", nil
		}
		set := map[int]bool{}
		var text []string
		for range 1 + r.IntN(3) {
			v := least + r.IntN(most-least+1)
			set[v] = true
			text = append(text, strconv.Itoa(v))
		}
		return strings.Join(text, ","), set
	}
	moments := []time.Time{
		time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC), // New York
		time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC), // Berlin
		time.Date(2028, 2, 29, 12, 0, 0, 0, time.UTC), time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC),
	}
	on := 0
	for i := range 10_000 {
		minute, minutes := field(59, 0)
		hour, hours := field(23, 0)
		day, days := field(31, 1)
		weekday, weekdays := field(6, 0)
		lasts := time.Duration(1+r.IntN(24*60)) * time.Minute
		b := Budget{
			Nodes: "0", Duration: lasts.String(), Schedule: strings.Join([]string{minute, hour, day, "*", weekday}, " "),
			TimeZone: []string{"", "America/New_York", "Europe/Berlin", "Asia/Kolkata"}[r.IntN(4)],
		}
		now := moments[r.IntN(len(moments))].Add(time.Duration(r.IntN(48*3600)-24*3600) * time.Second)
		got, err := Allowed([]Budget{b}, karpenter.DisruptionReasonEmpty, 10, now)
		if err != nil {
			t.Fatal(err)
		}
		want := plainActive(b, minutes, hours, days, weekdays, lasts, now)
		if want {
			on++
		}
		if want != (got.Nodes == 0) {
			t.Fatalf("case %d: %+v at %v is active: %v; minute by minute: %v", i, b, now, got.Nodes == 0, want)
		}
		if want && !got.Until.After(now) {
			t.Fatalf("case %d: %+v at %v ends in the past: %v", i, b, now, got.Until)
		}
	}
	if on < 1000 || on > 9000 {
		t.Errorf("only one side was tried: %d of 10,000 were active", on)
	}
}

// TestLongWindowsOverDenseSchedules takes years if starts are visited one by one.
func TestLongWindowsOverDenseSchedules(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 30, 30, 0, time.UTC)
	b := Budget{Nodes: "1", Schedule: "* * * * *", Duration: "2562047h"}
	windows, err := b.Windows(at, at.Add(time.Minute))
	if err != nil || len(windows) != 1 || !windows[0].From.Equal(at) {
		t.Errorf("%v, %v", windows, err)
	}
}
