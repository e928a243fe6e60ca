package ec2sim

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// controlPrefix is where the control API lives. It is no part of AWS and takes
// no signature:
//
//	GET    /_sim/state      time, zones, prices paid, what is in force
//	GET    /_sim/instances  every instance
//	GET    /_sim/pools      capacity and use of the pools that are in use
//	GET    /_sim/calls      the calls so far; DELETE begins anew
//	POST   /_sim/do         carries out a Step now and tells which instances it hit
//	POST   /_sim/play       schedules a Scenario, YAML or JSON, from now
//	POST   /_sim/reset      takes back all that came of calls and scenarios
//	DELETE /_sim/effects    ends shortages, price changes, outages and faults
const controlPrefix = "/_sim/"

// State is what the control API tells of the world.
type State struct {
	Time      time.Time      `json:"time"`
	Region    string         `json:"region"`
	Seed      uint64         `json:"seed"`
	Zones     []string       `json:"zones"`
	Instances map[string]int `json:"instances"` // by state
	// MicroUSDPerHour is what the live instances cost now, SpentMicroUSD what all
	// have cost so far, both in millionths of a dollar.
	MicroUSDPerHour int64 `json:"microUSDPerHour"`
	SpentMicroUSD   int64 `json:"spentMicroUSD"`
	// Effects are the lasting steps in force; For is how much longer.
	Effects []Step `json:"effects"`
}

// Pool is a capacity pool as the control API tells it.
type Pool struct {
	Type         string `json:"type"`
	Zone         string `json:"zone"`
	CapacityType string `json:"capacityType"`
	Capacity     int    `json:"capacity"`
	Used         int    `json:"used"`
	MicroUSD     int64  `json:"microUSD"`
}

// State tells of the world as it is now.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	st := State{Time: now, Region: s.cfg.Region, Seed: s.cfg.Seed, Instances: map[string]int{}, SpentMicroUSD: s.spent}
	for _, z := range s.net.zones {
		st.Zones = append(st.Zones, z.name)
	}
	for _, i := range s.instances {
		st.Instances[i.state]++
		st.SpentMicroUSD += s.cost(i)
		if i.live() {
			st.MicroUSDPerHour += s.price(i.typ.Name, i.subnet.zone, i.capacityType)
		}
	}
	st.Effects = s.effects(now)
	return st
}

// effects lists what is in force as the steps that brought it about.
func (s *Server) effects(now time.Time) []Step {
	all := []Step{}
	add := func(step Step, until time.Time) {
		if over(until, now) {
			return
		}
		if !until.IsZero() {
			step.For = Duration(until.Sub(now))
		}
		all = append(all, step)
	}
	for _, sh := range s.shortages {
		add(Step{Shortage: &Shortage{sh.match, sh.left}}, sh.until)
	}
	for _, m := range s.moves {
		add(Step{Prices: &PriceChange{m.match, m.factor}}, m.until)
	}
	for _, name := range sortedKeys(s.outages) {
		add(Step{Outage: &Outage{Zones: []string{name}}}, s.outages[name])
	}
	for _, b := range s.boots {
		add(Step{Boot: &b.BootFault}, b.until)
	}
	for _, f := range s.faults {
		if f.Count == 0 || f.left > 0 {
			add(Step{Calls: &f.CallFault}, f.until)
		}
	}
	return all
}

// Pools lists the capacity pools that instances are in.
func (s *Server) Pools() []Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	byName := map[string]Pool{}
	for k, p := range s.pools {
		if p.used == 0 {
			continue
		}
		z, _ := s.net.zone(k.zone)
		byName[k.typeName+" "+k.zone+" "+k.capacityType] = Pool{
			Type: k.typeName, Zone: k.zone, CapacityType: k.capacityType,
			Capacity: s.capacity(k), Used: p.used, MicroUSD: s.price(k.typeName, z, k.capacityType),
		}
	}
	all := []Pool{}
	for _, name := range sortedKeys(byName) {
		all = append(all, byName[name])
	}
	return all
}

// Do carries out a step now, whatever its At says, and returns the IDs of the
// instances that it hit.
func (s *Server) Do(step Step) ([]string, error) {
	if err := s.check(step); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.do(step), nil
}

// EndEffects ends shortages, price changes, outages and faults now. Instances
// that have been hit stay so.
func (s *Server) EndEffects() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endEffects()
}

func (s *Server) endEffects() {
	now := s.clock.Now()
	s.shortages, s.faults, s.boots = nil, nil, nil
	s.outages = map[string]time.Time{}
	for n := range s.moves {
		// Price history goes on telling of them.
		if s.moves[n].until.IsZero() || s.moves[n].until.After(now) {
			s.moves[n].until = now
		}
	}
}

func (s *Server) serveControl(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, controlPrefix) {
	case "GET state":
		writeJSON(w, http.StatusOK, s.State())
	case "GET instances":
		all := s.Instances()
		if all == nil {
			all = []Instance{}
		}
		writeJSON(w, http.StatusOK, all)
	case "GET pools":
		writeJSON(w, http.StatusOK, s.Pools())
	case "GET calls":
		writeJSON(w, http.StatusOK, s.Counters())
	case "DELETE calls":
		s.ResetCounters()
		w.WriteHeader(http.StatusNoContent)
	case "DELETE effects":
		s.EndEffects()
		w.WriteHeader(http.StatusNoContent)
	case "POST reset":
		s.Reset()
		w.WriteHeader(http.StatusNoContent)
	case "POST do":
		s.serveDo(w, r)
	case "POST play":
		s.servePlay(w, r)
	default:
		writeJSON(w, http.StatusNotFound, map[string]string{"error": "no " + r.Method + " " + r.URL.Path + " here"})
	}
}

func (s *Server) serveDo(w http.ResponseWriter, r *http.Request) {
	var step Step
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(&step)
	if errors.Is(err, io.EOF) {
		err = errors.New("send a step as JSON")
	}
	var hit []string
	if err == nil {
		hit, err = s.Do(step)
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	if hit == nil {
		hit = []string{}
	}
	writeJSON(w, http.StatusOK, map[string]any{"instances": hit})
}

func (s *Server) servePlay(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var sc Scenario
	if err == nil {
		sc, err = ParseScenario(data)
	}
	if err == nil {
		err = s.Play(sc)
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, map[string]int{"steps": len(sc.Steps)})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic("marshal answer: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client has gone if this fails; there is nobody to tell.
	_, _ = w.Write(append(data, '\n'))
}
