package diag

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Sources gives the text of a file that findings refer to. It returns nil for a
// file that it doesn't have.
type Sources func(file string) []byte

// lines gives the lines of files, of which it keeps the last: findings come sorted
// by file, and there may be thousands in one.
type lines struct {
	sources Sources
	file    string
	split   []string
}

// line returns line n of file, counting from 1, without its end.
func (l *lines) line(file string, n int) (string, bool) {
	if l.sources == nil || n < 1 {
		return "", false
	}
	if l.split == nil || l.file != file {
		l.file, l.split = file, strings.Split(string(l.sources(file)), "\n")
	}
	// What follows the last line's end is no line.
	if n > len(l.split) || n == len(l.split) && len(l.split[n-1]) == 0 {
		return "", false
	}
	return strings.TrimRight(l.split[n-1], "\r"), true
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
	src := &lines{sources: o.Sources}
	paint := func(code, text string) string {
		if !o.Color {
			return text
		}
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	for _, f := range l {
		color := map[Severity]string{Error: "1;31", Warning: "1;33", Info: "1;36"}[f.Severity]
		if f.Pos.IsValid() {
			p.printf("%s: ", paint("1", clean(f.Pos.String())))
		}
		p.printf("%s: %s\n", paint(color, fmt.Sprintf("%s[%s]", f.Severity, f.Code)), paint("1", clean(f.Message)))
		margin := p.excerpt(src, f.Pos, func(caret string) string { return paint(color, caret) })
		if about := f.about(); about != "" {
			p.printf("%s = %s\n", margin, clean(about))
		}
		for _, r := range f.Related {
			p.printf("%s = %s: %s\n", margin, clean(r.Pos.String()), clean(r.Message))
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
// margin for what follows. Of a long line it prints what is around the caret.
func (p *printer) excerpt(src *lines, pos Position, paint func(string) string) string {
	line, ok := src.line(pos.File, pos.Line)
	if !ok {
		return " "
	}
	number := fmt.Sprint(pos.Line)
	margin := strings.Repeat(" ", len(number))
	shown, before, marked := window(line, pos.Col)
	p.printf("%s |\n%s | %s\n", margin, number, shown)
	if marked > 0 {
		p.printf("%s | %s%s\n", margin, strings.Repeat(" ", before), paint(strings.Repeat("^", marked)))
	}
	return margin
}

// maxShown is how many characters of a line are shown. Lines that people write are
// shorter; a generated one may hold a whole file, and a finding for each of its fields.
const maxShown = 160

// window returns what to show of a line, how many characters of it come before byte
// col, and how many from there on are to be marked: none if col isn't in the line.
func window(line string, col int) (shown string, before, marked int) {
	from, to := 0, len(line)
	// The characters of a very long line aren't counted, for each of its findings.
	if len(line) > utf8.UTFMax*maxShown || utf8.RuneCountInString(line) > maxShown {
		at := min(max(col-1, 0), len(line))
		// A third of it comes before the caret. Both ends are moved to whole characters.
		from = max(0, at-maxShown/3)
		to = min(len(line), from+maxShown)
		for from > 0 && !utf8.RuneStart(line[from]) {
			from--
		}
		for to < len(line) && !utf8.RuneStart(line[to]) {
			to++
		}
	}
	shown = clean(expandTabs(line[from:to]))
	if from > 0 {
		shown = "…" + shown
		before = 1
	}
	if col >= 1 && col <= len(line)+1 {
		before += utf8.RuneCountInString(expandTabs(line[from : col-1]))
		marked = caretWidth(line[col-1 : max(to, col-1)])
	}
	if to < len(line) {
		shown += "…"
	}
	return shown, before, marked
}

// caretWidth is how long the word is that a finding points to: a quoted string, a name
// or a number.
func caretWidth(rest string) int {
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
	return n
}

// expandTabs shows a tab as four columns, so that the caret below a line stands
// in the same column whatever the terminal does with tabs.
func expandTabs(s string) string { return strings.ReplaceAll(s, "\t", "    ") }

// clean replaces control characters and invisible format characters, such as those that
// turn the direction of writing: the text comes from files that anybody may have written,
// and a terminal obeys escape sequences.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError {
			return '\uFFFD'
		}
		return r
	}, s)
}
