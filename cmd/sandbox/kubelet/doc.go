// Package kubelet plays the machines of a cluster: it turns a virtual machine
// that runs into a Node, by what the machine's user data says and nothing else,
// runs the pods that are bound to it, and keeps it alive with heartbeats until
// the machine goes.
//
// What a real machine would not do is not done: user data for another cluster,
// with another certificate authority, or that its family's agent would refuse,
// gives no Node. Why is logged and kept, see [Fleet.Failures].
//
// The package also plays the cloud controller manager, which labels new Nodes
// with what the cloud knows and deletes Nodes whose machine is gone. No container
// runs: a pod is said to run once its node is ready, and to have ended when it is
// deleted.
package kubelet
