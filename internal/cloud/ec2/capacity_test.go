package ec2

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/schemas/aws"
)

// Sizes of real types, as DescribeInstanceTypes gives them.
func m5large() machine {
	return machine{name: "m5.large", arch: "amd64", vcpus: 2, memoryMiB: 8192, enis: 3, addresses: 10, branchENIs: 9, cards: 1}
}

func m7gdXlarge() machine {
	return machine{name: "m7gd.xlarge", arch: "arm64", vcpus: 4, memoryMiB: 16384, enis: 4, addresses: 15, localGB: 237, cards: 1}
}

func g5xlarge() machine {
	return machine{name: "g5.xlarge", arch: "amd64", vcpus: 4, memoryMiB: 16384, enis: 4, addresses: 15, cards: 1,
		gpu: device{name: "a10g", manufacturer: "nvidia", count: 1, memoryMiB: 24576}}
}

func withEFAs(n int64) machine {
	m := m5large()
	m.cards, m.efas = 2, n
	return m
}

// interfaces lists them as card/type.
func interfaces(list ...string) func(*sizing) {
	return func(s *sizing) {
		for _, text := range list {
			card, kind, _ := strings.Cut(text, "/")
			s.interfaces = append(s.interfaces, &aws.NetworkInterface{
				NetworkCardIndex: int32(card[0] - '0'), InterfaceType: aws.InterfaceType(kind),
			})
		}
	}
}

func testSizing(t *testing.T, f family, kubeletYAML string) *sizing {
	t.Helper()
	var config aws.KubeletConfiguration
	if err := yaml.Unmarshal([]byte(kubeletYAML), &config); err != nil {
		t.Fatal(err)
	}
	k, err := readKubelet(config)
	if err != nil {
		t.Fatal(err)
	}
	return &sizing{family: f, overheadPPM: 75_000, kubelet: k, volume: 20 * gibibyte}
}

func TestCapacity(t *testing.T) {
	tests := map[string]struct {
		why     string
		machine machine
		family  family
		kubelet string
		adjust  func(*sizing)
		want    string // capacity, then allocatable
	}{
		"plain": {
			why:     "8192 MiB less 7.5 % rounded up is 7577; 29 pods reserve 574 MiB; eviction takes 100 MiB and 10 % of the disk",
			machine: m5large(), family: al2023,
			want: "cpu=2 ephemeral-storage=20Gi memory=7577Mi pods=29 vpc.amazonaws.com/pod-eni=9 | cpu=1930m ephemeral-storage=17Gi memory=6903Mi pods=29 vpc.amazonaws.com/pod-eni=9",
		},
		"arm64 with local disks": {
			why:     "64 MiB of cma are gone first; RAID0 makes 237 GB the nodes' disk",
			machine: m7gdXlarge(), family: al2023, adjust: func(s *sizing) { s.raid0 = true },
			want: "cpu=4 ephemeral-storage=237000000000 memory=15096Mi pods=58 | cpu=3920m ephemeral-storage=212226258176 memory=14103Mi pods=58",
		},
		"local disks unused": {
			why:     "without a policy the disks are only extra devices",
			machine: m7gdXlarge(), family: al2023,
			want: "cpu=4 ephemeral-storage=20Gi memory=15096Mi pods=58 | cpu=3920m ephemeral-storage=17Gi memory=14103Mi pods=58",
		},
		"gpu": {
			why:     "a device is its maker's resource",
			machine: g5xlarge(), family: bottlerocket,
			want: "cpu=4 ephemeral-storage=20Gi memory=15155Mi nvidia.com/gpu=1 pods=58 | cpu=3920m ephemeral-storage=17Gi memory=14162Mi nvidia.com/gpu=1 pods=58",
		},
		"maxPods": {
			why:     "Bottlerocket reserves memory for the pods that may run",
			machine: m5large(), family: bottlerocket, kubelet: "{maxPods: 110}",
			want: "cpu=2 ephemeral-storage=20Gi memory=7577Mi pods=110 vpc.amazonaws.com/pod-eni=9 | cpu=1930m ephemeral-storage=17Gi memory=6012Mi pods=110 vpc.amazonaws.com/pod-eni=9",
		},
		"maxPods on AL2023": {
			why:     "nodeadm reserves for the pods that the interfaces allow",
			machine: m5large(), family: al2023, kubelet: "{maxPods: 110}",
			want: "cpu=2 ephemeral-storage=20Gi memory=7577Mi pods=110 vpc.amazonaws.com/pod-eni=9 | cpu=1930m ephemeral-storage=17Gi memory=6903Mi pods=110 vpc.amazonaws.com/pod-eni=9",
		},
		"podsPerCore": {
			why:     "the smaller bound counts",
			machine: m5large(), family: al2023, kubelet: "{podsPerCore: 4}",
			want: "cpu=2 ephemeral-storage=20Gi memory=7577Mi pods=8 vpc.amazonaws.com/pod-eni=9 | cpu=1930m ephemeral-storage=17Gi memory=6903Mi pods=8 vpc.amazonaws.com/pod-eni=9",
		},
		"podsPerCore on Bottlerocket": {
			why:     "Bottlerocket has no such setting",
			machine: m5large(), family: bottlerocket, kubelet: "{podsPerCore: 4}",
			want: "cpu=2 ephemeral-storage=20Gi memory=7577Mi pods=29 vpc.amazonaws.com/pod-eni=9 | cpu=1930m ephemeral-storage=17Gi memory=6903Mi pods=29 vpc.amazonaws.com/pod-eni=9",
		},
		"reserved": {
			why:     "kubeReserved replaces the defaults it names, systemReserved comes on top",
			machine: m5large(), family: al2023, kubelet: "{kubeReserved: {cpu: 200m, memory: 1Gi}, systemReserved: {cpu: 100m, memory: 256Mi, pid: '100'}}",
			want: "cpu=2 ephemeral-storage=20Gi memory=7577Mi pods=29 vpc.amazonaws.com/pod-eni=9 | cpu=1700m ephemeral-storage=17Gi memory=6197Mi pods=29 vpc.amazonaws.com/pod-eni=9",
		},
		"eviction": {
			why:     "the higher of hard and soft; a percentage of the capacity, rounded up; 100 % is off",
			machine: m5large(), family: al2023, kubelet: "{evictionHard: {memory.available: 5%, nodefs.available: 100%}, evictionSoft: {memory.available: 500Mi}, evictionSoftGracePeriod: {memory.available: 1m}}",
			want: "cpu=2 ephemeral-storage=20Gi memory=7577Mi pods=29 vpc.amazonaws.com/pod-eni=9 | cpu=1930m ephemeral-storage=19Gi memory=6503Mi pods=29 vpc.amazonaws.com/pod-eni=9",
		},
		"more reserved than there is": {
			why:     "allocatable never goes below nothing",
			machine: m5large(), family: al2023, kubelet: "{systemReserved: {memory: 100Gi}}",
			want: "cpu=2 ephemeral-storage=20Gi memory=7577Mi pods=29 vpc.amazonaws.com/pod-eni=9 | cpu=1930m ephemeral-storage=17Gi memory=0 pods=29 vpc.amazonaws.com/pod-eni=9",
		},
		"reserved interfaces": {
			why:     "an interface that the CNI may not use gives no pods addresses",
			machine: m5large(), family: al2023, adjust: func(s *sizing) { s.reservedENIs = 1 },
			want: "cpu=2 ephemeral-storage=20Gi memory=7577Mi pods=20 vpc.amazonaws.com/pod-eni=9 | cpu=1930m ephemeral-storage=17Gi memory=6903Mi pods=20 vpc.amazonaws.com/pod-eni=9",
		},
		"an EFA if asked for": {
			why:     "a class that lists no interfaces gets as many as the type can have",
			machine: withEFAs(2), family: al2023,
			want: "cpu=2 ephemeral-storage=20Gi memory=7577Mi pods=29 vpc.amazonaws.com/efa=2 vpc.amazonaws.com/pod-eni=9 | cpu=1930m ephemeral-storage=17Gi memory=6903Mi pods=29 vpc.amazonaws.com/efa=2 vpc.amazonaws.com/pod-eni=9",
		},
		"interfaces listed without EFA": {
			why:     "a node has what the class lists and nothing else",
			machine: withEFAs(2), family: al2023, adjust: interfaces("0/interface"),
			want: "cpu=2 ephemeral-storage=20Gi memory=7577Mi pods=29 vpc.amazonaws.com/pod-eni=9 | cpu=1930m ephemeral-storage=17Gi memory=6903Mi pods=29 vpc.amazonaws.com/pod-eni=9",
		},
		"interfaces listed with EFAs": {
			why:     "one that is only for EFA takes an interface of its card; the first card's give pods addresses",
			machine: withEFAs(2), family: al2023, adjust: interfaces("0/interface", "0/efa-only", "1/efa-only"),
			want: "cpu=2 ephemeral-storage=20Gi memory=7577Mi pods=20 vpc.amazonaws.com/efa=2 vpc.amazonaws.com/pod-eni=9 | cpu=1930m ephemeral-storage=17Gi memory=6903Mi pods=20 vpc.amazonaws.com/efa=2 vpc.amazonaws.com/pod-eni=9",
		},
		"windows": {
			why:     "pods have addresses of one interface, counted as a resource; the kubelet takes 110",
			machine: m5large(), family: windows2022,
			want: "cpu=2 ephemeral-storage=20Gi memory=7577Mi pods=110 vpc.amazonaws.com/PrivateIPv4Address=9 vpc.amazonaws.com/pod-eni=9 | cpu=1930m ephemeral-storage=17Gi memory=6012Mi pods=110 vpc.amazonaws.com/PrivateIPv4Address=9 vpc.amazonaws.com/pod-eni=9",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := testSizing(t, tt.family, tt.kubelet)
			if tt.adjust != nil {
				tt.adjust(s)
			}
			capacity := s.capacity(&tt.machine)
			got := listText(capacity) + " | " + listText(s.allocatable(&tt.machine, capacity))
			if got != tt.want {
				t.Errorf("%s\n got %s\nwant %s", tt.why, got, tt.want)
			}
		})
	}
}

// listText writes a list in the order of names.
func listText(l corev1.ResourceList) string {
	text := ""
	for _, k := range sortedKeys(l) {
		q := l[k]
		if text != "" {
			text += " "
		}
		text += string(k) + "=" + q.String()
	}
	return text
}

func TestReservedMilliCPU(t *testing.T) {
	for vcpus, want := range map[int64]int64{1: 60, 2: 70, 4: 80, 8: 90, 16: 110, 17: 113, 96: 310, 192: 550} {
		if got := reservedMilliCPU(vcpus); got != want {
			t.Errorf("of %d vCPUs %dm are reserved, want %dm", vcpus, got, want)
		}
	}
}

func TestThreshold(t *testing.T) {
	of := resource.MustParse("1000")
	for text, want := range map[string]string{"10%": "100", "7.5%": "75", "0.01%": "1", "100%": "0", "1Ki": "1Ki"} {
		if got, ok := threshold(text, of); !ok || got.String() != want {
			t.Errorf("threshold %q is %s (%t), want %s", text, got.String(), ok, want)
		}
	}
	for _, text := range []string{"", "x", "-1%", "%", "1e400%"} {
		if got, ok := threshold(text, of); ok && text != "1e400%" {
			t.Errorf("threshold %q was read as %s", text, got.String())
		}
	}
}

func TestReadKubeletRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{registerWithTaints: []}":                                                                  "kubelet.registerWithTaints: set the NodePool's taints and startupTaints instead",
		"{kubeReserved: {cpu: '-1'}}":                                                               `kubelet.kubeReserved.cpu: "-1" is not a quantity of at least 0`,
		"{evictionHard: {memory.available: lots}}":                                                  `kubelet.evictionHard.memory.available: "lots" is neither a quantity nor a percentage`,
		"{evictionSoft: {memory.available: 1Gi}}":                                                   "kubelet.evictionSoft.memory.available needs an entry in evictionSoftGracePeriod",
		"{imageGCHighThresholdPercent: 50, imageGCLowThresholdPercent: 50}":                         "kubelet.imageGCHighThresholdPercent 50 must be above imageGCLowThresholdPercent 50",
		"{maxPods: -5, podsPerCore: -1}":                                                            "kubelet.maxPods -5 must not be negative\nkubelet.podsPerCore -1 must not be negative",
		"{kubeReserved: {mem: 1Gi}}":                                                                "kubelet.kubeReserved.mem: only cpu, memory, ephemeral-storage and pid can be reserved",
		"{systemReserved: {cpu: '1', pid: '100', ephemeral-storage: 1Gi}}":                          "",
		"{evictionHard: {memory.avail: 5%}}":                                                        "kubelet.evictionHard.memory.avail: there is no such signal; memory.available is one",
		"{evictionHard: {containerfs.available: 5%, pid.available: 10%}}":                           "",
		"{evictionHard: {memory.available: '-1Gi'}}":                                                `kubelet.evictionHard.memory.available: "-1Gi" is neither a quantity nor a percentage`,
		"{evictionSoftGracePeriod: {memory.available: 1m}}":                                         "kubelet.evictionSoftGracePeriod.memory.available needs an entry in evictionSoft",
		"{evictionSoft: {memory.available: 5%}, evictionSoftGracePeriod: {memory.available: soon}}": `kubelet.evictionSoftGracePeriod.memory.available: "soon" is not a duration, as in 1m30s`,
		"{imageGCHighThresholdPercent: 900}":                                                        "kubelet.imageGCHighThresholdPercent 900 must be from 0 to 100",
		"{imageGCHighThresholdPercent: 70}":                                                         "kubelet.imageGCHighThresholdPercent 70 must be above imageGCLowThresholdPercent 80",
		"{imageGCLowThresholdPercent: 60}":                                                          "",
		"{evictionMaxPodGracePeriod: -1}":                                                           "",
		"{maxPods: 20, podsPerCore: 3, anythingElse: {deep: [1]}, clusterDNS: []}":                  "",
	} {
		var config aws.KubeletConfiguration
		if err := yaml.Unmarshal([]byte(text), &config); err != nil {
			t.Fatal(err)
		}
		_, err := readKubelet(config)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestUnsupportedKubelet(t *testing.T) {
	var config aws.KubeletConfiguration
	if err := json.Unmarshal([]byte(`{"maxPods":1,"clusterDNS":["1"],"podsPerCore":2,"featureGates":{},"cpuManagerPolicy":"static","kubeReserved":{}}`), &config); err != nil {
		t.Fatal(err)
	}
	k, err := readKubelet(config)
	if err != nil {
		t.Fatal(err)
	}
	for f, want := range map[family][]string{
		al2023: nil, custom: nil,
		al2:          {"cpuManagerPolicy", "featureGates"},
		bottlerocket: {"featureGates", "podsPerCore"},
		windows2022:  {"cpuManagerPolicy", "featureGates", "podsPerCore"},
	} {
		if diff := cmp.Diff(want, k.unsupported(f)); diff != "" {
			t.Errorf("%s can't be given (-want +got):\n%s", f, diff)
		}
	}
}

func TestPodVolume(t *testing.T) {
	var mappings []*aws.BlockDeviceMapping
	text := `[{deviceName: /dev/xvda, ebs: {volumeSize: 8Gi}}, {deviceName: /dev/xvdb, ebs: {volumeSize: 100G}}]`
	if err := yaml.Unmarshal([]byte(text), &mappings); err != nil {
		t.Fatal(err)
	}
	for f, want := range map[family]int64{al2023: 8 << 30, bottlerocket: 100e9, custom: 100e9, windows2019: 50 << 30} {
		if got := podVolumeBytes(f, mappings); got != want {
			t.Errorf("%s: pods' files are on %d bytes, want %d", f, got, want)
		}
	}
	mappings[1].RootVolume = true
	if got := podVolumeBytes(al2023, mappings); got != 100e9 {
		t.Errorf("rootVolume is %d bytes, want 100 GB", got)
	}
	for f, want := range map[family]int64{al2023: 20 << 30, bottlerocket: 20 << 30, custom: 20 << 30, windows2019: 50 << 30} {
		if got := podVolumeBytes(f, nil); got != want {
			t.Errorf("%s without mappings: %d bytes, want %d", f, got, want)
		}
	}
}
