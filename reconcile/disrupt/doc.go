// Package disrupt takes away nodes that are no longer wanted, within the pools'
// budgets: those that have been empty for long enough. It also marks NodeClaims
// that differ from what their pool and class would launch today.
//
// A decision is a pure function of a snapshot and the time. Before a node goes it
// is tainted and its pods are read once more past every cache, so that a pod bound
// at the last moment keeps its node.
package disrupt
