// Command gen derives everything that schemas serves from the Go types beside it:
// deep copies, CRDs and CUE definitions.
//
// It is a module of its own, so that what it needs to read Go source never
// becomes a dependency of the product. Run it with "go generate ./schemas".
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-tools/pkg/deepcopy"
	"sigs.k8s.io/controller-tools/pkg/genall"
	"sigs.k8s.io/controller-tools/pkg/loader"
)

// groups are the folders under schemas that hold one API group version each.
func groups() []string {
	return []string{"aws", "buffer", "coppice", "karpenter", "overlay"}
}

func main() {
	if err := run(".."); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run generates into the folder dir, which holds the packages of groups.
func run(dir string) error {
	// The types belong to the module around this one: it decides their dependencies.
	if err := os.Chdir(dir); err != nil {
		return err
	}
	var roots []string
	for _, g := range groups() {
		roots = append(roots, "./"+g)
	}
	if err := deepCopies(roots); err != nil {
		return err
	}
	packages, err := loader.LoadRoots(roots...)
	if err != nil {
		return fmt.Errorf("load %v: %w", roots, err)
	}
	crds, err := definitions(packages)
	if err != nil {
		return err
	}
	for _, c := range crds {
		text, err := yamlOf(c)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join("crds", c.Name+".yaml"), text, 0o644); err != nil {
			return err
		}
	}
	if err := cueDefinitions(crds, "cue"); err != nil {
		return err
	}
	return formatCUE("cue")
}

func deepCopies(roots []string) error {
	var g genall.Generator = deepcopy.Generator{}
	rt, err := genall.Generators{&g}.ForRoots(roots...)
	if err != nil {
		return fmt.Errorf("load %v: %w", roots, err)
	}
	rt.OutputRules.Default = genall.OutputArtifacts{}
	if rt.Run() {
		return fmt.Errorf("deep copies of %v could not be generated", roots)
	}
	return nil
}
