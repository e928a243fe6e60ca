package source

import (
	"errors"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/plan"
)

// hush takes out of everything that leaves the pass what Secrets hold, and user
// data: a script that runs on every node, into which people put tokens. Findings
// and the API server's messages repeat values that they don't like. Package git
// keeps credentials to itself; what it or a server lets slip ends here. So does
// whatever is a credential by its looks.
func (p *pass) hush() {
	secrets := p.known()
	for _, part := range []*error{&p.result.change, &p.result.drift, &p.result.report, &p.result.adopt} {
		if *part == nil {
			continue
		}
		if text := (*part).Error(); plan.Hide(text, secrets) != text {
			f := *classified(*part, reasonApply)
			f.err = errors.New(plan.Hide(text, secrets))
			*part = &f
		}
	}
	for i := range p.notes {
		p.notes[i].text = plan.Hide(p.notes[i].text, secrets)
	}
}

// known are the values that must not leave the process.
func (p *pass) known() []string {
	secrets := p.memory.head.secrets()
	for _, s := range p.memory.applied.secrets() {
		if !slices.Contains(secrets, s) {
			secrets = append(secrets, s)
		}
	}
	for _, s := range p.secrets {
		secrets = append(secrets, s, strings.Join(strings.Fields(s), " "))
	}
	return secrets
}

// secrets returns the user data of all objects, as plan.UserData does.
func (e evaluated) secrets() []string {
	var out []map[string]any
	for _, o := range e.objects {
		out = append(out, o.Value)
	}
	return plan.UserData(out...)
}
