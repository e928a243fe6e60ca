package aws_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/schemas/aws"
)

func class(t *testing.T, spec string) *aws.EC2NodeClass {
	t.Helper()
	c := &aws.EC2NodeClass{}
	if err := yaml.UnmarshalStrict([]byte(spec), &c.Spec); err != nil {
		t.Fatal(err)
	}
	return c
}

const base = `
amiSelectorTerms: [{alias: al2023@latest}]
subnetSelectorTerms: [{id: subnet-1}]
securityGroupSelectorTerms: [{id: sg-1}]
role: nodes
tags: {a: b}
kubelet: {maxPods: 110}
`

func TestEC2NodeClassHash(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		spec string
		same bool
	}{
		"selectors": {why: "what they find is compared with the instance", same: true,
			spec: strings.NewReplacer("subnet-1", "subnet-2", "sg-1", "sg-2").Replace(base) + "capacityReservationSelectorTerms: [{id: cr-1}]\nplacementGroupSelector: {name: x}\n"},
		"version of the image": {why: "the image is compared with the instance", same: true, spec: strings.Replace(base, "latest", "v20250116", 1)},
		"family said twice":    {why: "the alias says it already", same: true, spec: base + "amiFamily: AL2023\n"},
		"prefixes":             {why: "they can change on a running instance", same: true, spec: base + "ipPrefixCount: 3\n"},
		"family":               {why: "user data differs by family", spec: strings.Replace(base, "al2023", "bottlerocket", 1)},
		"custom family":        {why: "user data isn't generated then", spec: base + "amiFamily: Custom\n"},
		"tag":                  {why: "instances are tagged at launch", spec: strings.Replace(base, "a: b", "a: c", 1)},
		"kubelet":              {why: "the kubelet reads its configuration at boot", spec: strings.Replace(base, "110", "58", 1)},
		"kubelet, other field": {why: "fields that we don't read count as well", spec: strings.Replace(base, "110", "110, shutdownGracePeriod: 30s", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			if same := class(t, tc.spec).Hash() == class(t, base).Hash(); same != tc.same {
				t.Errorf("%s: the hash is the same: %v, want %v", tc.why, same, tc.same)
			}
		})
	}
	// Another value here means that every node drifts once: raise EC2NodeClassHashVersion.
	if got, want := class(t, base).Hash(), "368f2084bb16271119e8"; got != want {
		t.Errorf("the hash of a known class is %s, was %s", got, want)
	}
}

func TestAMIFamily(t *testing.T) {
	for spec, want := range map[string]string{
		"amiSelectorTerms: [{alias: al2@latest}]":                              aws.AMIFamilyAL2,
		"amiSelectorTerms: [{alias: al2023@v20250116}]":                        aws.AMIFamilyAL2023,
		"amiSelectorTerms: [{alias: bottlerocket@v1.20.0}]":                    aws.AMIFamilyBottlerocket,
		"amiSelectorTerms: [{alias: windows2019@latest}]":                      aws.AMIFamilyWindows2019,
		"amiSelectorTerms: [{alias: windows2022@latest}]":                      aws.AMIFamilyWindows2022,
		"amiSelectorTerms: [{alias: windows2025@latest}]":                      aws.AMIFamilyWindows2025,
		"amiSelectorTerms: [{alias: al2023@latest}]\namiFamily: Custom":        aws.AMIFamilyCustom,
		"amiSelectorTerms: [{tags: {a: b}}, {id: ami-1}]\namiFamily: AL2023\n": aws.AMIFamilyAL2023,
	} {
		if got := class(t, spec).AMIFamily(); got != want {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
	}
	if family, version, ok := class(t, base).Alias(); family != "al2023" || version != "latest" || !ok {
		t.Errorf("got alias %s@%s, %v", family, version, ok)
	}
	if _, _, ok := class(t, "amiSelectorTerms: [{id: ami-1}]").Alias(); ok {
		t.Error("an id counts as an alias")
	}
}

func TestKubeletSettings(t *testing.T) {
	text := `{"maxPods":110,"kubeReserved":{"cpu":"100m"},"featureGates":{"X":true},"evictionHard":{"memory.available":"5%"}}`
	var k aws.KubeletConfiguration
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		t.Fatal(err)
	}
	got, err := k.Settings()
	if err != nil {
		t.Fatal(err)
	}
	pods := int32(110)
	want := aws.KubeletSettings{
		MaxPods:      &pods,
		KubeReserved: map[string]string{"cpu": "100m"},
		EvictionHard: map[string]string{"memory.available": "5%"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	again, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if json.Unmarshal([]byte(text), &a) != nil || json.Unmarshal(again, &b) != nil || !cmp.Equal(a, b) {
		t.Errorf("wrote %s, read %s", again, text)
	}
}

// One field that can't be read hides neither the others nor its own name.
func TestKubeletSettingsWithExpressions(t *testing.T) {
	var k aws.KubeletConfiguration
	if err := json.Unmarshal([]byte(`{"maxPods":"default_enis * 10","podsPerCore":4,"clusterDNS":3}`), &k); err != nil {
		t.Fatal(err)
	}
	got, err := k.Settings()
	if err == nil || !strings.Contains(err.Error(), "kubelet.maxPods") || !strings.Contains(err.Error(), "kubelet.clusterDNS") {
		t.Errorf("got error %v, want one that names maxPods and clusterDNS", err)
	}
	if got.PodsPerCore == nil || *got.PodsPerCore != 4 || got.MaxPods != nil {
		t.Errorf("got %+v, want podsPerCore alone", got)
	}
}
