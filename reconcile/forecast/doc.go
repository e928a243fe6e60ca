// Package forecast says what a commit would do to a cluster before it is applied: the
// objects that change, and what becomes of nodes, pods and cost.
//
// It decides nothing by itself. What drifts is judged by the functions that judge it in
// the controllers, and when which node goes is found out by rehearsing the disruption
// controller's own decisions on a picture of the cluster, in a time of their own
// (disrupt.Rehearsal). So budgets, windows, pauses, PodDisruptionBudgets and waves count
// as they will. What can't be known beforehand is assumed and said in Fleet.Basis.
//
// It reads values and returns values: no cluster, clock or cloud is asked.
//
//	p, err := forecast.Plan(forecast.Input{Picture: shot, Head: bundle, Judge: judge})
package forecast
