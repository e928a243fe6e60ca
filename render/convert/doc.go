// Package convert turns what people have into CUE: objects of Karpenter's API in any of
// its versions, parts of such objects, EKS managed node groups and Auto Scaling groups.
//
// [Convert] reads documents and returns objects of today's API, and notes: each change
// of meaning is a finding at the line that it concerns. What today's API can't express
// is an error, unless [Options.AllowLossy] says to leave it out. [Result.CUE] writes
// the objects as a package, what pools have in common as a definition.
//
// The package works on text. It may not reach out or read a clock.
package convert
