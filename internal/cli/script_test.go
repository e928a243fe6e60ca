package cli

import (
	"bytes"
	"fmt"
	"io"
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
			out, err := &guard{Writer: os.Stdout}, &guard{Writer: os.Stderr}
			code := Main(os.Args[1:], Streams{In: os.Stdin, Out: out, Err: err})
			if out.leaks() || err.leaks() {
				fmt.Fprintln(os.Stderr, "A SECRET WAS PRINTED: the test planted it in the environment or a manifest")
				code = 97
			}
			os.Exit(code)
		},
	})
}

// guard looks for planted secrets in what a command prints: scripts write them as
// planted-…, in user data, passwords and tokens.
type guard struct {
	io.Writer
	seen bytes.Buffer
}

func (g *guard) Write(p []byte) (int, error) {
	g.seen.Write(p)
	return g.Writer.Write(p)
}

func (g *guard) leaks() bool { return bytes.Contains(g.seen.Bytes(), []byte("planted-")) }

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
			e.Vars = append(e.Vars, "EXAMPLES="+examples, "NO_COLOR=1",
				"AWS_SECRET_ACCESS_KEY=planted-key", "AWS_SESSION_TOKEN=planted-session", "GITHUB_TOKEN=planted-token", "GITLAB_TOKEN=planted-token")
			return nil
		},
	})
}
