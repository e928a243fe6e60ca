package diag

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Sources gives the text of a file that findings refer to. It returns nil for a
// file that it doesn't have.
type Sources func(file string) []byte

// line returns line n of file, counting from 1, without its end.
func (s Sources) line(file string, n int) (string, bool) {
	if s == nil || n < 1 {
		return "", false
	}
	text := s(file)
	for range n - 1 {
		_, rest, ok := bytes.Cut(text, []byte("\n"))
		if !ok {
			return "", false
		}
		text = rest
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	if len(line) == 0 && len(text) == 0 {
		return "", false
	}
	return strings.TrimRight(string(line), "\r"), true
}

// TextOptions say how findings are printed for a terminal or a log.
type TextOptions struct {
	// Sources shows the source line of each finding; nil leaves it out.
	Sources Sources
	// Color marks severities with ANSI colours.
	Color bool
}

// WriteText prints findings for people: one paragraph each, with the source line
// and a caret below the place, then a line that counts them.
//
//	clusters/prod/pools.cue:12:3: error[SCH001]: spec has no field wieght
//	   |
//	12 |   wieght: 10
//	   |   ^
//	   = NodePool/general spec.wieght
//	   = help: did you mean weight?
func WriteText(w io.Writer, l List, o TextOptions) error {
	p := &printer{w: w}
	paint := func(code, text string) string {
		if !o.Color {
			return text
		}
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	for _, f := range l {
		color := map[Severity]string{Error: "1;31", Warning: "1;33", Info: "1;36"}[f.Severity]
		if f.Pos.IsValid() {
			p.printf("%s: ", paint("1", f.Pos.String()))
		}
		p.printf("%s: %s\n", paint(color, fmt.Sprintf("%s[%s]", f.Severity, f.Code)), paint("1", clean(f.Message)))
		margin := p.excerpt(o.Sources, f.Pos, func(caret string) string { return paint(color, caret) })
		if about := strings.TrimSpace(f.Object + " " + f.Path); about != "" {
			p.printf("%s = %s\n", margin, clean(about))
		}
		for _, r := range f.Related {
			p.printf("%s = %s: %s\n", margin, r.Pos, clean(r.Message))
		}
		if f.Help != "" {
			p.printf("%s = %s %s\n", margin, paint("1;36", "help:"), clean(f.Help))
		}
		p.printf("\n")
	}
	p.printf("%s\n", l.Summary())
	return p.err
}

// Summary counts the findings, as in "2 errors, 1 warning".
func (l List) Summary() string {
	var parts []string
	for _, s := range []Severity{Error, Warning, Info} {
		switch n := l.Count(s); {
		case n == 0:
		case n == 1 || s == Info:
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		default:
			parts = append(parts, fmt.Sprintf("%d %ss", n, s))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "no findings")
}

// printer remembers the first error of a writer.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// excerpt prints the line that pos stands in, with a caret, and returns the
// margin for what follows.
func (p *printer) excerpt(src Sources, pos Position, paint func(string) string) string {
	line, ok := src.line(pos.File, pos.Line)
	if !ok {
		return " "
	}
	number := fmt.Sprint(pos.Line)
	margin := strings.Repeat(" ", len(number))
	p.printf("%s |\n%s | %s\n", margin, number, clean(expandTabs(line)))
	if pos.Col >= 1 && pos.Col <= len(line)+1 {
		before := expandTabs(line[:pos.Col-1])
		p.printf("%s | %s%s\n", margin, strings.Repeat(" ", utf8.RuneCountInString(before)), paint(carets(line[pos.Col-1:])))
	}
	return margin
}

// carets marks the word that a finding points to: a quoted string, a name or number.
func carets(rest string) string {
	n := 1
	if strings.HasPrefix(rest, `"`) {
		if end := strings.Index(rest[1:], `"`); end >= 0 {
			n = utf8.RuneCountInString(rest[:end+2])
		}
	} else {
		word := strings.IndexFunc(rest, func(r rune) bool {
			return r != '_' && r != '#' && r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		})
		if word < 0 {
			word = len(rest)
		}
		n = max(1, len(strings.TrimRight(rest[:word], ".-")))
	}
	return strings.Repeat("^", n)
}

// expandTabs shows a tab as four columns, so that the caret below a line stands
// in the same column whatever the terminal does with tabs.
func expandTabs(s string) string { return strings.ReplaceAll(s, "\t", "    ") }

// clean replaces control characters: the text comes from files that anybody
// may have written, and a terminal obeys escape sequences.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == utf8.RuneError {
			return '\uFFFD'
		}
		return r
	}, s)
}
