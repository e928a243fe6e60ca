package ec2sim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// States of an instance, as EC2 names them.
const (
	StatePending      = "pending"
	StateRunning      = "running"
	StateShuttingDown = "shutting-down"
	StateTerminated   = "terminated"
)

// Instance is a snapshot of a virtual machine.
type Instance struct {
	ID     string
	Type   string
	Zone   string
	ZoneID string
	// CapacityType is spot or on-demand.
	CapacityType string
	State        string
	// StateReason is why it is shutting down or terminated, as in
	// Server.SpotInstanceTermination; empty otherwise.
	StateReason string
	// Failed says that the machine runs but never boots: no node will come of it.
	Failed bool
	// Rebooting says that the machine is down between a reboot and the end of its boot,
	// though its State is running.
	Rebooting bool
	// Impaired says that a status check fails.
	Impaired         bool
	ImageID          string
	Architecture     string
	VPCID            string
	SubnetID         string
	SecurityGroupIDs []string
	PrivateIP        string
	PrivateDNS       string
	// UserData is decoded.
	UserData        []byte
	InstanceProfile string
	LaunchTime      time.Time
	// StateTime is when State was entered.
	StateTime time.Time
	Tags      map[string]string
	// MicroUSD is its present price in millionths of a dollar per hour, 0 once
	// it is shutting down.
	MicroUSD int64

	FleetID               string
	SpotRequestID         string
	CapacityReservationID string
	PlacementGroup        string
}

// instance is a machine and what only the API needs of it.
type instance struct {
	id            string
	spec          launchSpec
	typ           Type
	subnet        *subnet
	addr          netip.Addr
	capacityType  string
	state, reason string
	since         time.Time
	launched      time.Time
	visible       time.Time
	ended         time.Time
	reservation   string
	launchIndex   int
	clientToken   string
	fleetID       string
	spotRequest   string
	capacityID    string
	eni           string
	volume        string
	failed        bool
	rebooting     bool
	interruptedAt time.Time
	impaired      time.Time
	impairedBy    string // system or instance
	events        []instanceEvent
}

// terminatedFor is how long EC2 still lists an instance after its end.
const terminatedFor = time.Hour

func (i *instance) live() bool { return i.state == StatePending || i.state == StateRunning }

func (i *instance) pool() poolKey {
	return poolKey{i.typ.Name, i.subnet.zone.name, i.capacityType}
}

// Instances returns all instances in order of launch, those that terminated in
// the last hour included.
func (s *Server) Instances() []Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Instance
	for _, id := range s.order {
		all = append(all, s.snapshot(s.instances[id]))
	}
	return all
}

// Instance returns one instance.
func (s *Server) Instance(id string) (Instance, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.instances[id]
	if !ok {
		return Instance{}, false
	}
	return s.snapshot(i), true
}

func (s *Server) snapshot(i *instance) Instance {
	snap := Instance{
		ID:                    i.id,
		Type:                  i.typ.Name,
		Zone:                  i.subnet.zone.name,
		ZoneID:                i.subnet.zone.id,
		CapacityType:          i.capacityType,
		State:                 i.state,
		StateReason:           i.reason,
		Failed:                i.failed,
		Rebooting:             i.rebooting,
		Impaired:              i.impairedBy != "",
		ImageID:               i.spec.imageID,
		Architecture:          i.typ.Arch,
		VPCID:                 s.net.vpcID,
		SubnetID:              i.subnet.id,
		SecurityGroupIDs:      slices.Clone(i.spec.groups),
		PrivateIP:             i.addr.String(),
		PrivateDNS:            privateDNS(s.cfg.Region, i.addr),
		UserData:              slices.Clone(i.spec.userData),
		InstanceProfile:       i.spec.profile,
		LaunchTime:            i.launched,
		StateTime:             i.since,
		Tags:                  maps.Clone(s.tags[i.id]),
		FleetID:               i.fleetID,
		SpotRequestID:         i.spotRequest,
		CapacityReservationID: i.capacityID,
		PlacementGroup:        i.spec.group,
	}
	if i.live() {
		snap.MicroUSD = s.price(i.typ.Name, i.subnet.zone, i.capacityType)
	}
	return snap
}

// enter moves an instance to a state and tells everyone.
func (s *Server) enter(i *instance, state string) {
	i.state, i.since = state, s.clock.Now()
	s.tellWatchers(i)
	s.announce(i)
}

// tellWatchers shows a machine to those who watch.
func (s *Server) tellWatchers(i *instance) {
	snap := s.snapshot(i)
	for _, w := range s.watchers {
		w.send(snap)
	}
}

// launchOrder is one instance about to start; the caller has checked that there
// is capacity and an address.
type launchOrder struct {
	spec         launchSpec
	capacityType string
	reservation  string
	index        int
	token        string
	fleetID      string
	capacityID   string
}

func (s *Server) launch(o launchOrder) *instance {
	now := s.clock.Now()
	i := &instance{
		id: s.id("i"), spec: o.spec, typ: o.spec.typ, subnet: o.spec.subnet, addr: o.spec.subnet.take(),
		capacityType: o.capacityType, launched: now, visible: now.Add(s.cfg.ConsistencyDelay + time.Duration(o.index)*s.cfg.ConsistencyDelay/4),
		reservation: o.reservation, launchIndex: o.index, clientToken: o.token, fleetID: o.fleetID,
		capacityID: o.capacityID, eni: s.id("eni"), volume: s.id("vol"),
	}
	if o.capacityType == Spot {
		i.spotRequest = "sir-" + fmt.Sprintf("%08x", uint32(s.rng.Uint64()))
		s.tag(i.spotRequest, o.spec.tags["spot-instances-request"])
	}
	if i.capacityID == "" && o.capacityType == OnDemand {
		if r := s.openReservation(o.spec); r != nil {
			i.capacityID = r.id
		}
	}
	s.instances[i.id] = i
	s.order = append(s.order, i.id)
	if i.capacityID == "" {
		s.occupy(i.pool(), 1)
	}
	tags := maps.Clone(o.spec.tags["instance"])
	if o.fleetID != "" {
		if tags == nil {
			tags = map[string]string{}
		}
		tags["aws:ec2:fleet-id"] = o.fleetID
	}
	if o.spec.templateID != "" {
		if tags == nil {
			tags = map[string]string{}
		}
		tags["aws:ec2launchtemplate:id"] = o.spec.templateID
		tags["aws:ec2launchtemplate:version"] = fmt.Sprint(o.spec.templateVersion)
	}
	s.tag(i.id, tags)
	s.tag(i.eni, o.spec.tags["network-interface"])
	s.tag(i.volume, o.spec.tags["volume"])
	s.enter(i, StatePending)
	s.boot(i)
	return i
}

// boot lets an instance run after its delay, unless the scenario has other plans.
func (s *Server) boot(i *instance) {
	delay := s.cfg.BootDelay
	if j := s.cfg.BootJitter; j > 0 {
		delay += time.Duration(s.rng.Int64N(int64(2*j))) - j
	}
	plan := s.bootPlan(i)
	delay += plan.delay
	s.after(delay, func() {
		if i.state != StatePending {
			return
		}
		if plan.fails {
			s.terminate(i, "Server.InternalError")
			return
		}
		i.failed = plan.hangs
		s.enter(i, StateRunning)
	})
}

// reboot takes a running machine down for a boot's time. That is no change of state
// that EC2 would announce. Its own status check, other than the system's, passes after it.
func (s *Server) reboot(i *instance) {
	if i.state != StateRunning || i.rebooting {
		return
	}
	i.rebooting = true
	if i.impairedBy == "instance" {
		i.impairedBy = ""
	}
	s.tellWatchers(i)
	s.after(s.cfg.BootDelay, func() {
		i.rebooting = false
		if i.state == StateRunning {
			s.tellWatchers(i)
		}
	})
}

// terminate begins an instance's end; it does nothing if that has begun already.
func (s *Server) terminate(i *instance, reason string) {
	if !i.live() {
		return
	}
	i.reason, i.ended = reason, s.clock.Now()
	s.enter(i, StateShuttingDown)
	s.after(s.cfg.ShutdownDelay, func() {
		i.subnet.release(i.addr)
		if i.capacityID == "" {
			s.occupy(i.pool(), -1)
		}
		s.enter(i, StateTerminated)
		s.after(terminatedFor, func() { s.forget(i) })
	})
}

func (s *Server) forget(i *instance) {
	s.spent += s.cost(i)
	delete(s.instances, i.id)
	s.order = slices.DeleteFunc(s.order, func(id string) bool { return id == i.id })
	for _, id := range []string{i.id, i.eni, i.volume, i.spotRequest} {
		delete(s.tags, id)
	}
}
