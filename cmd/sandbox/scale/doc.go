// Package scale grows a sandbox to many nodes and pods and measures what the controller
// takes for it: how soon nodes are initialized that come at once, processor time and
// memory under load and at rest.
//
// The controller is the coppice program in a process of its own, as in a cluster. The
// nodes are the sandbox's: a kubelet that plays a real one's part towards the API server
// each, but runs nothing.
package scale
