package source

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/schemas/coppice"
)

// installFlux makes the API server serve Flux's kinds. What is in them is of no
// concern to it.
func installFlux(t *testing.T, w *world) {
	t.Helper()
	open := true
	for _, gvk := range fluxKinds() {
		plural := strings.ToLower(strings.TrimSuffix(gvk.Kind, "y")) + "ies"
		crd := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + "." + gvk.Group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: gvk.Group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: gvk.Kind, ListKind: gvk.Kind + "List", Plural: plural, Singular: strings.ToLower(gvk.Kind)},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: gvk.Version, Served: true, Storage: true,
					Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &open}},
					Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				}},
			},
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		if err := w.kube.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	for _, gvk := range fluxKinds() {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gvk)
			err := w.kube.List(t.Context(), list)
			if err == nil {
				break
			}
			if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) || time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
}

// archive packs files; names that end in @ are links to their content.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		head := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg}
		if link, ok := strings.CutSuffix(name, "@"); ok {
			head = &tar.Header{Name: link, Linkname: files[name], Typeflag: tar.TypeSymlink}
		}
		if err := w.WriteHeader(head); err != nil {
			t.Fatal(err)
		}
		if head.Typeflag == tar.TypeReg {
			_, _ = w.Write([]byte(files[name]))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// testArtifact takes what Flux fetched, and nothing that isn't what it announced.
func testArtifact(t *testing.T, w *world) {
	var served []byte
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(served) }))
	defer files.Close()
	p := w.place(t, "artifact", func(s *coppice.NodeSource) {
		s.Spec.URL, s.Spec.SecretRef, s.Spec.WriteBack = "", nil, nil
		s.Spec.SourceRef = &coppice.ArtifactReference{Kind: "GitRepository", Name: "fleet"}
		s.Spec.Path = "deploy"
	})
	if c := want(t, p.pass(), conditionReady, metav1.ConditionFalse, reasonNoKind); !strings.Contains(c.Message, "source-controller") {
		t.Error(c.Message)
	}
	installFlux(t, w)
	p.restart()
	if c := want(t, p.pass(), conditionStalled, metav1.ConditionTrue, reasonRepository); !strings.Contains(c.Message, `no GitRepository "fleet"`) {
		t.Error(c.Message)
	}
	obj := fluxObject(fluxKind("GitRepository"))
	obj.SetNamespace(p.name)
	obj.SetName("fleet")
	p.create(obj)
	want(t, p.pass(), conditionReconciling, metav1.ConditionTrue, reasonArtifact)

	announce := func(obj *unstructured.Unstructured, revision, digest string) {
		t.Helper()
		if err := w.kube.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			t.Fatal(err)
		}
		obj.Object["status"] = map[string]any{"artifact": map[string]any{"url": files.URL + "/" + digest + ".tar.gz", "digest": digest, "revision": revision}}
		if err := w.kube.Status().Update(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	pack := func(cpu int, more map[string]string) []byte {
		all := map[string]string{"README.md": "hello"}
		for name, text := range p.tree(map[string]int{"a": cpu}) {
			all["deploy/"+name] = text
		}
		for name, text := range more {
			all[name] = text
		}
		return archive(t, all)
	}
	rev := func(n int) string { return fmt.Sprintf("main@sha1:%040x", n) }
	served = pack(1, nil)
	announce(obj, rev(1), digest(served))
	src := p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "1" || src.Status.LastAppliedRevision != rev(1) {
		t.Fatalf("a has %s, applied %s", p.cpu("a"), src.Status.LastAppliedRevision)
	}
	for i, tc := range []struct {
		why    string
		more   map[string]string
		digest string
		reason string
		say    string
	}{
		{"a link", map[string]string{"deploy/x.cue@": "/etc/passwd"}, "", reasonRepository, `"deploy/x.cue" (link)`},
		{"a path that leads out", map[string]string{"deploy/../../etc/x": "x"}, "", reasonRepository, "malformed name"},
		{"an absolute path", map[string]string{"/etc/x": "x"}, "", reasonRepository, "malformed name"},
		{"no digest", nil, "none", reasonRepository, "no digest"},
		{"too much of it", map[string]string{"deploy/zero": strings.Repeat("\x00", 65<<20)}, "", reasonRepository, "too large"},
	} {
		served = pack(2, tc.more)
		sum := tc.digest
		switch sum {
		case "":
			sum = digest(served)
		case "none":
			sum = ""
		}
		announce(obj, rev(10+i), sum)
		// A new process couldn't tell what was applied, as Flux no longer has it.
		c := want(t, p.once(), conditionStalled, metav1.ConditionTrue, tc.reason)
		if !strings.Contains(c.Message, tc.say) {
			t.Errorf("%s: %s", tc.why, c.Message)
		}
		if p.cpu("a") != "1" {
			t.Errorf("%s: it is applied", tc.why)
		}
	}
	served = pack(3, nil)
	announce(obj, rev(20), digest([]byte("something else")))
	for range patience {
		src = p.once()
	}
	if c := want(t, src, conditionReady, metav1.ConditionFalse, reasonFetch); !strings.Contains(c.Message, "digest") {
		t.Error(c.Message)
	}
	announce(obj, rev(20), digest(served))
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "3" {
		t.Errorf("a has %s", p.cpu("a"))
	}
	// The same revision with other files (spec.ignore changed) is another artifact.
	served = pack(4, nil)
	announce(obj, rev(20), digest(served))
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "4" {
		t.Errorf("another artifact of the revision isn't taken: %s", p.cpu("a"))
	}

	oci := fluxObject(fluxKind("OCIRepository"))
	oci.SetNamespace(p.name)
	oci.SetName("fleet")
	p.create(oci)
	served = pack(5, nil)
	announce(oci, "latest@"+digest([]byte("manifest")), digest(served))
	p.spec(func(s *coppice.NodeSource) { s.Spec.SourceRef.Kind = "OCIRepository" })
	src = p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "5" || src.Status.LastAppliedRevision != "latest@"+digest([]byte("manifest")) {
		t.Errorf("a has %s, applied %s", p.cpu("a"), src.Status.LastAppliedRevision)
	}
	if got := p.r.sourcesFrom(t.Context(), oci); len(got) != 1 || got[0].Namespace != p.name {
		t.Errorf("the artifact's source isn't found: %v", got)
	}
	if got := p.r.sourcesFrom(t.Context(), obj); len(got) != 0 {
		t.Errorf("a source is found that refers to another: %v", got)
	}
	// Both a repository and an artifact, or neither, isn't a source.
	for _, edit := range []func(*coppice.NodeSource){
		func(s *coppice.NodeSource) { s.Spec.URL = p.remote.URL },
		func(s *coppice.NodeSource) { s.Spec.SourceRef = nil },
		func(s *coppice.NodeSource) { s.Spec.WriteBack = &coppice.WriteBack{} },
	} {
		src := p.source()
		edit(src)
		if err := w.kube.Update(t.Context(), src); !apierrors.IsInvalid(err) {
			t.Errorf("the API server takes it: %v", err)
		}
	}
}
