// Package metrics is every figure that the controllers expose: under Karpenter's
// names, with its labels, where Karpenter has the figure, so that dashboards and
// alerts go on working, and under coppice_ where it has none.
//
// [Set] holds what is counted as it happens. [Watcher] reads what can be read from
// the cluster's state when somebody asks, so that no gauge outlives its node.
// docs/metrics.md is generated from the definitions.
package metrics
