package kubelet

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func m5large() Machine {
	return Machine{
		ID: "i-0123456789abcdef0", Type: "m5.large", Region: "us-west-2", Zone: "us-west-2a", ZoneID: "usw2-az1", Arch: "amd64",
		PrivateIP: "10.0.1.5", PrivateDNS: "ip-10-0-1-5.us-west-2.compute.internal",
		VCPU: 2, MemoryMiB: 8192, RootGiB: 20, ENIs: 3, IPv4PerENI: 10,
	}
}

func TestResources(t *testing.T) {
	tests := map[string]struct {
		why                   string
		machine               func(*Machine)
		settings              Settings
		capacity, allocatable string
	}{
		"m5.large": {
			why:         "29 pods by its interfaces; memory less 255+11*29 MiB reserved and 100 MiB for eviction",
			capacity:    "cpu 2 memory 7992Mi disk 20Gi pods 29",
			allocatable: "cpu 1930m memory 7318Mi disk 17Gi pods 29",
		},
		"max pods": {
			why:         "the reservation stays that of the machine",
			settings:    Settings{MaxPods: 110},
			capacity:    "cpu 2 memory 7992Mi disk 20Gi pods 110",
			allocatable: "cpu 1930m memory 7318Mi disk 17Gi pods 110",
		},
		"pods per core": {
			why:         "the smaller of both",
			settings:    Settings{MaxPods: 110, PodsPerCore: 5},
			capacity:    "cpu 2 memory 7992Mi disk 20Gi pods 10",
			allocatable: "cpu 1930m memory 7318Mi disk 17Gi pods 10",
		},
		"reserved": {
			why: "user data replaces single reservations",
			settings: Settings{
				KubeReserved:   map[string]string{"memory": "1Gi"},
				SystemReserved: map[string]string{"cpu": "100m", "memory": "0"},
				EvictionHard:   map[string]string{"memory.available": "10%", "imagefs.available": "15%"},
			},
			capacity:    "cpu 2 memory 7992Mi disk 20Gi pods 29",
			allocatable: "cpu 1830m memory 6468455629 disk 17Gi pods 29",
		},
		"large arm64": {
			why:         "64 CPUs reserve 6 %, 1 %, 0.5 % twice and 0.25 % sixty times",
			machine:     func(m *Machine) { m.Arch, m.VCPU, m.MemoryMiB, m.ENIs, m.IPv4PerENI = "arm64", 64, 262144, 15, 50 },
			capacity:    "cpu 64 memory 257912Mi disk 20Gi pods 737",
			allocatable: "cpu 63770m memory 249450Mi disk 17Gi pods 737",
		},
		"tiny": {
			why:         "reservations never make a negative",
			machine:     func(m *Machine) { m.MemoryMiB, m.RootGiB = 256, 1 },
			capacity:    "cpu 2 memory 180Mi disk 1Gi pods 29",
			allocatable: "cpu 1930m memory 0 disk 0 pods 29",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := m5large()
			if tc.machine != nil {
				tc.machine(&m)
			}
			text := func(l corev1.ResourceList) string {
				return fmt.Sprintf("cpu %s memory %s disk %s pods %s", l.Cpu(), l.Memory(), l.StorageEphemeral(), l.Pods())
			}
			capacity := Capacity(m, tc.settings)
			if got := text(capacity); got != tc.capacity {
				t.Errorf("%s: capacity is %s, want %s", tc.why, got, tc.capacity)
			}
			allocatable, err := Allocatable(capacity, m, tc.settings)
			if err != nil {
				t.Fatal(err)
			}
			if got := text(allocatable); got != tc.allocatable {
				t.Errorf("%s: allocatable is %s, want %s", tc.why, got, tc.allocatable)
			}
		})
	}
	for name, s := range map[string]Settings{
		"no quantity":     {KubeReserved: map[string]string{"cpu": "half"}},
		"no percentage":   {EvictionHard: map[string]string{"memory.available": "x%"}},
		"above all":       {EvictionHard: map[string]string{"nodefs.available": "101%"}},
		"no quantity too": {EvictionHard: map[string]string{"memory.available": "much"}},
	} {
		if _, err := Allocatable(Capacity(m5large(), s), m5large(), s); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestNewNode(t *testing.T) {
	m := m5large()
	m.Devices = map[string]int64{"nvidia.com/gpu": 1}
	s := Settings{
		Family: AL2023,
		Labels: map[string]string{"karpenter.sh/nodepool": "default", corev1.LabelHostname: "lies"},
		Taints: []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}},
	}
	node, err := NewNode(m, s, "v1.37.2", time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	wantMeta := metav1.ObjectMeta{
		Name: "ip-10-0-1-5.us-west-2.compute.internal",
		Labels: map[string]string{
			"karpenter.sh/nodepool":   "default",
			corev1.LabelHostname:      "ip-10-0-1-5.us-west-2.compute.internal",
			corev1.LabelArchStable:    "amd64",
			corev1.LabelOSStable:      "linux",
			"beta.kubernetes.io/arch": "amd64",
			"beta.kubernetes.io/os":   "linux",

			corev1.LabelInstanceTypeStable:      "m5.large",
			corev1.LabelInstanceType:            "m5.large",
			corev1.LabelTopologyZone:            "us-west-2a",
			corev1.LabelTopologyRegion:          "us-west-2",
			corev1.LabelFailureDomainBetaZone:   "us-west-2a",
			corev1.LabelFailureDomainBetaRegion: "us-west-2",
			labelZoneID:                         "usw2-az1",
		},
	}
	if diff := cmp.Diff(wantMeta, node.ObjectMeta); diff != "" {
		t.Error(diff)
	}
	wantSpec := corev1.NodeSpec{
		ProviderID: "aws:///us-west-2a/i-0123456789abcdef0",
		Taints: []corev1.Taint{
			{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
			{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
		},
	}
	if diff := cmp.Diff(wantSpec, node.Spec); diff != "" {
		t.Error(diff)
	}
	if isReady(node) {
		t.Error("a node is ready before it said so")
	}
	if gpus := node.Status.Allocatable["nvidia.com/gpu"]; gpus.Value() != 1 {
		t.Errorf("%s GPUs are allocatable", gpus.String())
	}
	if len(s.Taints) != 1 || s.Labels[corev1.LabelHostname] != "lies" {
		t.Error("NewNode changed its argument")
	}
}

func TestAddressesAreUnique(t *testing.T) {
	a := addresses{pool: netip.MustParsePrefix("100.64.0.0/28")}
	seen := map[string]bool{}
	for range 14 {
		ip := a.take()
		if seen[ip] || !a.pool.Contains(netip.MustParseAddr(ip)) {
			t.Fatalf("%s is given twice, or not of the range", ip)
		}
		seen[ip] = true
	}
	if seen["100.64.0.0"] {
		t.Error("the network's own address is given to a pod")
	}
	a.release("100.64.0.3")
	a.release("not an address")
	if got := []string{a.take(), a.take()}; got[0] != "100.64.0.15" || got[1] != "100.64.0.3" {
		t.Errorf("got %q, want the last one and then the one that was released", got)
	}
}
