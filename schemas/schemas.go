// Package schemas is Coppice's API in one place: the Go types of every group, the
// CRDs that serve them and the CUE definitions that authors write against.
//
// The Go types are the source. "go generate ./schemas" derives the deep copies,
// crds/*.yaml and the CUE files from them; the results are committed and embedded,
// so the binary carries its API with it. The package may not import a controller
// library or anything that reaches out.
package schemas

import (
	"bytes"
	"embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/buffer"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/overlay"
)

//go:generate go -C gen run .

//go:embed crds/*.yaml
var crdFiles embed.FS

// AddToScheme makes s know every kind of every group.
func AddToScheme(s *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{
		aws.AddToScheme, buffer.AddToScheme, coppice.AddToScheme, karpenter.AddToScheme, overlay.AddToScheme,
	} {
		if err := add(s); err != nil {
			return err
		}
	}
	return nil
}

// CRDs returns the definition of every kind, sorted by name. The caller owns the
// result. It panics if the embedded files are damaged.
func CRDs() []*apiextensionsv1.CustomResourceDefinition {
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, text := range crdTexts() {
		c := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, c); err != nil {
			panic(fmt.Sprintf("schemas: embedded CRD: %v", err))
		}
		out = append(out, c)
	}
	return out
}

// CRDYAML returns the definition of every kind as one stream of YAML documents,
// sorted by name.
func CRDYAML() []byte { return bytes.Join(crdTexts(), nil) }

// crdTexts returns the embedded files in the order of their names, which are
// those of the CRDs.
func crdTexts() [][]byte {
	entries, err := crdFiles.ReadDir("crds")
	if err != nil {
		panic(fmt.Sprintf("schemas: embedded CRDs: %v", err))
	}
	var out [][]byte
	for _, e := range entries {
		text, err := crdFiles.ReadFile("crds/" + e.Name())
		if err != nil {
			panic(fmt.Sprintf("schemas: embedded CRDs: %v", err))
		}
		out = append(out, text)
	}
	return out
}
