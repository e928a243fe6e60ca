// Package render turns a tree of CUE into the Kubernetes objects that it
// declares, and tells the author of the tree what is wrong with them.
//
// One cluster is one CUE package: the folder clusters/NAME, or the root of a
// tree that holds a single cluster. Its fields nodePools, nodeClasses,
// nodeOverlays and capacityBuffers map a name to the object of that name:
//
//	nodePools: general: spec: template: spec: {...}
//
// [Render] evaluates the package and checks every object against the CUE
// schemas that come with the binary; [Validate] checks the result as an API
// server would; [Check] does both and reports each fault once. [YAML] reads
// plain manifests into the same [Bundle], so that they are checked by the same
// code. Every finding stands at the author's own line, whichever of the three
// found it.
//
// The package reads nothing but the fs.FS that it is given: no disk, no
// network, no clock. It can't be cancelled, since CUE's evaluator can't;
// package isolate runs it on trees that aren't trusted.
package render
