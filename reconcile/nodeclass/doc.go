// Package nodeclass keeps the status of EC2NodeClasses true and cleans up after them.
//
// A reconcile asks the cloud what the class's selectors mean now and writes the
// answer into the status with one patch, or none if it says what it said. It stamps
// the class with the hash that drift is measured by, and tells of each condition
// that changed by an event. A class that is deleted stays until no NodeClaim refers
// to it; then what was made for it in the cloud goes, and the finalizer with it.
//
// Beside it, the observer tells the cloud what nodes turned out to have, which is
// more than can be promised before the first of a type has been seen.
//
// Finding things in the cloud, and judging them, is internal/cloud's.
package nodeclass
