package diag

import (
	"fmt"
	"io"
	"strings"
)

// WriteGitHub prints findings as workflow commands, which GitHub Actions shows
// as annotations at the lines of a pull request.
func WriteGitHub(w io.Writer, l List) error {
	for _, f := range l {
		level := map[Severity]string{Error: "error", Warning: "warning", Info: "notice"}[f.Severity]
		props := []string{}
		if f.Pos.IsValid() {
			props = append(props, "file="+clean(escapeProperty(f.Pos.File)))
			if f.Pos.Line > 0 {
				props = append(props, fmt.Sprintf("line=%d", f.Pos.Line))
			}
			if f.Pos.Col > 0 {
				props = append(props, fmt.Sprintf("col=%d", f.Pos.Col))
			}
		}
		props = append(props, "title="+escapeProperty(clean(strings.TrimSpace(f.Code+" "+f.Object))))
		if _, err := fmt.Fprintf(w, "::%s %s::%s\n", level, strings.Join(props, ","), escapeData(clean(sentence(f)))); err != nil {
			return err
		}
	}
	return nil
}

// escapeData and escapeProperty follow the workflow commands' own escapes: a
// line break or a double colon in authored text must not begin another command.
func escapeData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

func escapeProperty(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}
