package render

import (
	"fmt"
	"testing"

	"cuelang.org/go/cue/cuecontext"
)

// Every package that is offered as CUE's own can be imported.
func TestBuiltinsExist(t *testing.T) {
	for _, name := range builtins() {
		if err := cuecontext.New().CompileString(fmt.Sprintf("import x %q\ny: x", name)).Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
