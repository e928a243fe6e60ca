// Package cluster keeps a watch-fed copy of what scheduling and disruption need
// to know, and encodes it for internal/pack.
//
// State is fed by Watch from the manager's informers; nothing here asks the API
// server or changes it. A Model follows a State in the packing core's terms, at a
// cost of what has changed. A pass syncs the model, decides on it, and acts; what it
// creates it hands back with State.Expect, so that the next pass doesn't create it
// again before the watch has delivered it. Snapshot lists all machines for decisions
// that look at each of them.
//
// A Node joins the NodeClaim that asked for a machine with the Kubernetes Node
// that the machine became; either half may be missing.
package cluster
