package policies

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/catalogue"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	labelType     = "node.kubernetes.io/instance-type"
	labelArch     = "kubernetes.io/arch"
	labelOS       = "kubernetes.io/os"
	labelZone     = "topology.kubernetes.io/zone"
	labelCapacity = karpenter.LabelCapacityType
)

// Facts are what a rule about a NodePool is given below facts.
type Facts struct {
	// InstanceTypes counts the types of the catalogue that the requirements allow.
	InstanceTypes int `json:"instanceTypes"`
	// CapacityTypes are those that the requirements allow.
	CapacityTypes []string `json:"capacityTypes"`
	// Zones are those that the requirements name; none if they leave zones open.
	Zones []string `json:"zones"`
	// Accelerated says that every type that the requirements allow has a GPU or another
	// accelerator.
	Accelerated bool `json:"accelerated"`
	// At says for each label at which index of the requirements it is, the first if
	// there are several.
	At map[string]int `json:"at"`
	// Overlaps names the first three pools, of those whose names come earlier, that have
	// the same weight and that some pod could be put into as well.
	Overlaps []string `json:"overlaps"`
	// Fallback names a pool that takes the same pods on demand, or is "".
	Fallback string `json:"fallback"`
	// UnlimitedHours says, for each reason, how many hours of the coming week no budget
	// bounds; BlockedHours, in how many none of the nodes may go.
	UnlimitedHours map[string]int `json:"unlimitedHours"`
	BlockedHours   map[string]int `json:"blockedHours"`
}

// factNames are the fields of Facts, as rules see them.
func factNames() []string {
	all, _ := Facts{}.value().(map[string]any)
	return slices.Sorted(maps.Keys(all))
}

// pool is what the facts are made from.
type pool struct {
	name   string
	sets   map[string]pack.Set
	taints map[string]bool
	at     map[string]int
	weight int64
	static bool
}

// Reasons are those that budgets are about.
func Reasons() []karpenter.DisruptionReason {
	return []karpenter.DisruptionReason{
		karpenter.DisruptionReasonDrifted, karpenter.DisruptionReasonEmpty,
		karpenter.DisruptionReasonUnderutilized, karpenter.DisruptionReasonUnhealthy,
	}
}

// surveyor finds facts about the pools of one bundle. What pools have in common is
// worked out once.
type surveyor struct {
	pools   []*pool
	at      time.Time
	types   []labelled
	matches map[string]matched
	weeks   map[string][2]map[string]int
}

type labelled struct {
	labels      map[string]string
	accelerated bool
}

type matched struct {
	types       int
	accelerated bool
}

func newSurveyor(b render.Bundle, at time.Time) *surveyor {
	s := &surveyor{at: at, matches: map[string]matched{}, weeks: map[string][2]map[string]int{}}
	for _, o := range b.Objects {
		if o.GVK.Kind == "NodePool" {
			s.pools = append(s.pools, readPool(o))
		}
	}
	return s
}

// about returns the facts about a NodePool.
func (s *surveyor) about(o render.Object) Facts {
	p := readPool(o)
	m := s.match(p)
	f := Facts{
		InstanceTypes: m.types, Accelerated: m.accelerated,
		CapacityTypes: p.capacityTypes(), At: p.at, Zones: []string{}, Overlaps: []string{},
	}
	if set, ok := p.sets[labelZone]; ok {
		if zones, finite := set.Values(); finite {
			f.Zones = zones
		}
	}
	for _, q := range s.pools { // In the order of their names.
		if q.name == p.name || q.static || p.static {
			continue
		}
		// Pools that reserve themselves by a taint are for different pods.
		if len(f.Overlaps) < 3 && q.name < p.name && q.weight == p.weight && sameTaints(p, q) && p.meetsBut(q, "") {
			f.Overlaps = append(f.Overlaps, q.name)
		}
		if f.Fallback == "" && q.onDemand() && toleratedBy(q, p) && p.meetsBut(q, labelCapacity) {
			f.Fallback = q.name
		}
	}
	week := s.week(o)
	f.UnlimitedHours, f.BlockedHours = week[0], week[1]
	return f
}

func readPool(o render.Object) *pool {
	p := &pool{name: o.Name, sets: map[string]pack.Set{}, taints: map[string]bool{}, at: map[string]int{}}
	spec, _ := o.Value["spec"].(map[string]any)
	p.weight, _ = spec["weight"].(int64)
	_, p.static = spec["replicas"]
	template, _ := spec["template"].(map[string]any)
	inner, _ := template["spec"].(map[string]any)
	meta, _ := template["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	for k, v := range labels {
		if text, ok := v.(string); ok {
			p.narrow(k, pack.OneOf(text))
		}
	}
	for _, t := range list(inner["taints"]) {
		taint, _ := t.(map[string]any)
		if taint["effect"] != "PreferNoSchedule" {
			text, _ := json.Marshal([]any{taint["key"], taint["value"], taint["effect"]})
			p.taints[string(text)] = true
		}
	}
	for i, r := range list(inner["requirements"]) {
		fields, _ := r.(map[string]any)
		key, _ := fields["key"].(string)
		if _, ok := p.at[key]; !ok {
			p.at[key] = i
		}
		name, _ := fields["operator"].(string)
		op, err := pack.ParseOperator(name)
		if err != nil {
			continue // The schema says so.
		}
		req := pack.Requirement{Key: key, Operator: op}
		for _, v := range list(fields["values"]) {
			if text, ok := v.(string); ok {
				req.Values = append(req.Values, text)
			}
		}
		p.narrow(key, req.Set())
	}
	return p
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func (p *pool) narrow(key string, s pack.Set) {
	if old, ok := p.sets[key]; ok {
		s = old.Intersect(s)
	}
	p.sets[key] = s
}

// capacityTypes are those that the pool may launch.
func (p *pool) capacityTypes() []string {
	out := []string{}
	for _, c := range []string{"on-demand", "reserved", "spot"} {
		if set, ok := p.sets[labelCapacity]; !ok || set.Has(c) {
			out = append(out, c)
		}
	}
	return out
}

func (p *pool) onDemand() bool {
	set, ok := p.sets[labelCapacity]
	return !ok || set.Has("on-demand")
}

// meetsBut reports whether some node could be of both pools, without regard to one label.
func (p *pool) meetsBut(q *pool, but string) bool {
	for key, a := range p.sets {
		if b, ok := q.sets[key]; ok && key != but && a.Intersect(b).Empty() {
			return false
		}
	}
	return true
}

func sameTaints(p, q *pool) bool { return toleratedBy(p, q) && toleratedBy(q, p) }

// toleratedBy reports whether pods that tolerate q's taints tolerate those of p.
func toleratedBy(p, q *pool) bool {
	for t := range p.taints {
		if !q.taints[t] {
			return false
		}
	}
	return true
}

// match counts the types that a pool's requirements allow.
func (s *surveyor) match(p *pool) matched {
	var keys []string
	for key := range p.sets {
		if key == labelType || key == labelArch || key == labelOS || strings.HasPrefix(key, aws.Group+"/instance-") {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	var id strings.Builder
	for _, key := range keys {
		text, _ := json.Marshal(p.sets[key].Requirements(key))
		id.Write(text)
	}
	if m, ok := s.matches[id.String()]; ok {
		return m
	}
	if s.types == nil {
		s.types = catalogueLabels()
	}
	var m matched
	without := 0
	for _, t := range s.types {
		if !slices.ContainsFunc(keys, func(key string) bool { return !allows(p.sets[key], t.labels, key) }) {
			m.types++
			if !t.accelerated {
				without++
			}
		}
	}
	m.accelerated = m.types > 0 && without == 0
	s.matches[id.String()] = m
	return m
}

func allows(set pack.Set, labels map[string]string, key string) bool {
	if value, ok := labels[key]; ok {
		return set.Has(value)
	}
	// What the catalogue doesn't know of may be so.
	switch key {
	case aws.LabelInstanceGPUCount, aws.LabelInstanceGPUName, aws.LabelInstanceGPUManufacturer, aws.LabelInstanceGPUMemory,
		aws.LabelInstanceAcceleratorCount, aws.LabelInstanceAcceleratorName, aws.LabelInstanceAcceleratorManufacturer,
		aws.LabelInstanceLocalNVME:
		return set.HasAbsent()
	}
	return true
}

// catalogueLabels are the labels that requirements about instance types are made of.
func catalogueLabels() []labelled {
	var out []labelled
	for _, t := range catalogue.Get().Types() {
		family, size, _ := strings.Cut(t.Name, ".")
		category := strings.TrimRight(family, family[strings.IndexAny(family+"0", "0123456789-"):])
		l := map[string]string{
			labelType: t.Name, labelArch: arch(t.Arch), labelOS: "linux",
			aws.LabelInstanceFamily: family, aws.LabelInstanceSize: size, aws.LabelInstanceCategory: category,
			aws.LabelInstanceCPU: strconv.Itoa(t.VCPU), aws.LabelInstanceMemory: strconv.FormatInt(t.MemoryMiB, 10),
			aws.LabelInstanceCapabilityFlex:  strconv.FormatBool(strings.HasSuffix(family, "-flex")),
			aws.LabelInstanceCPUManufacturer: strings.ToLower(t.Manufacturer),
		}
		digits := strings.TrimLeft(strings.TrimPrefix(family, category), "-")
		if n := len(digits) - len(strings.TrimLeft(digits, "0123456789")); n > 0 {
			l[aws.LabelInstanceGeneration] = digits[:n]
		}
		put := func(key, value string, has bool) {
			if has {
				l[key] = value
			}
		}
		put(aws.LabelInstanceHypervisor, t.Hypervisor, t.Hypervisor != "")
		put(aws.LabelInstanceLocalNVME, strconv.FormatInt(int64(t.NVMeDisks)*t.NVMeGB, 10), t.NVMeDisks > 0)
		put(aws.LabelInstanceGPUCount, strconv.Itoa(t.GPU.Count), t.GPU.Count > 0)
		put(aws.LabelInstanceGPUName, strings.ToLower(t.GPU.Name), t.GPU.Count > 0)
		put(aws.LabelInstanceGPUManufacturer, strings.ToLower(t.GPU.Manufacturer), t.GPU.Count > 0)
		put(aws.LabelInstanceAcceleratorCount, strconv.Itoa(t.Accelerator.Count), t.Accelerator.Count > 0)
		put(aws.LabelInstanceAcceleratorName, strings.ToLower(t.Accelerator.Name), t.Accelerator.Count > 0)
		out = append(out, labelled{l, t.GPU.Count+t.Accelerator.Count > 0})
	}
	return out
}

func arch(name string) string {
	if name == "x86_64" {
		return "amd64"
	}
	return name
}

// week counts the hours of the coming week that budgets leave unbounded, and those in
// which they let no node go.
func (s *surveyor) week(o render.Object) [2]map[string]int {
	p, options, err := PoolOf(o)
	if err != nil {
		return [2]map[string]int{{}, {}}
	}
	budgets := BudgetsOf(p, options)
	id, _ := json.Marshal(budgets)
	if w, ok := s.weeks[string(id)]; ok {
		return w
	}
	w := [2]map[string]int{{}, {}}
	for _, reason := range Reasons() {
		parts, err := Week(budgets, reason, s.at)
		if err != nil {
			continue
		}
		var unlimited, blocked time.Duration
		for _, part := range parts {
			if len(part.Nodes) == 0 {
				unlimited += part.To.Sub(part.From)
			}
			if part.Blocked() {
				blocked += part.To.Sub(part.From)
			}
		}
		w[0][string(reason)] = int(math.Ceil(unlimited.Hours()))
		w[1][string(reason)] = int(blocked.Hours())
	}
	s.weeks[string(id)] = w
	return w
}
