// Package schemas is Coppice's API in one place: the Go types of every group, the
// CRDs that serve them and the CUE definitions that authors write against.
//
// The Go types are the source. "go generate ./schemas" derives the deep copies,
// crds/*.yaml and the CUE files from them; the results are committed and embedded,
// so the binary carries its API with it. The package may not import a controller
// library or anything that reaches out.
package schemas

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

//go:generate go -C gen run .

// AddToScheme makes s know every kind of every group.
func AddToScheme(s *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{
		karpenter.AddToScheme, aws.AddToScheme, coppice.AddToScheme,
	} {
		if err := add(s); err != nil {
			return err
		}
	}
	return nil
}
