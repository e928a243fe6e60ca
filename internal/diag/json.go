package diag

import (
	"encoding/json"
	"fmt"
	"io"
)

// MarshalText makes severities readable in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Severity) UnmarshalText(text []byte) error {
	for _, known := range []Severity{Error, Warning, Info} {
		if known.String() == string(text) {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("unknown severity %q", text)
}

// report is the JSON document: an object rather than an array, so that fields
// can be added.
type report struct {
	Findings List `json:"findings"`
	Errors   int  `json:"errors"`
	Warnings int  `json:"warnings"`
}

// WriteJSON prints findings as one JSON document with a newline at its end.
func WriteJSON(w io.Writer, l List) error {
	if l == nil {
		l = List{}
	}
	return encode(w, report{Findings: l, Errors: l.Count(Error), Warnings: l.Count(Warning)})
}

func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
