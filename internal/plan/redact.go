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

// assignment matches a name and its value, as in dbPassword=x, --token=x or "secret": "x".
// A name with a colon may begin a sentence, so its value has to be quoted or stand alone.
var assignment = regexp.MustCompile(`([A-Za-z0-9_.-]+)(["']?)(\s?=\s?|:\s?)("[^"\n]*"|'[^'\n]*'|[^\s"',;&<>(){}\[\]]+)`)

// confidential words are those after which a value is a credential, alone or as the end of
// a name without a division.
var confidential = []string{"password", "passwd", "passphrase", "passcode", "secret", "token", "credential", "apikey", "dbpass", "userpass"}

// confidentialPairs are two words that make one.
var confidentialPairs = []string{"api key", "access key", "private key", "secret key", "auth key", "signing key", "encryption key"}

// plainValues are what fields with such names hold that aren't secrets: switches, as
// httpTokens of an EC2NodeClass is one.
var plainValues = regexp.MustCompile(`(?i)^(|[0-9.]{1,4}|true|false|yes|no|on|off|none|null|nil|required|optional|enabled|disabled|default|auto|string|bytes|_|\*+.*|[$%<{].*)$`)

// Confidential reports whether a name, as of a tag, an annotation or a variable, says that
// its value is a credential. What follows the word tells of it, as in passwordPolicy or
// secretName, so the word has to be the last; a number may follow.
func Confidential(name string) bool {
	words := strings.Fields(strings.ToLower(wordBreak.ReplaceAllString(name, "$1 $2")))
	for len(words) > 1 && strings.Trim(words[len(words)-1], "0123456789") == "" {
		words = words[:len(words)-1]
	}
	if len(words) == 0 {
		return false
	}
	last := strings.TrimSuffix(strings.TrimRight(words[len(words)-1], "0123456789"), "s")
	if last == "pwd" || last == "pas" && strings.HasSuffix(words[len(words)-1], "pass") {
		return true
	}
	for _, w := range confidential {
		if strings.HasSuffix(last, w) || w+"s" == words[len(words)-1] || strings.HasSuffix(words[len(words)-1], w) {
			return true
		}
	}
	return len(words) > 1 && slices.Contains(confidentialPairs, words[len(words)-2]+" "+last)
}

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
