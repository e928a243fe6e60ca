package render

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"cuelang.org/go/cue/literal"

	"github.com/coppice-dev/coppice/schemas"
)

// Patterns that have a meaning must exist in the schemas: after a change there,
// the old text would silently stay behind.
func TestPatternMeaningsAreOfThisSchema(t *testing.T) {
	quoted := regexp.MustCompile(`=~"(?:[^"\\]|\\.)*"`)
	found := map[string]bool{}
	err := fs.WalkDir(schemas.CUE(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(schemas.CUE(), name)
		if err != nil {
			return err
		}
		for _, m := range quoted.FindAllString(string(text), -1) {
			pattern, err := literal.Unquote(strings.TrimPrefix(m, "=~"))
			if err != nil {
				return err
			}
			if meaning := patternMeaning(pattern); meaning != "" {
				found[meaning] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("pattern.go")
	if err != nil {
		t.Fatal(err)
	}
	if known := strings.Count(string(source), "\tcase `"); len(found) != known {
		t.Errorf("%d of the %d patterns with a meaning are in the schemas; update patternMeaning", len(found), known)
	}
}
