package ec2

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
)

func TestTroubledByID(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	var ids []string
	for n := range 4 {
		got := w.launch(p, w.request(p, class, w.claim(fmt.Sprint(n)), []string{"m5.large"}, []string{"on-demand"}))
		ids = append(ids, got.ID)
	}
	slices.Sort(ids)
	ask := func() map[string]cloud.InterruptionKind {
		t.Helper()
		list, err := p.Troubled(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]cloud.InterruptionKind{}
		for _, i := range list {
			out[i.Instances[0]] = i.Kind
			if i.At.IsZero() || i.Receipt != "" || len(i.Instances) != 1 {
				t.Errorf("told %+v", i)
			}
		}
		return out
	}
	w.clock.Advance(time.Minute)
	if got := ask(); len(got) != 0 || w.calls("ec2:DescribeInstanceStatus") != 0 {
		t.Errorf("instances of a minute: %v after %d calls", got, w.calls("ec2:DescribeInstanceStatus"))
	}
	w.clock.Advance(5 * time.Minute)
	if got := ask(); len(got) != 0 || w.calls("ec2:DescribeInstanceStatus") != 1 {
		t.Errorf("healthy instances: %v after %d calls", got, w.calls("ec2:DescribeInstanceStatus"))
	}
	w.do(ec2sim.Step{Impair: &ec2sim.Victims{IDs: ids[:1]}})
	w.do(ec2sim.Step{Retire: &ec2sim.Victims{IDs: ids[1:2]}})
	w.clock.Advance(failedFor - time.Second)
	if diff := cmp.Diff(map[string]cloud.InterruptionKind{ids[1]: cloud.ScheduledChange}, ask()); diff != "" {
		t.Errorf("before the failure is believed (-want +got):\n%s", diff)
	}
	w.clock.Advance(time.Second)
	both := map[string]cloud.InterruptionKind{ids[0]: cloud.StatusCheckFailed, ids[1]: cloud.ScheduledChange}
	if diff := cmp.Diff(both, ask()); diff != "" {
		t.Errorf("once it is (-want +got):\n%s", diff)
	}
	// One that EC2 has forgotten spoils the question by ID, not the answer.
	list, err := p.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ghost := list[0]
	ghost.ID = "i-00000000000000000"
	p.lists.entries[struct{}{}].value = append([]cloud.Instance{ghost}, list...)
	w.sim.ResetCounters()
	if diff := cmp.Diff(both, ask()); diff != "" || w.calls("ec2:DescribeInstanceStatus") != 1+statusFiltered {
		t.Errorf("beside an unknown instance, after %d calls (-want +got):\n%s", w.calls("ec2:DescribeInstanceStatus"), diff)
	}
	w.do(ec2sim.Step{Terminate: &ec2sim.Victims{IDs: ids[:2]}})
	w.clock.Advance(2 * time.Minute)
	if got := ask(); len(got) != 0 {
		t.Errorf("after they have gone: %v", got)
	}
}

// A large fleet costs no more calls than a small one, and other clusters' instances
// are none of ours.
func TestTroubledOfMany(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	mine := w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"on-demand"}))
	subnet := class.Status.Subnets[0].ID
	foreign, err := p.ec2.RunInstances(t.Context(), &ec2.RunInstancesInput{
		MinCount: new(int32(1)), MaxCount: new(int32(1)), InstanceType: "m5.large", ImageId: &class.Status.AMIs[0].ID, SubnetId: &subnet,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(10 * time.Minute)
	w.do(ec2sim.Step{Impair: &ec2sim.Victims{IDs: []string{mine.ID, *foreign.Instances[0].InstanceId}}})
	w.clock.Advance(failedFor)
	list, err := p.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 400 {
		i := list[0]
		i.ID = fmt.Sprintf("i-%017x", n)
		list = append(list, i)
	}
	p.lists.entries[struct{}{}].value = list
	w.sim.ResetCounters()
	got, err := p.Troubled(t.Context())
	if err != nil || len(got) != 1 || got[0].Instances[0] != mine.ID || got[0].Kind != cloud.StatusCheckFailed {
		t.Errorf("found %+v, %v", got, err)
	}
	if n := w.calls("ec2:DescribeInstanceStatus"); n != statusFiltered {
		t.Errorf("%d calls", n)
	}
}

// A capacity block's instances are drained before EC2 ends them with the block.
func TestTroubledBeforeABlockEnds(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	var made []cloud.Instance
	for _, name := range []string{"1", "2"} {
		made = append(made, w.launch(p, w.request(p, class, w.claim(name), []string{"m5.large"}, []string{"on-demand"})))
	}
	w.clock.Advance(visibleWithin)
	list, err := p.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list = slices.Clone(list)
	list[0].ReservationID, list[1].ReservationID = "cr-block", "cr-other"
	end := w.clock.Now().Add(blockExpiry + 10*time.Second)
	p.reserved.observe([]ec2types.CapacityReservation{
		{CapacityReservationId: new("cr-block"), ReservationType: ec2types.CapacityReservationTypeCapacityBlock, EndDate: &end},
		{CapacityReservationId: new("cr-other"), ReservationType: ec2types.CapacityReservationTypeDefault, EndDate: &end},
	})
	for _, want := range [][]cloud.Interruption{{}, {{Kind: cloud.ScheduledChange, Instances: []string{list[0].ID}, At: end}}} {
		p.lists.entries[struct{}{}].value = list
		if got, err := p.Troubled(t.Context()); err != nil || !cmp.Equal(want, got) {
			t.Errorf("at %s of %v: %+v, %v", w.clock.Now(), made, got, err)
		}
		w.clock.Advance(10 * time.Second)
	}
}

func TestTroubledOf(t *testing.T) {
	now := began
	failing := func(ago time.Duration) *ec2types.InstanceStatusSummary {
		return &ec2types.InstanceStatusSummary{Details: []ec2types.InstanceStatusDetails{{Status: ec2types.StatusTypeFailed, ImpairedSince: new(now.Add(-ago))}}}
	}
	event := func(code, text string, in time.Duration) ec2types.InstanceStatusEvent {
		return ec2types.InstanceStatusEvent{Code: ec2types.EventCode(code), Description: &text, NotBefore: new(now.Add(in))}
	}
	tests := map[string]struct {
		why    string
		status ec2types.InstanceStatus
		kind   cloud.InterruptionKind
		at     time.Duration
	}{
		"system":          {"the host is broken", ec2types.InstanceStatus{SystemStatus: failing(3 * time.Minute)}, cloud.StatusCheckFailed, -3 * time.Minute},
		"a moment":        {"a reboot fails a check, too", ec2types.InstanceStatus{SystemStatus: failing(time.Minute)}, "", 0},
		"failing first":   {"what is broken now comes before a plan", ec2types.InstanceStatus{InstanceStatus: failing(time.Hour), Events: []ec2types.InstanceStatusEvent{event("instance-stop", "", time.Hour)}}, cloud.StatusCheckFailed, -time.Hour},
		"the first event": {"", ec2types.InstanceStatus{Events: []ec2types.InstanceStatusEvent{event("instance-stop", "", 2*time.Hour), event("system-reboot", "", time.Hour)}}, cloud.ScheduledChange, time.Hour},
		"over":            {"EC2 lists what is over for a week", ec2types.InstanceStatus{Events: []ec2types.InstanceStatusEvent{event("instance-stop", "[Completed] stop", -time.Hour), event("instance-stop", "[Canceled] stop", -time.Hour)}}, "", 0},
		"harmless":        {"", ec2types.InstanceStatus{Events: []ec2types.InstanceStatusEvent{event("something-new", "", time.Hour)}}, "", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.status.InstanceId = new("i-1")
			other := tt.status
			other.InstanceId = new("i-2")
			var want []cloud.Interruption
			if tt.kind != "" {
				want = []cloud.Interruption{{Kind: tt.kind, Instances: []string{"i-1"}, At: now.Add(tt.at)}}
			}
			got := troubles([]ec2types.InstanceStatus{tt.status, other}, map[string]bool{"i-1": true}, now)
			if len(got) != len(want) || !cmp.Equal(want, append([]cloud.Interruption(nil), got...)) {
				t.Errorf("%s: found %+v, want %+v", tt.why, got, want)
			}
		})
	}
}
