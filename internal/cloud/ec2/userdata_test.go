package ec2

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/schemas/aws"
)

// Each archive has the input in the file "in" (and the class's own user data in
// "custom") and what comes of it in "want". UPDATE=1 rewrites the latter.
func TestUserData(t *testing.T) {
	files, err := filepath.Glob("testdata/userdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			section := func(name string) string {
				for _, f := range a.Files {
					if f.Name == name {
						return string(f.Data)
					}
				}
				return ""
			}
			var in struct {
				Family  string                   `json:"family"`
				CA      string                   `json:"ca"`
				CIDR    string                   `json:"cidr"`
				MaxPods int64                    `json:"maxPods"`
				Labels  map[string]string        `json:"labels"`
				Taints  []corev1.Taint           `json:"taints"`
				Startup []corev1.Taint           `json:"startupTaints"`
				Kubelet aws.KubeletConfiguration `json:"kubelet"`
				RAID0   bool                     `json:"raid0"`
			}
			if err := yaml.UnmarshalStrict([]byte(section("in")), &in); err != nil {
				t.Fatal(err)
			}
			k, err := readKubelet(in.Kubelet)
			if err != nil {
				t.Fatal(err)
			}
			b := bootstrap{
				family:  family(in.Family),
				cluster: cluster{name: "demo", endpoint: "https://10.1.2.3:443", ca: in.CA, cidr: "10.96.0.0/16"},
				kubelet: k, maxPods: in.MaxPods, labels: kubeletLabels(in.Labels),
				taints: nodeTaints(in.Taints, in.Startup), raid0: in.RAID0, custom: section("custom"),
			}
			if in.CIDR != "" {
				b.cluster.cidr = in.CIDR
			}
			got, err := userData(b)
			if err != nil {
				got = "error: " + err.Error() + "\n"
			}
			for range 20 {
				if again, _ := userData(b); err == nil && again != got {
					t.Fatalf("equal input gave other bytes:\n%s", cmp.Diff(got, again))
				}
			}
			// Archives end their lines with \r\n, which a text file can't show.
			got = strings.ReplaceAll(got, "\r\n", "\n")
			if want := section("want"); got != want {
				if os.Getenv("UPDATE") == "" {
					t.Fatalf("user data (-want +got):\n%s", cmp.Diff(want, got))
				}
				kept := a.Files[:0]
				for _, f := range a.Files {
					if f.Name != "want" {
						kept = append(kept, f)
					}
				}
				a.Files = append(kept, txtar.File{Name: "want", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestUserDataIsBounded(t *testing.T) {
	b := bootstrap{family: custom, custom: strings.Repeat("x", maxUserData)}
	if _, err := userData(b); err != nil {
		t.Errorf("user data of exactly %d bytes: %v", maxUserData, err)
	}
	b.custom += "x"
	if _, err := userData(b); err == nil {
		t.Errorf("user data of %d bytes was taken", len(b.custom))
	}
}

// What a class writes can't end our archive early.
func TestArchiveBoundary(t *testing.T) {
	got, err := userData(bootstrap{family: al2023, cluster: cluster{name: "demo"}, custom: "#!/bin/sh\ncat <<EOF\n--//\n--//--\nEOF\n"})
	if err != nil {
		t.Fatal(err)
	}
	parts, err := ownParts(got)
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) != 2 || !strings.Contains(string(parts[0].body), "--//--") || !strings.Contains(string(parts[1].body), "NodeConfig") {
		t.Errorf("archive has %d parts:\n%s", len(parts), got)
	}
}

func TestKubeletLabels(t *testing.T) {
	got := kubeletLabels(map[string]string{
		"team": "a", "example.com/x": "1", "karpenter.sh/nodepool": "p",
		"kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": "z", "node.kubernetes.io/instance-type": "m5.large",
		"node.kubernetes.io/group": "g", "kubelet.kubernetes.io/y": "2", "sub.node.kubernetes.io/x": "3",
		"topology.k8s.aws/zone-id": "usw2-az1", "k8s.io/z": "4", "mykubernetes.io/x": "5",
	})
	want := map[string]string{
		"team": "a", "example.com/x": "1", "karpenter.sh/nodepool": "p", "node.kubernetes.io/group": "g",
		"kubelet.kubernetes.io/y": "2", "sub.node.kubernetes.io/x": "3", "topology.k8s.aws/zone-id": "usw2-az1", "mykubernetes.io/x": "5",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels that a kubelet may set (-want +got):\n%s", diff)
	}
}
