package source

import (
	"cmp"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/internal/plan"
)

// hush takes out of everything that leaves the pass what Secrets hold, and user
// data: a script that runs on every node, into which people put tokens. Findings
// and the API server's messages repeat values that they don't like. Package git
// keeps credentials to itself; what it or a server lets slip ends here. So does
// whatever is a credential by its looks.
func (p *pass) hush() {
	secrets := p.memory.head.secrets()
	for _, s := range p.memory.applied.secrets() {
		if !slices.Contains(secrets, s) {
			secrets = append(secrets, s)
		}
	}
	for _, s := range p.secrets {
		secrets = append(secrets, s, strings.Join(strings.Fields(s), " "))
	}
	for _, part := range []*error{&p.result.change, &p.result.drift, &p.result.report} {
		if *part == nil {
			continue
		}
		if text := (*part).Error(); without(text, secrets) != text {
			f := *classified(*part, reasonApply)
			f.err = errors.New(without(text, secrets))
			*part = &f
		}
	}
	for i := range p.notes {
		p.notes[i].text = without(p.notes[i].text, secrets)
	}
}

// secrets returns the user data of all objects in every form that a message may
// quote it in, the longest first.
func (e evaluated) secrets() []string {
	var out []string
	for _, o := range e.objects {
		spec, _ := o.Value["spec"].(map[string]any)
		text, _ := spec["userData"].(string)
		if strings.TrimSpace(text) == "" {
			continue
		}
		quoted := strconv.Quote(text)
		out = append(out, text, quoted[1:len(quoted)-1], strings.Join(strings.Fields(text), " "))
		if js, err := json.Marshal(text); err == nil {
			out = append(out, string(js[1:len(js)-1]))
		}
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(out)
}

func without(text string, secrets []string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	return plan.Redact(text)
}

// literals matches quoted text.
var literals = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`|'(?:[^'\\\\]|\\\\.)*'")

// unquoted is a message about a field without the values that it quotes, if the
// field is one that may be secret. The object may not have been evaluated, so
// there is nothing to compare with.
func unquoted(field, message string) string {
	if !strings.Contains(field, "userData") {
		return message
	}
	return literals.ReplaceAllString(message, "***")
}
