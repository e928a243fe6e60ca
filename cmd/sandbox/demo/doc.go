// Package demo plays Coppice's main story from a commit to a running node and
// back, against a sandbox in this process and the real coppice program as a
// child process, and checks every step of it.
//
// Nothing is told to Coppice but through Git and the Kubernetes API. Each step has
// a limit; the first that isn't met ends the demo with what was last seen and the
// end of the controller's log.
package demo
