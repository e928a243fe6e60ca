package pack

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/coppice-dev/coppice/internal/catalogue"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// peerTypes are the types of the peer's own scheduling benchmark: i vCPU, 2i GiB
// and 10i pods for i from 1 to n, five offerings at one price in proportion.
func peerTypes(n int) []InstanceType {
	var out []InstanceType
	for i := int64(1); i <= int64(n); i++ {
		t := InstanceType{
			Name:        fmt.Sprintf("type-%03d", i),
			Labels:      map[string]string{"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
			Capacity:    Resources{CPU: 1000 * i, Memory: 2 * gib * i, Pods: 10 * i},
			Allocatable: Resources{CPU: 1000*i - 100, Memory: 2*gib*i - 10*mib, Pods: 10 * i},
		}
		// 0.1 $ a vCPU and 0.1 $ a GB.
		price := i*100_000 + i*2*gib/10_000
		for _, o := range [...][2]string{{Spot, "z1"}, {Spot, "z2"}, {OnDemand, "z1"}, {OnDemand, "z2"}, {OnDemand, "z3"}} {
			t.Offerings = append(t.Offerings, Offering{CapacityType: o[0], Zone: o[1], MicroUSD: price, Available: true})
		}
		out = append(out, t)
	}
	return out
}

func labelled(key, value string) Selector {
	return Selector{Requirements: []Requirement{{Key: key, Operator: In, Values: []string{value}}}}
}

// peerPods are the pods of the peer's own benchmark: a fifth each generic, with
// zonal spread, with hostname spread, with zonal affinity to themselves and with
// hostname anti-affinity.
func peerPods(n int, r *rand.Rand) []Pod {
	value := func() string { return string(rune('a' + r.IntN(7))) }
	requests := func() Resources {
		return Resources{
			CPU:    pick[int64](r, 100, 250, 500, 1000, 1500),
			Memory: pick[int64](r, 100, 256, 512, 1024, 2048, 4096) * mib,
		}
	}
	var out []Pod
	add := func(count int, labels func() map[string]string, constrain func(*PodSpec, map[string]string)) {
		for range count {
			p := Pod{Name: fmt.Sprintf("pod-%05d", len(out)), Namespace: "default", Labels: labels(), Spec: &PodSpec{Requests: requests()}}
			constrain(p.Spec, p.Labels)
			out = append(out, p)
		}
	}
	mine := func() map[string]string { return map[string]string{"my-label": value()} }
	add(n/5, mine, func(*PodSpec, map[string]string) {})
	for _, key := range []string{LabelZone, LabelHostname} {
		add(n/5, mine, func(s *PodSpec, _ map[string]string) {
			s.Spread = []Spread{{TopologyKey: key, MaxSkew: 1, Selector: labelled("my-label", value())}}
		})
	}
	add(n/5, func() map[string]string { return map[string]string{"my-affinity": value()} }, func(s *PodSpec, l map[string]string) {
		s.PodAffinity = []PodTerm{{TopologyKey: LabelZone, Selector: labelled("my-affinity", l["my-affinity"])}}
	})
	add(n/5, func() map[string]string { return map[string]string{"app": "nginx"} }, func(s *PodSpec, _ map[string]string) {
		s.PodAntiAffinity = []PodTerm{{TopologyKey: LabelHostname, Selector: labelled("app", "nginx")}}
	})
	add(n-len(out), mine, func(*PodSpec, map[string]string) {})
	return out
}

// genericPods are the peer's generic pods alone.
func genericPods(n int, r *rand.Rand) []Pod {
	out := peerPods(5*n, r)[:n]
	return out
}

// preferencePods each prefer a zone, not to share a zone and not to share a node.
func preferencePods(n int, r *rand.Rand) []Pod {
	var out []Pod
	for i := range n {
		out = append(out, Pod{Name: fmt.Sprintf("pod-%05d", i), Namespace: "default", Labels: map[string]string{"app": "nginx"}, Spec: &PodSpec{
			Requests:  Resources{CPU: pick[int64](r, 100, 250, 500, 1000, 1500), Memory: pick[int64](r, 100, 256, 512, 1024, 2048, 4096) * mib},
			Preferred: []Preference{{Weight: 1, Requirements: []Requirement{{Key: LabelZone, Operator: In, Values: []string{"z1"}}}}},
			PreferredPodAntiAffinity: []WeightedPodTerm{
				{Weight: 10, PodTerm: PodTerm{TopologyKey: LabelZone, Selector: labelled("app", "nginx")}},
				{Weight: 1, PodTerm: PodTerm{TopologyKey: LabelHostname, Selector: labelled("app", "nginx")}},
			},
		}})
	}
	return out
}

// endToEndTypes are the types of the end-to-end scenarios: powers of two of vCPU
// up to most at 2, 4 and 8 GiB a vCPU, on demand in four zones.
func endToEndTypes(most int64) []InstanceType {
	var out []InstanceType
	sizes := []int64{1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256}
	for _, v := range sizes {
		if v > most {
			continue
		}
		for _, ratio := range []int64{2, 4, 8} {
			memory := v * ratio * gib
			t := InstanceType{
				Name:        fmt.Sprintf("%c-%dx", "cmr"[ratio/4], v),
				Labels:      map[string]string{"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
				Capacity:    Resources{CPU: 1000 * v, Memory: memory, Pods: 110},
				Allocatable: Resources{CPU: 1000*v - 100, Memory: memory - 100*mib, Pods: 110},
			}
			if v >= 32 {
				t.Capacity[Pods], t.Allocatable[Pods] = 16*v, 16*v
			}
			// 0.025 $ a vCPU and 0.001 $ a GB.
			price := v*25_000 + memory/1_000_000
			for _, z := range []string{"a", "b", "c", "d"} {
				t.Offerings = append(t.Offerings, Offering{CapacityType: OnDemand, Zone: z, MicroUSD: price, Available: true})
			}
			out = append(out, t)
		}
	}
	return out
}

// endToEndPods are five Deployments of n/5 pods each.
func endToEndPods(n int, zonal bool) []Pod {
	var out []Pod
	for d, size := range [...][2]int64{{100, 128 * mib}, {500, gib}, {1000, 2 * gib}, {2000, 8 * gib}, {4000, 16 * gib}} {
		app := fmt.Sprintf("app-%d", d)
		s := &PodSpec{Requests: Resources{CPU: size[0], Memory: size[1]}}
		if zonal {
			s.Spread = []Spread{{TopologyKey: LabelZone, MaxSkew: 1, Selector: labelled("app", app)}}
		}
		for i := range n / 5 {
			out = append(out, Pod{Name: fmt.Sprintf("%s-%04d", app, i), Namespace: "default", Labels: map[string]string{"app": app}, Spec: s})
		}
	}
	return out
}

// apartPods are five Deployments of which no node takes two pods of any.
func apartPods(n int) []Pod {
	out := endToEndPods(n, false)
	for i := range out {
		s := *out[i].Spec
		s.PodAntiAffinity = []PodTerm{{TopologyKey: LabelHostname, Selector: labelled("apart", "yes")}}
		out[i].Spec, out[i].Labels = &s, map[string]string{"apart": "yes"}
	}
	return out
}

// catalogueTypes are the real types of a region on sale, with allocatable sizes
// as on EKS: 110 pods at most, memory less 7.5 %, and the kubelet's reservations.
func catalogueTypes(region string, spot bool) []InstanceType {
	c := catalogue.Get()
	var out []InstanceType
	for _, t := range c.Types() {
		price, ok := c.Price(t.Name, region)
		if !ok {
			continue
		}
		pods := int64(max(t.ENIs*(t.IPv4PerENI-1)+2, 8))
		pods = min(pods, 250)
		v := int64(t.VCPU)
		memory := t.MemoryMiB * mib * 925 / 1000
		reservedMemory := (255+11*pods)*mib + 100*mib
		if memory <= reservedMemory+64*mib {
			continue
		}
		it := InstanceType{
			Name: t.Name,
			Labels: map[string]string{
				"kubernetes.io/os": "linux", "kubernetes.io/arch": map[string]string{"x86_64": "amd64", "arm64": "arm64"}[t.Arch],
				"karpenter.k8s.aws/instance-cpu": fmt.Sprint(v), "karpenter.k8s.aws/instance-memory": fmt.Sprint(t.MemoryMiB),
			},
			Capacity:    Resources{CPU: 1000 * v, Memory: memory, Pods: pods},
			Allocatable: Resources{CPU: 1000*v - reservedCPU(v), Memory: memory - reservedMemory, Pods: pods},
		}
		if t.GPU.Count > 0 && t.GPU.Manufacturer == "NVIDIA" {
			it.Capacity["nvidia.com/gpu"], it.Allocatable["nvidia.com/gpu"] = int64(t.GPU.Count), int64(t.GPU.Count)
			it.Labels["karpenter.k8s.aws/instance-gpu-name"] = t.GPU.Name
		}
		for _, z := range c.SoldIn(t.Name, region) {
			if price.OnDemand > 0 {
				it.Offerings = append(it.Offerings, Offering{CapacityType: OnDemand, Zone: z, MicroUSD: price.OnDemand, Available: true})
			}
			if spot && price.Spot > 0 {
				it.Offerings = append(it.Offerings, Offering{CapacityType: Spot, Zone: z, MicroUSD: price.Spot, Available: true})
			}
		}
		if len(it.Offerings) > 0 {
			out = append(out, it)
		}
	}
	return out
}

// reservedCPU is the kubelet's reservation by the steps that EKS uses: 6 % of the
// first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest.
func reservedCPU(v int64) int64 {
	return 60 + min(max(v-1, 0), 1)*10 + min(max(v-2, 0), 2)*5 + max(v-4, 0)*5/2
}

// tracePods are shaped like the arrivals of a published trace of a production
// cluster with GPUs; see traceShape for the figures and their source.
func tracePods(n int, r *rand.Rand) []Pod {
	var specs []*PodSpec
	for range max(n/20, 1) {
		specs = append(specs, traceSpec(r))
	}
	var out []Pod
	for i := range n {
		// Few workloads have most of the pods.
		at := int(math.Pow(r.Float64(), 2) * float64(len(specs)))
		out = append(out, Pod{Name: fmt.Sprintf("pod-%05d", i), Namespace: "default", Labels: map[string]string{"app": fmt.Sprint(at)}, Spec: specs[at]})
	}
	return out
}

// traceShape are the commonest requests, in thousandths of the pods, of Alibaba's
// cluster-trace-gpu-v2023 (openb_pod_list_default.csv, 8,152 pods of a production
// cluster; published with "Beware of Fragmentation", USENIX ATC 2023), rounded:
// cores in thousandths, memory in MiB, GPUs. Shares of a GPU count as one, and
// pods without a GPU have the share that the paper states, 13 %.
var traceShape = [...]struct{ weight, cpu, memory, gpus int64 }{
	{320, 3152, 5600, 1}, {95, 8000, 30517, 1}, {65, 4000, 15258, 1}, {65, 16000, 32768, 1}, {55, 18708, 64512, 1},
	{50, 12000, 16384, 1}, {50, 12000, 24576, 1}, {40, 11908, 47104, 1}, {35, 4152, 10600, 1}, {25, 6000, 12288, 1},
	{25, 8000, 16384, 1}, {12, 4000, 24576, 1}, {10, 6000, 18432, 1}, {8, 16000, 65536, 1}, {5, 88000, 327680, 8},
	{70, 8000, 30517, 0}, {25, 20000, 65536, 0}, {20, 12500, 65536, 0}, {15, 32000, 65536, 0},
}

func traceSpec(r *rand.Rand) *PodSpec {
	total := int64(0)
	for _, s := range traceShape {
		total += s.weight
	}
	at := r.Int64N(total)
	for _, s := range traceShape {
		if at -= s.weight; at < 0 {
			spec := &PodSpec{Requests: Resources{CPU: s.cpu, Memory: s.memory * mib}}
			if s.gpus > 0 {
				spec.Requests["nvidia.com/gpu"] = s.gpus
			}
			return spec
		}
	}
	panic("weights do not sum up")
}
