package diag

import (
	"io"
	"strings"
)

// WriteMarkdown prints findings as a Markdown section, for a pull request's
// comment: a line that counts them and a list. Authored text is always inside
// code spans or escaped, so that it can neither mention people nor draw links.
func WriteMarkdown(w io.Writer, l List) error {
	p := &printer{w: w}
	if len(l) == 0 {
		p.printf("**No findings.**\n")
		return p.err
	}
	p.printf("**%s**\n\n", l.Summary())
	for _, f := range l {
		p.printf("- **%s** %s", f.Severity, codeSpan(f.Code))
		if f.Pos.IsValid() {
			p.printf(" at %s", codeSpan(f.Pos.String()))
		}
		if about := f.about(); about != "" {
			p.printf(", %s", codeSpan(about))
		}
		p.printf("  \n  %s", Inert(clean(f.Message)))
		if f.Help != "" {
			p.printf("  \n  *%s*", Inert(clean(f.Help)))
		}
		for _, r := range f.Related {
			p.printf("  \n  %s: %s", codeSpan(r.Pos.String()), Inert(clean(r.Message)))
		}
		p.printf("\n")
	}
	return p.err
}

// codeSpan quotes s as code, whatever backticks it has.
func codeSpan(s string) string {
	s = clean(s)
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		return fence + " " + s + " " + fence
	}
	return fence + s + fence
}

// Inert writes text of one line that somebody else may have written as Markdown that is
// that text and nothing else: no markup, and no link, mention or issue. A backslash
// doesn't keep forges from seeing those, but a word joiner inside does. Before a space and
// in a time of day nothing begins, so sentences of ours stay as they are.
func Inert(s string) string {
	var b strings.Builder
	text := []rune(s)
	at := func(i int) rune {
		if i < 0 || i >= len(text) {
			return ' '
		}
		return text[i]
	}
	for i, r := range text {
		switch {
		case r == '<':
			b.WriteString("&lt;")
		case r == '&':
			b.WriteString("&amp;")
		case strings.ContainsRune("\\`*_{}[]()>#+!|~=^", r):
			b.WriteString("\\" + string(r))
		default:
			b.WriteRune(r)
		}
		time := r == ':' && isDigit(at(i-1)) && isDigit(at(i+1))
		if strings.ContainsRune("@#:", r) && at(i+1) != ' ' && !time {
			b.WriteRune('\u2060')
		}
	}
	return strings.ReplaceAll(b.String(), "www.", "www\u2060.")
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }
