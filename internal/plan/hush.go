package plan

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/internal/diag"
)

// UserData returns the user data of objects in every form that a message may quote it
// in, the longest first: a script that runs on every node, into which people put
// tokens.
func UserData(objects ...map[string]any) []string {
	var out []string
	for _, o := range objects {
		spec, _ := o["spec"].(map[string]any)
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

// Hide returns a text without secrets that are known, and without what Redact takes
// away.
func Hide(text string, secrets []string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	return Redact(text)
}

// literals matches quoted text, also if its end is cut off.
var literals = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*(?:\"|$)|`[^`]*`|'(?:[^'\\\\]|\\\\.)*'")

// Unquoted is a message about a field without the values that it quotes, if the field
// is one that may be secret. The object may not have been evaluated, so there is
// nothing to compare with.
func Unquoted(field, message string) string {
	if !strings.Contains(field, "userData") {
		return message
	}
	return literals.ReplaceAllString(message, "***")
}

// HideFindings returns findings that can be shown to whoever reads a pull request or a
// log: what they say has no secrets, known or by their looks, and what they say of user
// data quotes nothing.
func HideFindings(l diag.List, secrets []string) diag.List {
	out := slices.Clone(l)
	for i := range out {
		f := &out[i]
		field := f.Path
		if strings.Contains(f.Message, "userData") {
			field = "userData"
		}
		hide := func(s string) string { return Hide(Unquoted(field, s), secrets) }
		f.Message, f.Help = hide(f.Message), hide(f.Help)
		f.Related = slices.Clone(f.Related)
		for j := range f.Related {
			f.Related[j].Message = hide(f.Related[j].Message)
		}
	}
	return out
}
