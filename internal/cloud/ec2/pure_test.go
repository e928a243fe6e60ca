package ec2

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/schemas/aws"
)

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func TestMicroUSD(t *testing.T) {
	for text, want := range map[string]int64{
		"0.0961000000": 96_100, "1": 1_000_000, "0.0000005": 1, "0.0000004": 0, "32.7726": 32_772_600, ".5": 500_000, "0": 0,
		"123456.0000004999": 123_456_000_000,
	} {
		if got, err := microUSD(text); err != nil || got != want {
			t.Errorf("%q is %d µ$ (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", ".", "x", "-1", "1e3", "0.1x", "1234567", "0x10", "1,5"} {
		if got, err := microUSD(text); err == nil {
			t.Errorf("%q was read as %d µ$", text, got)
		}
	}
}

func TestSplitTypeName(t *testing.T) {
	for name, want := range map[string]typeName{
		"m5.large":             {"m", "m5", "5", "large"},
		"c7i-flex.8xlarge":     {"c", "c7i-flex", "7", "8xlarge"},
		"im4gn.large":          {"im", "im4gn", "4", "large"},
		"u-6tb1.metal":         {"u", "u-6tb1", "1", "metal"},
		"u7i-12tb.224xlarge":   {"u", "u7i-12tb", "7", "224xlarge"},
		"x2iedn.metal":         {"x", "x2iedn", "2", "metal"},
		"mac2-m2pro.metal":     {"mac", "mac2-m2pro", "2", "metal"},
		"hpc6a.48xlarge":       {"hpc", "hpc6a", "6", "48xlarge"},
		"p4de.24xlarge":        {"p", "p4de", "4", "24xlarge"},
		"m7a.metal-48xl":       {"m", "m7a", "7", "metal-48xl"},
		"strange":              {"", "strange", "", ""},
		"u7inh-32tb.480xlarge": {"u", "u7inh-32tb", "7", "480xlarge"},
	} {
		if got := splitTypeName(name); got != want {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
}

func TestNodeLabels(t *testing.T) {
	m := g5xlarge()
	m.hypervisor, m.manufacturer, m.clockMHz, m.ebsMbps, m.networkMbps, m.localGB, m.encrypted = "nitro", "amd", 3300, 3500, 2500, 250, true
	want := map[string]string{
		"node.kubernetes.io/instance-type": "g5.xlarge", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
		"topology.kubernetes.io/region":                              "us-west-2",
		"karpenter.k8s.aws/instance-cpu":                             "4",
		"karpenter.k8s.aws/instance-memory":                          "16384",
		"karpenter.k8s.aws/instance-encryption-in-transit-supported": "true",
		"karpenter.k8s.aws/instance-tenancy":                         "default",
		"karpenter.k8s.aws/instance-category":                        "g",
		"karpenter.k8s.aws/instance-family":                          "g5",
		"karpenter.k8s.aws/instance-generation":                      "5",
		"karpenter.k8s.aws/instance-size":                            "xlarge",
		"karpenter.k8s.aws/instance-capability-flex":                 "false",
		"karpenter.k8s.aws/instance-hypervisor":                      "nitro",
		"karpenter.k8s.aws/instance-cpu-manufacturer":                "amd",
		"karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz":   "3300",
		"karpenter.k8s.aws/instance-ebs-bandwidth":                   "3500",
		"karpenter.k8s.aws/instance-network-bandwidth":               "2500",
		"karpenter.k8s.aws/instance-local-nvme":                      "250",
		"karpenter.k8s.aws/instance-gpu-name":                        "a10g",
		"karpenter.k8s.aws/instance-gpu-manufacturer":                "nvidia",
		"karpenter.k8s.aws/instance-gpu-count":                       "1",
		"karpenter.k8s.aws/instance-gpu-memory":                      "24576",
	}
	if diff := cmp.Diff(want, nodeLabels(&m, al2023, "us-west-2")); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if got := nodeLabels(&m, windows2025, "x"); got["kubernetes.io/os"] != "windows" || got["node.kubernetes.io/windows-build"] != "10.0.26100" {
		t.Errorf("labels of a Windows node: %v", got)
	}
}

func TestMinorVersion(t *testing.T) {
	for version, want := range map[string]string{"1.33": "1.33", "v1.37.2": "1.37", "v1.30.4-eks-a737599": "1.30", "1.31+": "1.31", "": "", "1": "", "x.y": "x."} {
		got, err := minorVersion(version)
		if want == "x." {
			want = ""
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("minor version of %q is %q (%v), want %q", version, got, err, want)
		}
	}
}

func TestAliasParameters(t *testing.T) {
	tests := map[string]struct {
		alias, version, minor string
		want                  []string
	}{
		"al2023 latest": {"al2023", "latest", "1.33", []string{
			"/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/standard/recommended/image_id [standard]",
			"/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/nvidia/recommended/image_id [nvidia]",
			"/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/neuron/recommended/image_id [neuron]",
			"/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/arm64/standard/recommended/image_id [standard]",
			"/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/arm64/nvidia/recommended/image_id [nvidia]",
		}},
		"al2 pinned": {"al2", "v20241109", "1.30", []string{
			"/aws/service/eks/optimized-ami/1.30/amazon-linux-2/amazon-eks-node-1.30-v20241109/image_id [standard]",
			"/aws/service/eks/optimized-ami/1.30/amazon-linux-2-arm64/amazon-eks-arm64-node-1.30-v20241109/image_id [standard]",
			"/aws/service/eks/optimized-ami/1.30/amazon-linux-2-gpu/amazon-eks-gpu-node-1.30-v20241109/image_id [nvidia neuron]",
		}},
		"bottlerocket pinned": {"bottlerocket", "v1.20.4", "1.30", []string{
			"/aws/service/bottlerocket/aws-k8s-1.30/x86_64/1.20.4/image_id [standard neuron]",
			"/aws/service/bottlerocket/aws-k8s-1.30-nvidia/x86_64/1.20.4/image_id [nvidia]",
			"/aws/service/bottlerocket/aws-k8s-1.30/arm64/1.20.4/image_id [standard neuron]",
			"/aws/service/bottlerocket/aws-k8s-1.30-nvidia/arm64/1.20.4/image_id [nvidia]",
		}},
		"windows": {"windows2022", "latest", "1.33", []string{
			"/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.33/image_id [standard]",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			found, err := aliasParameters(tt.alias, tt.version, tt.minor)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range found {
				text := p.name + " ["
				for i, v := range p.variants {
					if i > 0 {
						text += " "
					}
					text += string(v)
				}
				got = append(got, text+"]")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("parameters (-want +got):\n%s", diff)
			}
		})
	}
	for _, alias := range []string{"al2", "ubuntu"} {
		var refused *aliasError
		if _, err := aliasParameters(alias, "latest", "1.33"); !errors.As(err, &refused) {
			t.Errorf("alias %s on 1.33: %v, want an aliasError", alias, err)
		}
	}
}

func TestImageStatus(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	image := func(id, arch, created, deprecation string) ec2types.Image {
		return ec2types.Image{ImageId: &id, Name: new("name-" + id), Architecture: ec2types.ArchitectureValues(arch), CreationDate: &created, DeprecationTime: &deprecation}
	}
	found := []foundImage{
		{image("ami-old", "x86_64", "2026-01-01T00:00:00.000Z", ""), nil},
		{image("ami-new", "x86_64", "2026-06-01T00:00:00.000Z", ""), nil},
		{image("ami-gone", "x86_64", "2026-09-01T00:00:00.000Z", "2026-10-01T00:00:00.000Z"), nil},
		{image("ami-arm", "arm64", "2026-02-01T00:00:00.000Z", "2027-10-01T00:00:00.000Z"), nil},
		{image("ami-mac", "x86_64_mac", "2026-11-01T00:00:00.000Z", ""), nil},
		{image("ami-gpu", "x86_64", "2026-03-01T00:00:00.000Z", ""), []variant{nvidia, neuron}},
	}
	var got []string
	for _, a := range imageStatus(found, now) {
		text := a.ID
		for _, r := range a.Requirements {
			text += " " + r.Key + ":" + string(r.Operator)
			for _, v := range r.Values {
				text += ":" + v
			}
		}
		got = append(got, text)
	}
	want := []string{
		"ami-new kubernetes.io/arch:In:amd64",
		"ami-gpu karpenter.k8s.aws/instance-accelerator-count:Exists kubernetes.io/arch:In:amd64",
		"ami-gpu karpenter.k8s.aws/instance-gpu-count:Exists kubernetes.io/arch:In:amd64",
		"ami-arm kubernetes.io/arch:In:arm64",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	slices.Reverse(found)
	if diff := cmp.Diff(imageStatus(found, now), imageStatus(slices.Clone(found), now)); diff != "" {
		t.Errorf("the order of what EC2 lists matters:\n%s", diff)
	}
	if only := imageStatus([]foundImage{found[3]}, now); len(only) != 1 || !only[0].Deprecated {
		t.Errorf("an image that is deprecated is used if there is no other: %+v", only)
	}
}

func TestSelectorQueries(t *testing.T) {
	q := subnetQueries([]aws.SubnetSelectorTerm{
		{ID: "subnet-b"}, {Tags: map[string]string{"z": "*", "a": "1"}}, {ID: "subnet-a"}, {ID: "subnet-b"},
	})
	if got, want := describeTerms(q), "tag:a=1 tag-key=z; subnet-id=subnet-a,subnet-b"; got != want {
		t.Errorf("subnets are asked for by %q, want %q", got, want)
	}
	g := groupQueries([]aws.SecurityGroupSelectorTerm{{Name: "n"}, {ID: "sg-1"}, {Tags: map[string]string{"a": "1"}}})
	if got, want := describeTerms(g), "tag:a=1; group-id=sg-1; group-name=n"; got != want {
		t.Errorf("security groups are asked for by %q, want %q", got, want)
	}
}

func TestUnavailable(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	u := newUnavailable()
	_, v0 := u.at(now)
	u.mark(offeringKey{"spot", "m5.large", "a", "", ""}, now)
	u.mark(offeringKey{capacityType: "spot", instanceType: "c5.large"}, now.Add(time.Minute))
	s, v1 := u.at(now.Add(time.Minute))
	if v1 == v0 {
		t.Error("a shortage didn't change the version")
	}
	for _, x := range []struct {
		capacityType, instanceType, zone string
		out                              bool
	}{
		{"spot", "m5.large", "a", true}, {"spot", "m5.large", "b", false}, {"on-demand", "m5.large", "a", false},
		{"spot", "c5.large", "b", true}, {"spot", "c5.xlarge", "b", false},
	} {
		if got := s.out(x.capacityType, x.instanceType, x.zone, ""); got != x.out {
			t.Errorf("%v: out is %t", x, got)
		}
	}
	if _, same := u.at(now.Add(time.Minute)); same != v1 {
		t.Error("the version changed although nothing did")
	}
	s, v2 := u.at(now.Add(unavailableFor))
	if v2 == v1 || s.out("spot", "m5.large", "a", "") || !s.out("spot", "c5.large", "a", "") {
		t.Errorf("after %s the first shortage alone should be over", unavailableFor)
	}
	u.mark(offeringKey{capacityType: "spot"}, now)
	if s, _ := u.at(now); !s.out("spot", "any", "any", "") || s.out("spot", "any", "any", "cr-1") {
		t.Error("a shortage of the whole market covers all but reservations")
	}
}

func TestShortagesThatReturnLastLonger(t *testing.T) {
	u := newUnavailable()
	k := offeringKey{"spot", "m5.large", "a", "", ""}
	out := func(at time.Time) bool {
		s, _ := u.at(at)
		return s.out("spot", "m5.large", "a", "")
	}
	at := time.Unix(0, 0)
	for _, wait := range []time.Duration{3, 6, 12, 24, 24} {
		u.mark(k, at)
		u.mark(k, at) // another launch of the same moment
		at = at.Add(wait * time.Minute)
		if !out(at.Add(-time.Second)) || out(at) {
			t.Errorf("a shortage that should last %d minutes doesn't", wait)
		}
	}
	u.had(k)
	u.mark(k, at)
	if out(at.Add(unavailableFor)) {
		t.Error("a shortage after a launch that worked is still the old one")
	}
	u.mark(k, at.Add(time.Hour))
	if out(at.Add(time.Hour + unavailableFor)) {
		t.Error("a shortage an hour after the last is still the old one")
	}
}

func TestMemoSharesCalls(t *testing.T) {
	clk := testclock.NewFakePassiveClock(time.Unix(0, 0))
	synctest.Test(t, func(t *testing.T) {
		m := newMemo[string, int](clk, time.Minute)
		var calls atomic.Int64
		load := func(context.Context) (int, error) {
			time.Sleep(time.Second)
			return int(calls.Add(1)), nil
		}
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if got, err := m.get(t.Context(), "k", load); got != 1 || err != nil {
					t.Errorf("got %d, %v", got, err)
				}
			})
		}
		wg.Wait()
		clk.SetTime(time.Unix(59, 0))
		if got, _ := m.get(t.Context(), "k", load); got != 1 {
			t.Errorf("within the time to live the answer is %d", got)
		}
		clk.SetTime(time.Unix(60, 0))
		if got, _ := m.get(t.Context(), "k", load); got != 2 {
			t.Errorf("after the time to live the answer is %d", got)
		}
		m.forget("k")
		if got, _ := m.get(t.Context(), "k", load); got != 3 {
			t.Errorf("after forget the answer is %d", got)
		}
	})
}

func TestMemoKeepsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemo[string, int](testclock.NewFakePassiveClock(time.Unix(0, 0)), time.Minute)
		failure := errors.New("no")
		if _, err := m.get(t.Context(), "k", func(context.Context) (int, error) { return 0, failure }); !errors.Is(err, failure) {
			t.Errorf("error is %v", err)
		}
		// Whoever stops waiting doesn't stop the call for the others.
		ctx, cancel := context.WithCancel(t.Context())
		slow := func(ctx context.Context) (int, error) {
			time.Sleep(time.Second)
			return 7, ctx.Err()
		}
		go func() { time.Sleep(time.Millisecond); cancel() }()
		if _, err := m.get(ctx, "k", slow); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that stopped waiting got %v", err)
		}
		if got, err := m.get(t.Context(), "k", slow); got != 7 || err != nil {
			t.Errorf("the others got %d, %v", got, err)
		}
	})
}

func TestBatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		b := &batcher[int]{window: 100 * time.Millisecond, max: 3, do: func(_ context.Context, items []int) []error {
			mu.Lock()
			defer mu.Unlock()
			sizes = append(sizes, len(items))
			errs := make([]error, len(items))
			for i, item := range items {
				if item < 0 {
					errs[i] = errors.New("negative")
				}
			}
			return errs
		}}
		var wg sync.WaitGroup
		for _, item := range []int{1, -2, 3, 4, 5} {
			wg.Go(func() {
				if err := b.add(t.Context(), item); (err != nil) != (item < 0) {
					t.Errorf("item %d: %v", item, err)
				}
			})
		}
		wg.Wait()
		if err := b.add(t.Context(), 6); err != nil {
			t.Error(err)
		}
		slices.Sort(sizes)
		if diff := cmp.Diff([]int{1, 2, 3}, sizes); diff != "" {
			t.Errorf("sizes of the calls (-want +got):\n%s", diff)
		}
	})
}

func TestFeedServesTheOldWhileItRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := testclock.NewFakePassiveClock(time.Unix(0, 0))
		n, fail := 0, true
		f := &feed[int]{clock: clk, every: time.Hour, load: func(context.Context) (int, error) {
			time.Sleep(time.Second)
			n++
			if fail {
				return 0, errors.New("down")
			}
			return n, nil
		}}
		if _, v, err := f.get(t.Context()); v != 0 || err == nil {
			t.Errorf("the first load failed, but got version %d, %v", v, err)
		}
		if _, _, err := f.get(t.Context()); err == nil || n != 1 {
			t.Errorf("a failed load was repeated at once (%d loads), %v", n, err)
		}
		fail = false
		clk.SetTime(time.Unix(5, 0))
		if _, v, err := f.get(t.Context()); v != 0 || err == nil {
			t.Errorf("a caller waited for a load that failed before: version %d, %v", v, err)
		}
		time.Sleep(2 * time.Second)
		if got, v, err := f.get(t.Context()); got != 2 || v != 1 || err != nil {
			t.Errorf("got %d, version %d, %v", got, v, err)
		}
		clk.SetTime(time.Unix(3605, 0))
		if got, v, _ := f.get(t.Context()); got != 2 || v != 1 {
			t.Errorf("while it refreshes: got %d, version %d", got, v)
		}
		time.Sleep(2 * time.Second)
		if got, v, _ := f.get(t.Context()); got != 3 || v != 2 {
			t.Errorf("after the refresh: got %d, version %d", got, v)
		}
	})
}

// What there is no room for in a placement group there may be outside of it.
func TestShortageOfAPlacementGroup(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	u := newUnavailable()
	u.mark(offeringKey{"spot", "m5.large", "a", "", "near"}, now)
	u.mark(offeringKey{"spot", "c5.large", "a", "", ""}, now)
	for group, want := range map[string]bool{"near": true, "": false, "far": false} {
		class := &aws.EC2NodeClass{}
		if group != "" {
			class.Spec.PlacementGroupSelector = &aws.PlacementGroupSelector{Name: group}
		}
		s, _ := u.at(now)
		s.of(class)
		if got := s.out("spot", "m5.large", "a", ""); got != want {
			t.Errorf("in group %q the shortage of a group counts: %t", group, got)
		}
		if !s.out("spot", "c5.large", "a", "") {
			t.Errorf("in group %q a shortage outside of groups doesn't count", group)
		}
	}
	// It survives a restart as what it is.
	shortages, _ := u.kept(now)
	next := newUnavailable()
	next.learn(shortages, nil, now)
	if s, _ := next.at(now); !s.offerings[offeringKey{"spot", "m5.large", "a", "", "near"}] {
		t.Errorf("known after a restart is %v", s.offerings)
	}
}
