package difftest

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
)

const peerModule = "github.com/aws/karpenter-provider-aws"

// release is one release of Karpenter to compare with.
type release struct {
	version string
	// sum is the module's checksum in the Go checksum database.
	sum         string
	differences []difference
}

// releases lists what is compared with, and every deliberate difference.
func releases() []release {
	return []release{
		{
			version: "v1.14.1",
			sum:     "h1:WGtIQTQcxpElYMdWfWuPwaF2+9muR+hYhPZsTtoY8Gs=",
			differences: []difference{
				{
					why: "1.15 has a default for consolidateAfter where 1.14 wants it written",
					about: func(c testCase) bool {
						return has(c.obj, "spec disruption") && !has(c.obj, "spec disruption consolidateAfter")
					},
				},
				{
					why:   "1.15 has budgets for the reason Unhealthy",
					about: func(c testCase) bool { return contains(get(c.obj, "spec disruption budgets"), "Unhealthy") },
				},
				{
					why:   "1.15 has enclaveOptions",
					about: func(c testCase) bool { return has(c.obj, "spec enclaveOptions") },
				},
				{
					why:   "1.15 takes any field of the kubelet's configuration and leaves the checks to the controller; 1.14 has some fields and their rules",
					about: func(c testCase) bool { return has(c.obj, "spec kubelet") },
				},
			},
		},
		{
			// Newer than the Go release that this module is built with, which matters to
			// code and not to data.
			version: "v1.15.2",
			sum:     "h1:RGw64PB2ROUHZIUhBqjO78l3zJ9YctnWeullrr4cxYI=",
		},
	}
}

// difference is a deliberate one: where it applies, verdicts need not be equal.
// It must apply to some case whose verdicts really differ.
type difference struct {
	why   string
	about func(testCase) bool
}

// judge compiles CRDs. With status, it judges status as a field like any other.
func judge(t testing.TB, crds []*apiextensionsv1.CustomResourceDefinition, status bool) *admission.Judge {
	t.Helper()
	if status {
		for _, c := range crds {
			for i := range c.Spec.Versions {
				c.Spec.Versions[i].Subresources = nil
			}
		}
	}
	j, err := admission.New(crds)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func ours() []*apiextensionsv1.CustomResourceDefinition { return schemas.CRDs() }

// theirs reads the CRDs of a release from its module.
func theirs(t testing.TB, r release) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var out []*apiextensionsv1.CustomResourceDefinition
	archive := download(t, r)
	for _, f := range archive.File {
		dir, name := path.Split(strings.TrimPrefix(f.Name, peerModule+"@"+r.version+"/"))
		if dir != "pkg/apis/crds/" || path.Ext(name) != ".yaml" {
			continue
		}
		rc, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(rc)
		if err != nil {
			t.Fatal(err)
		}
		if err := rc.Close(); err != nil {
			t.Fatal(err)
		}
		c := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, c); err != nil {
			t.Fatalf("read %s: %v", f.Name, err)
		}
		out = append(out, c)
	}
	if len(out) != 5 {
		t.Fatalf("%s@%s has %d CRDs, want 5", peerModule, r.version, len(out))
	}
	return out
}

func download(t testing.TB, r release) *zip.ReadCloser {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("go", "mod", "download", "-json", peerModule+"@"+r.version)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// The command fails for a module that wants a newer Go, after it has fetched it.
	runErr := cmd.Run()
	var got struct{ Zip, Sum, Error string }
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("download %s@%s: %v: %s", peerModule, r.version, runErr, stderr.String())
	}
	if got.Zip == "" {
		t.Fatalf("download %s@%s: %s", peerModule, r.version, got.Error)
	}
	if got.Sum != r.sum {
		t.Fatalf("%s@%s has the checksum %s, want %s", peerModule, r.version, got.Sum, r.sum)
	}
	archive, err := zip.OpenReader(got.Zip)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := archive.Close(); err != nil {
			t.Error(err)
		}
	})
	return archive
}

// outcome is what is compared of a verdict.
type outcome struct {
	Accepted bool
	Pruned   []string
	// Defaulted is compared when both accept the object: what is refused isn't stored.
	Defaulted map[string]any
}

func outcomeOf(v admission.Verdict) outcome {
	return outcome{Accepted: v.Accepted(), Pruned: v.Pruned, Defaulted: v.Defaulted}
}

func (o outcome) String() string {
	return fmt.Sprintf("accepted: %v, pruned: %v, stored: %v", o.Accepted, o.Pruned, o.Defaulted)
}
