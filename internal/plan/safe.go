package plan

import (
	"fmt"
	"html"
	"strings"
	"unicode"

	"github.com/coppice-dev/coppice/internal/diag"
)

// clean makes text from outside fit for one line of a terminal or a document: what
// isn't printed, moves the cursor or turns the direction of writing around is written
// as its code point. Names and values come from anybody who can open a pull request.
func clean(s string) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return r != ' ' && !unicode.IsPrint(r) || r == unicode.ReplacementChar }

// cleanLines is clean for text of several lines.
func cleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = clean(strings.ReplaceAll(l, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// clip shortens a line to about n bytes, at the border of a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}

// code writes text as a code span, in which Markdown knows no markup, no links and no
// mentions. The span is delimited by more backticks than the text has in a row.
func code(s string) string {
	s = clip(clean(s), 300)
	if s == "" {
		return ""
	}
	ticks := strings.Repeat("`", longest(s, '`')+1)
	if s[0] == '`' || s[len(s)-1] == '`' || s[0] == ' ' && s[len(s)-1] == ' ' {
		s = " " + s + " "
	}
	return ticks + s + ticks
}

// plain writes a sentence of ours, in which names of others may stand, as text that is
// neither markup nor a link nor a mention.
func plain(s string) string { return diag.Inert(clip(clean(s), 600)) }

// cell is code for a table, whose cells end at a bar, escaped or in code or not,
// depending on who reads it.
func cell(s string) string { return code(strings.ReplaceAll(s, "|", "¦")) }

// raw writes text for a block of HTML, where Markdown has no say.
func raw(s string) string { return "<code>" + html.EscapeString(clip(clean(s), 300)) + "</code>" }

// fence writes text as a fenced block that nothing in it can end.
func fence(language, text string) string {
	ticks := strings.Repeat("`", max(3, longest(text, '`')+1))
	return ticks + language + "\n" + strings.TrimSuffix(text, "\n") + "\n" + ticks + "\n"
}

// longest is the length of the longest row of a character.
func longest(s string, c byte) int {
	most, row := 0, 0
	for i := range len(s) {
		if s[i] != c {
			row = 0
			continue
		}
		row++
		most = max(most, row)
	}
	return most
}
