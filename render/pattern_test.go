package render

import (
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/schemas"
)

// Patterns that have a meaning must exist in the schemas: after a change there,
// the old text would silently stay behind.
func TestPatternMeaningsAreOfThisSchema(t *testing.T) {
	literal := regexp.MustCompile(`=~"(?:[^"\\]|\\.)*"`)
	found := 0
	err := fs.WalkDir(schemas.CUE(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(schemas.CUE(), name)
		if err != nil {
			return err
		}
		for _, m := range literal.FindAllString(string(text), -1) {
			pattern, err := strconv.Unquote(strings.TrimPrefix(m, "=~"))
			if err != nil {
				return err
			}
			if patternMeaning(pattern) != "" {
				found++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 30 {
		t.Errorf("only %d uses of patterns in the schemas have a meaning; update patternMeaning", found)
	}
}
