package plan

import (
	"regexp"
	"strings"
	"sync"
)

// secretShapes match what is a credential by its looks, whatever it stands in: the
// user part of a URL, tokens of GitHub, GitLab and Slack, AWS access keys, private
// keys and JSON web tokens. The first group, if there is one, is kept.
var secretShapes = sync.OnceValue(func() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s@"']+@`),
		regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,})`),
		regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`),
		regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|$)`),
		regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*`),
		regexp.MustCompile(`(?i)\b(authorization[:=]\s*(?:bearer\s+|basic\s+)?)[A-Za-z0-9+/=._~-]{12,}`),
	}
})

// Redact returns a text without what is a credential by its looks. It is the last
// gate of everything that is shown, logged, committed or sent; what is known to be
// secret by its place, as user data is, never gets this far.
func Redact(text string) string {
	for _, shape := range secretShapes() {
		if !shape.MatchString(text) {
			continue
		}
		text = shape.ReplaceAllStringFunc(text, func(m string) string {
			if groups := shape.FindStringSubmatch(m); len(groups) > 1 {
				end := ""
				if strings.HasSuffix(m, "@") {
					end = "@"
				}
				return groups[1] + "***" + end
			}
			return "***"
		})
	}
	return text
}

// lastApplied is where kubectl keeps a copy of the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
