package schemas

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/tools/txtar"
)

// CUEModule is the import path under which authors find the definitions.
const CUEModule = "coppice.dev/schemas"

//go:embed cue/*.cue
var cueFiles embed.FS

// CUE returns the module CUEModule: its packages, with paths relative to the
// module, as in karpenter/v1/nodepool.cue. Authors import
//
//	coppice.dev/schemas/cluster               #Cluster, what a cluster's package yields
//	coppice.dev/schemas/karpenter/v1          #NodePool, #NodeClaim
//	coppice.dev/schemas/karpenter/v1alpha1    #NodeOverlay
//	coppice.dev/schemas/aws/v1                #EC2NodeClass
//	coppice.dev/schemas/autoscaling/v1beta1   #CapacityBuffer
//	coppice.dev/schemas/coppice/v1alpha1      #NodeSource
//	coppice.dev/schemas/meta/v1               #ObjectMeta, shared by them
//
// All definitions are closed, and none of them adds a field that its author left
// out, other than apiVersion, kind and the names that keys give.
func CUE() fs.FS {
	entries, err := cueFiles.ReadDir("cue")
	if err != nil {
		panic(fmt.Sprintf("schemas: embedded CUE: %v", err))
	}
	// On disk the dots in a file's name stand for folders.
	archive := &txtar.Archive{}
	for _, e := range entries {
		text, err := cueFiles.ReadFile("cue/" + e.Name())
		if err != nil {
			panic(fmt.Sprintf("schemas: embedded CUE: %v", err))
		}
		name := strings.ReplaceAll(strings.TrimSuffix(e.Name(), ".cue"), ".", "/") + ".cue"
		archive.Files = append(archive.Files, txtar.File{Name: name, Data: text})
	}
	tree, err := txtar.FS(archive)
	if err != nil {
		panic(fmt.Sprintf("schemas: embedded CUE: %v", err))
	}
	return tree
}
