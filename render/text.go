package render

import (
	"bytes"
	"unicode/utf8"

	"github.com/coppice-dev/coppice/internal/diag"
)

// textFault reports what keeps a file from being text in UTF-8, which CUE and YAML
// are written in: once for the file, at the first such byte. Parsers report each of
// the bytes, or take them for something else. The position of a file in another
// encoding has no line.
func textFault(file string, text []byte, code string) (diag.Finding, bool) {
	f := diag.Finding{Code: code, Pos: diag.Position{File: file}}
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		f.Message, f.Help = "the file is encoded in UTF-16", "save it in UTF-8"
		return f, true
	}
	at := bytes.IndexByte(text, 0)
	f.Message, f.Help = "the file holds a NUL byte, so it isn't text", "save it as plain text in UTF-8"
	for i := 0; !utf8.Valid(text) && i < len(text) && (at < 0 || i < at); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			f.Message, f.Help = "the file isn't valid UTF-8", "save it in UTF-8"
			at = i
		}
		i += size
	}
	if at < 0 {
		return diag.Finding{}, false
	}
	f.Pos.Line = 1 + bytes.Count(text[:at], []byte("\n"))
	f.Pos.Col = at - bytes.LastIndexByte(text[:at], '\n')
	return f, true
}
