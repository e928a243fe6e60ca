package diag

import (
	"io"
	"strings"
	"unicode"
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
		if about := strings.TrimSpace(f.Object + " " + f.Path); about != "" {
			p.printf(", %s", codeSpan(about))
		}
		p.printf("  \n  %s", escapeMarkdown(clean(f.Message)))
		if f.Help != "" {
			p.printf("  \n  *%s*", escapeMarkdown(clean(f.Help)))
		}
		for _, r := range f.Related {
			p.printf("  \n  %s: %s", codeSpan(r.Pos.String()), escapeMarkdown(clean(r.Message)))
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

// escapeMarkdown writes text without markup. A backslash doesn't keep forges from
// seeing a mention or an issue, but a word joiner inside does.
func escapeMarkdown(s string) string {
	var b strings.Builder
	last := ' '
	for _, r := range s {
		if strings.ContainsRune("\\`*_{}[]<>()#!|@~", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
		if r == '#' || r == '@' && !unicode.IsLetter(last) && !unicode.IsDigit(last) {
			b.WriteRune('\u2060')
		}
		last = r
	}
	return b.String()
}
