// Package consolidate searches a fleet for nodes that can be taken away or replaced
// by cheaper ones.
//
// A [Trial] tries changes on a [pack.State] and takes them back. [Trial.Search] keeps
// those that save enough for what they disturb and returns them as [Command]s that
// don't depend on each other. It goes from the surest gain to the dearest: nodes whose pods fit on others, in the
// order of dollars saved per pod moved; then sets of nodes that fewer or smaller ones
// would do for, the most wasteful first.
//
// Three things bound churn. A command saves at least what its pods' moves are worth.
// Each lowers the fleet's price, so that a fleet left alone comes to rest. And the
// commands of one search move no pod twice.
//
// The package knows no Kubernetes, reads no clock and draws no random number.
package consolidate
