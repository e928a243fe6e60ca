// Package compare measures Coppice beside Karpenter. Both run unmodified, as
// processes of their own, on one sandbox: the same API server, scheduler, EC2,
// prices, pods, NodePool and EC2NodeClass. They take turns, A/B/A/B, each on an
// account and a cluster that were swept clean, each started anew.
//
// What is measured comes from outside of both: time and pods from the API server,
// nodes, dollars and calls from the simulator, processor time and memory from
// /proc. Costs are compared with a lower bound that no packing can beat, which
// internal/pack proves for the same pods, types and prices.
package compare
