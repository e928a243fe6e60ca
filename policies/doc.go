// Package policies judges what was rendered by rules: those of the library that comes
// with the binary, and those that authors write in their own tree.
//
// A rule is CUE, a value that says what it is about and finds what breaks it:
//
//	rules: "team-label": {
//		severity: "deny"
//		kind:     "NodePool"
//		title:    "Every pool names its team"
//		why:      "The bill is split by this label."
//		help:     "add spec.template.metadata.labels.team"
//		object: spec: template: metadata: labels: team: string | *""
//		found: [if object.spec.template.metadata.labels.team == "" {
//			path: ["spec", "template", "metadata", "labels"], message: "the pool has no label team"
//		}]
//	}
//
// A rule is given what it declares below object, and nothing else: the declaration can
// hold defaults, and since a rule is a function of what it reads, pools that are alike
// in that are judged once. Below facts it is given what takes more than CUE to know,
// such as how many instance types a pool can have; see [Facts].
//
// A [Checker] reads the rules and the settings of a tree (package coppice at its root,
// and the folder policies) and judges bundles by them; [Ruleset.Test] runs the rules' own
// cases. Rules of a tree are code that nobody vouches for; package isolate runs
// them where trees are evaluated.
//
// The package may not reach out or read a clock.
package policies
