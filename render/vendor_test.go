package render

import (
	"os"
	"path/filepath"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/load"

	"github.com/coppice-dev/coppice/schemas"
)

// The shipped example passes what `cue vet -c` does, with the schemas where
// `coppice schemas vendor` puts them.
func TestExamplePassesPlainCUE(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../examples/single-cluster")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "cue.mod", "pkg", filepath.FromSlash(schemas.CUEModule)), schemas.CUE()); err != nil {
		t.Fatal(err)
	}
	inst := load.Instances([]string{"."}, &load.Config{Dir: dir, Env: append(os.Environ(), "CUE_REGISTRY=none")})[0]
	if inst.Err != nil {
		t.Fatal(errors.Details(inst.Err, nil))
	}
	v := cuecontext.New().BuildInstance(inst)
	if err := v.Validate(cue.Concrete(true)); err != nil {
		t.Error(errors.Details(err, nil))
	}
	name, err := v.LookupPath(cue.ParsePath("nodePools.default.metadata.name")).String()
	if err != nil || name != "default" {
		t.Errorf("the pool's name is %q: %v", name, err)
	}
}
