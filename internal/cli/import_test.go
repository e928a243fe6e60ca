package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/render"
)

// legacyCRD is a CRD that serves a kind in one version and judges nothing.
func legacyCRD(group, version, kind, plural string) *apiextensionsv1.CustomResourceDefinition {
	anything := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &anything,
				}},
			}},
		},
	}
}

// create makes an object, as soon as its kind is served.
func create(t *testing.T, c client.Client, manifest string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		err := c.Create(ctx, u)
		if err == nil {
			return
		}
		if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) || ctx.Err() != nil {
			t.Fatalf("create %s %s: %v", u.GetKind(), u.GetName(), err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// imported runs import --cluster and returns the objects that its CUE declares.
func imported(t *testing.T, kubeconfig string) (render.Bundle, string) {
	t.Helper()
	var out, notes bytes.Buffer
	code := Main([]string{"import", "--cluster", "--kubeconfig", kubeconfig, "--role", "nodes"}, Streams{In: strings.NewReader(""), Out: &out, Err: &notes})
	if code != ExitOK {
		t.Fatalf("exit code %d:\n%s", code, &notes)
	}
	b, found := render.Render(fstest.MapFS{"a.cue": {Data: out.Bytes()}}, "")
	if found.HasErrors() {
		t.Fatalf("what was imported has faults: %v\n%s", found, &out)
	}
	return b, notes.String()
}

func ids(b render.Bundle) string {
	var out []string
	for _, o := range b.Objects {
		out = append(out, o.ID())
	}
	return strings.Join(out, " ")
}

// TestImportFromCluster reads objects of all versions from a real API server: from one that
// serves v1 beside kinds of long ago, and then from one that has nothing but v1beta1.
func TestImportFromCluster(t *testing.T) {
	env := testkit.Sandbox(t)
	c := testkit.Client(t, env.REST)
	testkit.InstallCRDs(t, c)
	ctx := t.Context()
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{
		legacyCRD("karpenter.sh", "v1alpha5", "Provisioner", "provisioners"),
		legacyCRD("karpenter.k8s.aws", "v1alpha1", "AWSNodeTemplate", "awsnodetemplates"),
	} {
		if err := c.Create(ctx, crd); err != nil {
			t.Fatal(err)
		}
	}
	const class = `{amiSelectorTerms: [{alias: al2023@v20260101}], role: nodes, subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}]}`
	create(t, c, "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: today}\nspec: "+class)
	create(t, c, "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: today}\nspec: {weight: 7, template: {spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: today}}}}")
	create(t, c, "apiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {name: old}\nspec: {amiFamily: Bottlerocket, subnetSelector: {Name: a}, securityGroupSelector: {Name: a}}")
	create(t, c, "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: old}\nspec: {weight: 5, ttlSecondsUntilExpired: 86400, requirements: [], providerRef: {name: old}}")

	b, _ := imported(t, env.Kubeconfig)
	if got, want := ids(b), "EC2NodeClass/old EC2NodeClass/today NodePool/old NodePool/today"; got != want {
		t.Errorf("imported %s, want %s", got, want)
	}
	for name, want := range map[string]int64{"today": 7, "old": 5} {
		o, _ := b.Find("NodePool", name)
		if spec, _ := o.Value["spec"].(map[string]any); spec["weight"] != want {
			t.Errorf("the pool %s: %v", name, o.Value)
		}
		if meta, _ := o.Value["metadata"].(map[string]any); len(meta) != 1 {
			t.Errorf("the pool %s has the server's metadata: %v", name, meta)
		}
	}

	// Now as in a cluster of 2023.
	for _, name := range []string{"nodepools.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws", "provisioners.karpenter.sh", "awsnodetemplates.karpenter.k8s.aws"} {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := c.Delete(ctx, crd); err != nil {
			t.Fatal(err)
		}
		if err := gone(ctx, c, crd); err != nil {
			t.Fatal(err)
		}
	}
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{
		legacyCRD("karpenter.sh", "v1beta1", "NodePool", "nodepools"),
		legacyCRD("karpenter.k8s.aws", "v1beta1", "EC2NodeClass", "ec2nodeclasses"),
	} {
		if err := c.Create(ctx, crd); err != nil {
			t.Fatal(err)
		}
	}
	create(t, c, "apiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nmetadata: {name: beta}\nspec: {amiFamily: AL2023, amiSelectorTerms: [{id: ami-1}], role: nodes, subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}]}")
	create(t, c, "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: beta}\nspec: {disruption: {consolidationPolicy: WhenUnderutilized, expireAfter: 24h}, template: {spec: {requirements: [], nodeClassRef: {name: beta}}}}")
	b, notes := imported(t, env.Kubeconfig)
	if got, want := ids(b), "EC2NodeClass/beta NodePool/beta"; got != want {
		t.Fatalf("imported %s, want %s", got, want)
	}
	pool, _ := b.Find("NodePool", "beta")
	policy, _, _ := unstructured.NestedString(pool.Value, "spec", "disruption", "consolidationPolicy")
	expire, _, _ := unstructured.NestedString(pool.Value, "spec", "template", "spec", "expireAfter")
	if policy != "WhenEmptyOrUnderutilized" || expire != "24h" || !strings.Contains(notes, "karpenter.sh/v1beta1 is written as karpenter.sh/v1") {
		t.Errorf("%v\n%s", pool.Value, notes)
	}
}

// gone waits until an object is.
func gone(ctx context.Context, c client.Client, o client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", o.GetName(), err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s is still there", o.GetName()), ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
