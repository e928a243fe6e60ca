package ec2sim_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/coppice-dev/coppice/internal/ec2sim"
)

func TestReset(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	in := w.fleetInput("nodes", spot, 2, offer{"m5.large", "us-west-2a"})
	before := w.launch(in)
	w.clock.Advance(time.Hour)
	for _, step := range []ec2sim.Step{
		{Shortage: &ec2sim.Shortage{}},
		{Interrupt: &ec2sim.Victims{IDs: before[:1]}},
	} {
		if _, err := w.sim.Do(step); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.sim.Play(ec2sim.Scenario{Steps: []ec2sim.Step{{At: ec2sim.Duration(time.Minute), Outage: &ec2sim.Outage{Zones: []string{"us-west-2a"}}}}}); err != nil {
		t.Fatal(err)
	}
	subnets := w.subnets()
	if status, body := w.send("POST", "/_sim/reset", "", ""); status != 204 {
		t.Fatalf("reset: %d %s", status, body)
	}

	if st := w.sim.State(); len(st.Instances) != 0 || len(st.Effects) != 0 || st.SpentMicroUSD != 0 {
		t.Errorf("after a reset: %+v", st)
	}
	if calls := w.sim.Counters(); len(calls) != 0 {
		t.Errorf("calls are still counted: %+v", calls)
	}
	_, err := w.ec2.DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"nodes"}})
	wantCode(t, "the launch template", err, "InvalidLaunchTemplateName.NotFoundException")
	_, err = w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: before[:1]})
	wantCode(t, "an instance", err, "InvalidInstanceID.NotFound")
	for zone, id := range w.subnets() {
		if subnets[zone] != id {
			t.Errorf("subnet of %s was %s, is %s", zone, subnets[zone], id)
		}
	}

	// What waited is off: the outage, the end of the interrupted instance, boots.
	w.template("nodes")
	after := w.launch(in)
	w.clock.Advance(time.Hour)
	if len(after) != 2 || after[0] == before[0] {
		t.Errorf("launched %v after a reset, %v before", after, before)
	}
	if st := w.sim.State(); st.Instances["running"] != 2 {
		t.Errorf("an hour after a reset: %+v", st)
	}
}
