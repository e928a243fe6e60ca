package ec2sim_test

import (
	"os"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/ec2sim"
)

// TestExampleScenario plays the example on instances that each step can hit.
func TestExampleScenario(t *testing.T) {
	data, err := os.ReadFile("../../examples/scenarios/rough-day.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sc, err := ec2sim.ParseScenario(data)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.template("nodes")
	ids := w.launch(w.fleetInput("nodes", spot, 4, offer{"m5.large", "us-west-2b"}))
	doomed := w.launch(w.fleetInput("nodes", onDemand, 1, offer{"m5.large", "us-west-2c"}))
	w.clock.Advance(time.Minute)
	if err := w.sim.Play(sc); err != nil {
		t.Fatal(err)
	}
	most := 0
	for range 45 {
		w.clock.Advance(time.Minute)
		most = max(most, len(w.sim.State().Effects))
	}
	interrupted := 0
	for _, id := range ids {
		if i, _ := w.sim.Instance(id); i.StateReason == "Server.SpotInstanceTermination" {
			interrupted++
		}
	}
	if i, _ := w.sim.Instance(doomed[0]); interrupted != 2 || i.State != "terminated" {
		t.Errorf("%d spot instances were interrupted, and in the zone that was down one is %s", interrupted, i.State)
	}
	// All but the release are over within the hour, of which the prices last most.
	if left := w.sim.State().Effects; most < 5 || len(left) != 2 {
		t.Errorf("%d effects at once at most, in the end %+v", most, left)
	}
}
