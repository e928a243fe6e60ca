package pack

import "strings"

// symbols gives strings small numbers, in the order in which they are first
// seen. Numbers never reach output, so that their order does not matter.
type symbols struct {
	ids   map[string]int32
	names []string
}

// id returns the number of a name, giving it one if it has none.
func (s *symbols) id(name string) int32 {
	if i, ok := s.ids[name]; ok {
		return i
	}
	if s.ids == nil {
		s.ids = map[string]int32{}
	}
	i := int32(len(s.names))
	s.ids[name] = i
	s.names = append(s.names, name)
	return i
}

// find returns the number of a name, or -1.
func (s *symbols) find(name string) int32 {
	if i, ok := s.ids[name]; ok {
		return i
	}
	return -1
}

// Resources are numbered along one axis. The first three have fixed places
// because nearly every pod asks for them and nothing else.
const (
	axisCPU = iota
	axisMemory
	axisPods
)

// unlimited is the amount of what has no cap, small enough to be summed.
const unlimited = 1 << 58

// axis numbers resources, and CSI drivers, whose attach limits are resources.
type axis struct{ symbols }

func newAxis() *axis {
	a := &axis{}
	a.id(CPU)
	a.id(Memory)
	a.id(Pods)
	return a
}

// driverPrefix keeps drivers apart from resources; it is no valid start of one.
const driverPrefix = "/"

// add numbers every resource and driver that is named.
func (a *axis) add(r Resources, attach map[string]int) {
	for name := range r {
		a.id(name)
	}
	for driver := range attach {
		a.id(driverPrefix + driver)
	}
}

// isDriver reports whether a place on the axis is an attach limit.
func (a *axis) isDriver(i int) bool { return strings.HasPrefix(a.names[i], driverPrefix) }

// supply writes what a node offers into v, which has the axis' length. Drivers
// without a limit are unlimited.
func (a *axis) supply(v []int64, r Resources, attach map[string]int) {
	for i, name := range a.names {
		if a.isDriver(i) {
			v[i] = unlimited
			if n, ok := attach[name[len(driverPrefix):]]; ok {
				v[i] = int64(n)
			}
			continue
		}
		v[i] = min(r[name], unlimited)
	}
}

// demand writes what a pod asks for into v, which has the axis' length.
func (a *axis) demand(v []int64, s *PodSpec) {
	for i := range v {
		v[i] = 0
	}
	for name, q := range s.Requests {
		v[a.id(name)] = min(max(q, 0), unlimited)
	}
	v[axisPods] = 1
	for i := range s.Volumes {
		vol := &s.Volumes[i]
		if vol.Driver != "" && firstOf(s.Volumes, i) {
			v[a.id(driverPrefix+vol.Driver)]++
		}
	}
}

// firstOf reports whether no volume before i is the same one.
func firstOf(volumes []Volume, i int) bool {
	for j := range i {
		if volumes[j].Name == volumes[i].Name && volumes[j].Driver == volumes[i].Driver {
			return false
		}
	}
	return true
}
