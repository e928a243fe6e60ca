// Package stack puts a sandbox together: the control plane, the EC2 simulator,
// the Git server and the kubelets of the simulator's machines, all in this
// process and on 127.0.0.1.
//
// What joins the parts is what joins them in a real account: a machine becomes a
// Node through its user data, and the Node goes because its machine went. A
// process can hold one stack at a time, and only one in its life.
package stack
