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
var assignment = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`([A-Za-z0-9_.-]+)["']?(\s?=\s?|:\s?)("[^"\n]*"?|'[^'\n]*'?|[^\s"',;&=<>(){}\[\]][^\s"',;&<>(){}\[\]]*)`)
})

// confidential matches the last word of a name of which the value is a credential, and
// confidentialPair its last two.
var (
	confidential = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:pwd|pass|.*(?:password|passwd|passphrase|passcode|secret|token|credential|apikey|dbpass|userpass))s?[0-9]*$`)
	})
	confidentialPair = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:api|access|private|secret|auth|signing|encryption) keys?[0-9]*$`)
	})
)

// plainValue matches what fields with such names hold that isn't secret.
var plainValue = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(?:|[0-9.]{1,4}|true|false|yes|no|on|off|none|null|required|optional|enabled|disabled|\*+.*|[$%<{].*)(?::[a-z]*)?$`)
})

// Confidential reports whether a name, as of a tag, an annotation or a variable, says that
// its value is a credential. The word that says so has to be the last: passwordPolicy and
// secretName are about one. httpTokens of an EC2NodeClass is a switch.
func Confidential(name string) bool {
	var words []string
	start := 0
	for i, r := range name + " " {
		upper := r >= 'A' && r <= 'Z'
		letter := upper || r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		lower := i > 0 && name[i-1] >= 'a' && name[i-1] <= 'z'
		if !letter || upper && lower {
			if i > start {
				words = append(words, strings.ToLower(name[start:i]))
			}
			if start = i; !letter {
				start = i + len(string(r))
			}
		}
	}
	for len(words) > 1 && strings.Trim(words[len(words)-1], "0123456789") == "" {
		words = words[:len(words)-1]
	}
	n := len(words)
	switch {
	case n == 0 || n > 1 && words[n-2] == "http" && words[n-1] == "tokens":
		return false
	case confidential().MatchString(words[n-1]):
		return true
	}
	return n > 1 && confidentialPair().MatchString(words[n-2]+" "+words[n-1])
}

// assigned hides the values of names that are confidential. What follows a colon may be
// the rest of a sentence: it has to be quoted, or be all that is left of its line.
func assigned(text string) string {
	if !strings.ContainsAny(text, "=:") {
		return text
	}
	var b strings.Builder
	for {
		at := assignment().FindStringSubmatchIndex(text)
		if at == nil {
			return b.String() + text
		}
		name, sep, value := text[at[2]:at[3]], text[at[4]:at[5]], text[at[6]:at[7]]
		quote := value[:1]
		if quote != `"` && quote != "'" {
			quote = ""
		}
		bare := strings.Trim(value, `"'`)
		rest, _, _ := strings.Cut(text[at[7]:], "\n")
		b.WriteString(text[:at[6]])
		switch {
		case plainValue().MatchString(bare) || !Confidential(name), sep[0] == ':' && quote == "" && (len(bare) < 6 || strings.TrimSpace(rest) != ""):
			text = text[at[6]:] // the value may begin with a name
		default:
			b.WriteString(quote + "***" + quote)
			text = text[at[7]:]
		}
	}
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
	return assigned(text)
}

// lastApplied is where kubectl keeps a copy of the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
