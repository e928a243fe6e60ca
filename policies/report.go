package policies

import (
	"slices"

	"github.com/coppice-dev/coppice/internal/diag"
)

// Report tells of the rules of a tree without judging anything by them.
type Report struct {
	Rules []Rule `json:"rules"`
	// Applied maps a cluster and a rule to the severity with which the rule applies there.
	Applied map[string]map[string]string `json:"applied"`
	// Cases is how many cases ran: those of the tree's own rules, or of the library if the
	// tree has none.
	Cases int `json:"cases"`
	// Faults are what is wrong with the rules and settings, Findings also which cases
	// don't come out as they should.
	Faults   diag.List `json:"faults"`
	Findings diag.List `json:"findings"`
}

// Describe describes the rules, of those that findings are of.
func (c *Checker) Describe(found diag.List) map[string]diag.Rule {
	out := map[string]diag.Rule{}
	for _, f := range found {
		if Codes()[f.Code] != "" || out[f.Code] != (diag.Rule{}) {
			continue
		}
		c.load() // Somebody found it by the rule, so that this doesn't read anything.
		for _, r := range slices.Concat(c.library, c.own) {
			if r.ID == f.Code {
				out[f.Code] = diag.Rule{Title: r.Title, Why: r.Why, Help: r.Help}
			}
		}
	}
	return out
}

// Report describes the rules that there are for the clusters of the tree.
func (c *Checker) Report(clusters []string) *Report {
	out := &Report{Applied: map[string]map[string]string{}}
	c.load()
	for i, cluster := range clusters {
		s := c.Ruleset(cluster)
		out.Applied[cluster] = map[string]string{}
		if len(s.rules) == 0 {
			for _, r := range c.library {
				s.rules[r.ID] = r
			}
		}
		for _, r := range s.Rules() {
			if level := s.Applies(r.ID); level != "" {
				out.Applied[cluster][r.ID] = level
			}
			if i == 0 {
				out.Rules = append(out.Rules, *r)
			}
		}
		out.Faults = append(out.Faults, s.findings...)
		if i == 0 {
			out.Cases, out.Findings = s.Test()
		}
	}
	out.Faults = out.Faults.Sorted()
	out.Findings = append(out.Findings, out.Faults...).Sorted()
	return out
}
