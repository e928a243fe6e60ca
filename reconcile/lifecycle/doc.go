// Package lifecycle carries a NodeClaim from the wish for a machine to the machine
// and, when the claim is deleted, back to nothing.
//
// A reconcile reads the claim, its Node and its instance, takes the one step that
// is due (launch, register, initialize; or taint, drain, terminate) and writes the
// claim's status once. Nothing waits inside a reconcile: a step that has to wait
// says for how long. The claim's UID is the launch token and a tag of the
// instance, so that a crash between the launch and the write of its outcome
// neither leaks an instance nor starts a second one.
//
// The package decides only with pure functions (registration, initialized, drain
// order); it doesn't choose what to launch or whom to disrupt.
package lifecycle
