package ec2

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
)

// While traffic is shifted away from a zone nothing is launched there, and a launch
// that is restricted to it waits for capacity as if the zone were empty.
func TestZonalShiftStopsLaunches(t *testing.T) {
	w := newWorld(t)
	p := w.provider(func(c *Config) { c.ZonalShift = true })
	class := w.resolve(p, newClass())
	sdk, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	arc := arczonalshift.NewFromConfig(sdk)
	info, err := p.describeCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	offered := func() []string {
		var out []string
		for _, o := range w.request(p, class, w.claim("x"), []string{"m5.large"}, []string{cloud.OnDemand}).Types[0].Offerings {
			if o.Available {
				out = append(out, o.Zone)
			}
		}
		slices.Sort(out)
		return out
	}
	before := offered()
	list, _ := p.InstanceTypes(t.Context(), class)
	zone := class.Status.Subnets[1]
	began, err := arc.StartZonalShift(t.Context(), &arczonalshift.StartZonalShiftInput{
		AwayFrom: &zone.ZoneID, ResourceIdentifier: &info.arn, ExpiresIn: new("12h"), Comment: new("rehearsal"),
	})
	if err != nil {
		t.Fatal(err)
	}
	stale := w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{cloud.OnDemand})
	if again, _ := p.InstanceTypes(t.Context(), class); &list[0] != &again[0] {
		t.Error("the list was made anew although nothing is known to have changed")
	}
	w.clock.Advance(shiftsEvery)
	// The first question after the period starts the call; the next sees its answer.
	settled := func(want int) []string {
		t.Helper()
		for range 200 {
			if got := offered(); len(got) == want {
				return got
			}
			time.Sleep(5 * time.Millisecond)
		}
		return offered()
	}
	if got := settled(len(before) - 1); len(got) != len(before)-1 || slices.Contains(got, zone.Zone) {
		t.Errorf("while %s is shifted away from, %v are offered", zone.Zone, got)
	}
	if zones, err := p.Shifted(t.Context()); err != nil || len(zones) != 1 || !zones[zone.ZoneID] {
		t.Errorf("shifted zones are %v, %v", zones, err)
	}
	// A request made before the shift doesn't launch there either.
	stale.Types[0].Offerings = slices.DeleteFunc(stale.Types[0].Offerings, func(o cloud.Offering) bool { return o.Zone != zone.Zone })
	if _, err := p.Launch(t.Context(), stale); !errors.As(err, new(*cloud.InsufficientCapacityError)) || len(w.live()) != 0 {
		t.Errorf("a launch into %s: %v, %d run", zone.Zone, err, len(w.live()))
	}
	if _, err := arc.CancelZonalShift(t.Context(), &arczonalshift.CancelZonalShiftInput{ZonalShiftId: began.ZonalShiftId}); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(shiftsEvery)
	if got := settled(len(before)); !slices.Equal(got, before) {
		t.Errorf("after the shift %v are offered, want %v", got, before)
	}
}

// Zonal shift is asked for only where it is turned on, and its absence stops nothing.
func TestZonalShiftUnavailable(t *testing.T) {
	w := newWorld(t)
	off := w.provider()
	class := w.resolve(off, newClass())
	w.launch(off, w.request(off, class, w.claim("1"), []string{"m5.large"}, []string{cloud.OnDemand}))
	if zones, err := off.Shifted(t.Context()); err != nil || zones != nil {
		t.Errorf("turned off it says %v, %v", zones, err)
	}
	for _, c := range w.sim.Counters() {
		if matches(c.Action, []string{"arc-zonal-shift:*"}) {
			t.Errorf("turned off it called %s", c.Action)
		}
	}
	w.do(ec2sim.Step{Calls: &ec2sim.CallFault{Actions: []string{"arc-zonal-shift:*"}, Code: "AccessDeniedException"}})
	on := w.provider(func(c *Config) { c.ZonalShift = true })
	w.launch(on, w.request(on, class, w.claim("2"), []string{"m5.large"}, []string{cloud.OnDemand}))
	if _, err := on.Shifted(t.Context()); !errors.As(err, new(*cloud.TerminalError)) {
		t.Errorf("without the right to ask: %v", err)
	}
}
