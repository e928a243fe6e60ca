package cli

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/coppice-dev/coppice/internal/isolate"
)

func TestMain(m *testing.M) {
	// Trees are evaluated by a child, which is this program under its own name.
	if code, ok := isolate.Serve(os.Args[1:], os.Stdin, os.Stdout); ok {
		os.Exit(code)
	}
	testscript.Main(m, map[string]func(){
		"coppice": func() {
			os.Exit(Main(os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
		},
	})
}

// TestScripts runs testdata/script/AREA_CASE.txtar. Every example of the
// repository is a script too: $EXAMPLES is the folder with all of them.
func TestScripts(t *testing.T) {
	examples, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	examples += "/../../examples"
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			e.Vars = append(e.Vars, "EXAMPLES="+examples, "NO_COLOR=1")
			return nil
		},
	})
}
