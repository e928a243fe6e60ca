// Package difftest proves that Coppice's CRDs and Karpenter's say the same.
//
// One corpus of objects (each rule's accepted and rejected sides, and seeded
// mutations of them) is judged by both: the verdict, the defaults and the pruned
// fields must be equal, apart from a short list of deliberate differences. The
// same corpus shows where the CUE definitions are stricter than the CRDs.
//
// Karpenter's CRDs are data here: they are read from the module's zip file, which
// "go mod download" fetches. None of Karpenter's code is compiled or run. The
// tests are a module of their own because they need that download.
package difftest
