// Package provision turns pods that fit nowhere into NodeClaims, and keeps the
// NodePools' status.
//
// One loop plans: it waits for a batch of pods to be complete, takes a snapshot,
// asks internal/pack, creates the claims and says in events what it decided for
// each pod. It launches nothing: a claim is an object first, and the lifecycle
// controller makes a machine of it.
package provision
