package ec2

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// What is paid for is used first, to the last instance of it and no further.
func TestLaunchReserved(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	zone := w.resolve(p, newClass()).Status.Subnets[1].Zone
	made, err := p.ec2.CreateCapacityReservation(t.Context(), &ec2.CreateCapacityReservationInput{
		InstanceType: new("m5.large"), AvailabilityZone: &zone, InstanceCount: new(int32(2)),
		InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix, InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
	})
	if err != nil {
		t.Fatal(err)
	}
	id := *made.CapacityReservation.CapacityReservationId
	class := newClass()
	class.Spec.CapacityReservationSelectorTerms = []aws.CapacityReservationSelectorTerm{{ID: id}}
	w.resolve(p, class)
	want := []aws.CapacityReservation{{
		ID: id, AvailabilityZone: zone, InstanceType: "m5.large", InstanceMatchCriteria: "targeted",
		OwnerID: *made.CapacityReservation.OwnerId, ReservationType: "default", State: "active",
	}}
	if diff := gocmp.Diff(want, class.Status.CapacityReservations); diff != "" {
		t.Errorf("reservations (-want +got):\n%s", diff)
	}
	var got []string
	for n := range 3 {
		req := w.request(p, class, w.claim(fmt.Sprint(n)), []string{"m5.large"}, []string{"*"})
		i := w.launch(p, req)
		got = append(got, i.CapacityType)
		if sim, _ := w.sim.Instance(i.ID); sim.CapacityReservationID != i.ReservationID || (i.CapacityType == cloud.Reserved) != (i.ReservationID == id) {
			t.Errorf("launched %+v into %q", i, sim.CapacityReservationID)
		}
		for _, o := range req.Types[0].Offerings {
			if o.CapacityType == cloud.Reserved && (o.ReservedCount != 2-n || o.Available != (n < 2) || o.MicroUSD != 0) {
				t.Errorf("before launch %d the reservation is offered as %+v", n, o)
			}
		}
	}
	if want := []string{"reserved", "reserved", "spot"}; !slices.Equal(got, want) {
		t.Errorf("launched %v, want %v", got, want)
	}
	w.clock.Advance(time.Minute)
	list, err := p.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reserved := 0
	for _, i := range list {
		if i.CapacityType == cloud.Reserved && i.ReservationID == id {
			reserved++
		}
	}
	if reserved != 2 {
		t.Errorf("%d of the listed instances are reserved", reserved)
	}
}

// Of two reservations of one type in one zone, that with most left is used, then the
// other: EC2 refuses a fleet that names both. Interruptible ones and capacity blocks
// are asked for in their own markets.
func TestLaunchReservedMarkets(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := newClass()
	zone := w.resolve(p, newClass()).Status.Subnets[0].Zone
	var ids []string
	for _, n := range []int32{1, 2, 1, 1} {
		made, err := p.ec2.CreateCapacityReservation(t.Context(), &ec2.CreateCapacityReservationInput{
			InstanceType: new("m5.large"), AvailabilityZone: &zone, InstanceCount: &n,
			InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix, InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
		})
		if err != nil {
			t.Fatal(err)
		}
		id := *made.CapacityReservation.CapacityReservationId
		ids = append(ids, id)
		class.Spec.CapacityReservationSelectorTerms = append(class.Spec.CapacityReservationSelectorTerms, aws.CapacityReservationSelectorTerm{ID: id})
	}
	w.resolve(p, class)
	// The simulator has ordinary ones alone: what the others are the class's status says.
	for i := range class.Status.CapacityReservations {
		switch r := &class.Status.CapacityReservations[i]; r.ID {
		case ids[2]:
			r.Interruptible = true
		case ids[3]:
			r.ReservationType = aws.CapacityReservationTypeCapacityBlock
		}
	}
	used := map[string]int{}
	for n := range 5 {
		i := w.launch(p, w.request(p, class, w.claim(fmt.Sprint(n)), []string{"m5.large"}, []string{cloud.Reserved}))
		used[i.ReservationID]++
		if want := map[int]string{0: ids[1], 3: ids[2], 4: ids[3]}[n]; want != "" && i.ReservationID != want {
			t.Errorf("launch %d is in %s, want %s of %v", n, i.ReservationID, want, ids)
		}
	}
	if diff := gocmp.Diff(map[string]int{ids[0]: 1, ids[1]: 2, ids[2]: 1, ids[3]: 1}, used); diff != "" {
		t.Errorf("instances by reservation (-want +got):\n%s", diff)
	}
}

// When a reservation's owner takes it back there is a notice, and the reservation is
// left alone from then on.
func TestReservationInterrupted(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.Queues = []string{"demo"} })
	p := w.provider(func(c *Config) { c.InterruptionQueue = "demo" })
	zone := w.resolve(p, newClass()).Status.Subnets[0].Zone
	reserved, err := p.ec2.CreateCapacityReservation(t.Context(), &ec2.CreateCapacityReservationInput{
		InstanceType: new("m5.large"), AvailabilityZone: &zone, InstanceCount: new(int32(2)),
		InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix, InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
	})
	if err != nil {
		t.Fatal(err)
	}
	class := newClass()
	class.Spec.CapacityReservationSelectorTerms = []aws.CapacityReservationSelectorTerm{{ID: *reserved.CapacityReservation.CapacityReservationId}}
	w.resolve(p, class)
	got := w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"*"}))
	spot := w.launch(p, w.request(p, class, w.claim("2"), []string{"m5.large"}, []string{cloud.Spot}))
	w.clock.Advance(time.Minute)
	if hit := w.do(ec2sim.Step{Reclaim: &ec2sim.Victims{}}); !slices.Equal(hit, []string{got.ID}) {
		t.Fatalf("reclaimed %v, want %s and not %s", hit, got.ID, spot.ID)
	}
	var notices []cloud.Interruption
	for range 5 {
		list, err := p.Interruptions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			if i.Kind != cloud.NoInterruption {
				notices = append(notices, i)
			}
			if err := p.Acknowledge(t.Context(), []string{i.Receipt}); err != nil {
				t.Fatal(err)
			}
		}
		if len(notices) > 0 {
			break
		}
	}
	if len(notices) != 1 || notices[0].Kind != cloud.ReservationInterrupted || !slices.Equal(notices[0].Instances, []string{got.ID}) || !notices[0].At.Equal(w.clock.Now()) {
		t.Errorf("notices are %+v", notices)
	}
	p.Lost(got.CapacityType, got.Type, got.Zone, got.ReservationID)
	for _, o := range w.request(p, class, w.claim("3"), []string{"m5.large"}, []string{"*"}).Types[0].Offerings {
		if o.Available == (o.CapacityType == cloud.Reserved) {
			t.Errorf("after the notice there is %+v", o)
		}
	}
	w.clock.Advance(2 * time.Minute)
	if i, _ := w.sim.Instance(got.ID); i.State == ec2sim.StateRunning {
		t.Error("the instance goes on running")
	}
}

func TestReservationStatus(t *testing.T) {
	end := began.Add(time.Hour)
	block := ec2types.CapacityReservation{CapacityReservationId: new("cr-1"), ReservationType: ec2types.CapacityReservationTypeCapacityBlock, EndDate: &end, Interruptible: new(true)}
	for before, want := range map[time.Duration]aws.CapacityReservationState{blockExpiry + time.Second: "active", blockExpiry: "expiring", 0: "expiring"} {
		got := reservationStatus([]ec2types.CapacityReservation{block}, end.Add(-before))[0]
		if got.State != want || got.ReservationType != aws.CapacityReservationTypeCapacityBlock || !got.Interruptible || !got.EndTime.Time.Equal(end) {
			t.Errorf("%s before its end a block is %+v", before, got)
		}
	}
}

// One reservation that is gone doesn't take the others away.
func TestReservationGone(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	zone := w.resolve(p, newClass()).Status.Subnets[0].Zone
	made, err := p.ec2.CreateCapacityReservation(t.Context(), &ec2.CreateCapacityReservationInput{
		InstanceType: new("m5.large"), AvailabilityZone: &zone, InstanceCount: new(int32(1)),
		InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix, InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
	})
	if err != nil {
		t.Fatal(err)
	}
	id := *made.CapacityReservation.CapacityReservationId
	for _, ids := range [][]string{{"cr-0123456789abcdef0"}, {"cr-0123456789abcdef0", id, "cr-0123456789abcdef1"}} {
		class := newClass()
		for _, id := range ids {
			class.Spec.CapacityReservationSelectorTerms = append(class.Spec.CapacityReservationSelectorTerms, aws.CapacityReservationSelectorTerm{ID: id})
		}
		w.resolve(p, class)
		if got := conditionsText(class.Status.Conditions); !strings.Contains(got, "Ready=True") {
			t.Errorf("with %v:\n%s", ids, got)
		}
		if got := class.Status.CapacityReservations; len(got) != len(ids)/2 || len(got) == 1 && got[0].ID != id {
			t.Errorf("of %v found %+v", ids, got)
		}
	}
}

// What an instance leaves of a reservation is offered again as soon as it has ended.
func TestReservationIsLeft(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := newClass()
	zone := w.resolve(p, class).Status.Subnets[0].Zone
	made, err := p.ec2.CreateCapacityReservation(t.Context(), &ec2.CreateCapacityReservationInput{
		InstanceType: new("m5.large"), AvailabilityZone: &zone, InstanceCount: new(int32(1)),
		InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix, InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
	})
	if err != nil {
		t.Fatal(err)
	}
	class.Spec.CapacityReservationSelectorTerms = []aws.CapacityReservationSelectorTerm{{ID: *made.CapacityReservation.CapacityReservationId}}
	w.resolve(p, class)
	first := w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"*"}))
	w.clock.Advance(2 * time.Minute)
	w.resolve(p, class) // the reservation is used up, for the next minute
	if err := p.Terminate(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(30 * time.Second)
	w.resolve(p, class)
	second := w.launch(p, w.request(p, class, w.claim("2"), []string{"m5.large"}, []string{"*"}))
	if first.CapacityType != cloud.Reserved || second.CapacityType != cloud.Reserved {
		t.Errorf("launched %s, then %s", first.CapacityType, second.CapacityType)
	}
}

// Of many reservations a fleet chooses among the few with most left.
func TestManyReservations(t *testing.T) {
	types := make([]cloud.InstanceType, 58)
	for n := range types {
		types[n] = cloud.InstanceType{Name: fmt.Sprintf("m%02d.large", n), Offerings: []cloud.Offering{{
			CapacityType: cloud.Reserved, Zone: "a", Available: true, ReservationID: fmt.Sprint("cr-", n), ReservedCount: 1 + n%29,
		}}}
	}
	plan := planFleet(&karpenter.NodeClaim{}, newClass(), types, shortages{})
	var got []int
	for _, c := range plan.candidates {
		got = append(got, c.left)
	}
	if want := []int{25, 26, 27, 28, 29, 25, 26, 27, 28, 29}; !slices.Equal(got, want) {
		t.Errorf("a fleet chooses from reservations with %v left, want %v", got, want)
	}
}
