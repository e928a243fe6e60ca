package diag

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	"golang.org/x/tools/txtar"
)

// sample has what renderers stumble over: tabs and wide characters before a
// column, no position, no object, text that means something to the format.
func sample() (List, Sources) {
	files := map[string]string{
		"clusters/prod/pools.cue": "package prod\n\nnodePools: general: {\n\tspec: wieght: 10\n\t\"größe\": \"a|b\"\n}\n",
		"a b/$.yaml":              "x: \x1b[31m1\r\n",
	}
	list := List{
		{
			Code: "SCH001", Message: "spec has no field wieght", Help: "did you mean weight?",
			Pos:    Position{"clusters/prod/pools.cue", 4, 8},
			Object: "NodePool/general", Path: "spec.wieght",
			Related: []Related{{Position{"coppice.dev/schemas/karpenter/v1/nodepool.cue", 248, 2}, "the schema declares it here"}},
		},
		{Severity: Warning, Code: "POL002", Message: "cc @everyone <b>100%</b>\n::error::pwned", Pos: Position{"clusters/prod/pools.cue", 5, 13}},
		{Severity: Info, Code: "VET001", Message: "nothing has `one` effect", Help: "wait"},
		{Code: "YAML01", Message: "bad escape \x1b[2J", Pos: Position{"a b/$.yaml", 1, 4}},
		{Code: "YAML02", Message: "beyond the end", Pos: Position{"a b/$.yaml", 9, 1}},
	}
	return list.Sorted(), func(name string) []byte {
		if text, ok := files[name]; ok {
			return []byte(text)
		}
		return nil
	}
}

// described has a rule with everything, and one with a title alone.
func described() map[string]Rule {
	return map[string]Rule{
		"SCH001": {Title: "the kind has no such field", URI: "https://example.com/codes"},
		"POL002": {Title: "Volumes are encrypted", Why: "They hold logs.", Help: "encrypt them", URI: "https://example.com/policies"},
	}
}

func TestRenderers(t *testing.T) {
	list, sources := sample()
	cases := map[string]struct {
		why   string
		write func(io.Writer, List) error
	}{
		"text": {"the source line and a caret for people", func(w io.Writer, l List) error {
			return WriteText(w, l, TextOptions{Sources: sources})
		}},
		"color": {"severities stand out on a terminal", func(w io.Writer, l List) error {
			return WriteText(w, l, TextOptions{Sources: sources, Color: true})
		}},
		"json":     {"for programs", WriteJSON},
		"sarif":    {"for code scanning", func(w io.Writer, l List) error { return WriteSARIF(w, l, "v0.1.0", sources, described()) }},
		"junit":    {"for CI systems that show tests", WriteJUnit},
		"github":   {"no text can begin a command of its own", WriteGitHub},
		"markdown": {"no text can mention or link", WriteMarkdown},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := "testdata/" + name + ".txtar"
			got := &txtar.Archive{Comment: []byte(c.why + ".\n")}
			for _, part := range []struct {
				name string
				list List
			}{{"findings", list}, {"nothing", nil}} {
				var out bytes.Buffer
				if err := c.write(&out, part.list); err != nil {
					t.Fatal(err)
				}
				got.Files = append(got.Files, txtar.File{Name: part.name, Data: out.Bytes()})
			}
			text := strings.ReplaceAll(string(txtar.Format(got)), "\x1b", "<ESC>")
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), text); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestSARIFMatchesItsSchema(t *testing.T) {
	list, sources := sample()
	for name, l := range map[string]List{"findings": list, "nothing": nil} {
		var out bytes.Buffer
		if err := WriteSARIF(&out, l, "", sources, described()); err != nil {
			t.Fatal(err)
		}
		log, err := sarif.FromBytes(out.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// The library's own model writes empty values for what it wasn't given,
		// which its schema then refuses.
		for _, run := range log.Runs {
			run.Language, run.Tool.Driver.Language = "en-US", "en-US"
			run.NewlineSequences = []string{"\n"}
		}
		if err := log.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestJSONRoundTrip(t *testing.T) {
	list, _ := sample()
	var out bytes.Buffer
	if err := WriteJSON(&out, list); err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(list, back.Findings); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestJUnitIsXML(t *testing.T) {
	list, _ := sample()
	var out bytes.Buffer
	if err := WriteJUnit(&out, list); err != nil {
		t.Fatal(err)
	}
	var back junitSuites
	if err := xml.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Tests != len(list) || back.Failures != list.Count(Error) {
		t.Errorf("%d tests with %d failures, want %d with %d", back.Tests, back.Failures, len(list), list.Count(Error))
	}
}

func TestSortedIsStable(t *testing.T) {
	list, _ := sample()
	reversed := make(List, 0, 2*len(list))
	for i := range list {
		reversed = append(reversed, list[len(list)-1-i], list[len(list)-1-i])
	}
	if d := cmp.Diff(list, reversed.Sorted()); d != "" {
		t.Errorf("the order of the input shows (-want +got):\n%s", d)
	}
}

// TestLongLines prints findings of one long line: what is shown of it doesn't grow with
// the line, and stays around the caret.
func TestLongLines(t *testing.T) {
	item := `{"größe": "a"}, `
	line := "[" + strings.Repeat(item, 5000) + `"end"]`
	var l List
	for i := range 300 {
		l = append(l, Finding{Code: "SCH001", Message: "no", Pos: Position{"a.json", 1, 2 + i*len(item)}})
	}
	l = append(l, Finding{Code: "SCH001", Message: "no", Pos: Position{"a.json", 1, len(line) - 5}})
	var out bytes.Buffer
	if err := WriteText(&out, l, TextOptions{Sources: func(string) []byte { return []byte(line + "\nshort") }}); err != nil {
		t.Fatal(err)
	}
	if n := out.Len() / len(l); n > 1000 {
		t.Errorf("%d bytes for a finding", n)
	}
	lines := strings.Split(out.String(), "\n")
	for i, text := range lines {
		if j := strings.IndexByte(text, '^'); strings.HasPrefix(text, "  | ") && j >= 0 {
			above := []rune(lines[i-1])
			if len(above) > 180 {
				t.Fatalf("line of %d characters: %s", len(above), lines[i-1])
			}
			if got := string(above[j]); got != "{" && got != `"` {
				t.Fatalf("the caret is below %q:\n%s\n%s", got, lines[i-1], text)
			}
		}
	}
	if !strings.Contains(out.String(), `…`) || !strings.Contains(out.String(), `"end"]`+"\n") {
		t.Errorf("the cut isn't shown:\n%s", lines[len(lines)-6])
	}
}

// TestNameWithNewline prints a finding about a file whose name could pass for lines of
// the output.
func TestNameWithNewline(t *testing.T) {
	at := Position{"a\nerror[SCH001]: forged\x1b[2J.cue", 1, 1}
	l := List{{Code: "SCH001", Message: "no", Pos: at, Related: []Related{{at, "here"}}}}
	for name, write := range map[string]func(io.Writer, List) error{
		"text":     func(w io.Writer, l List) error { return WriteText(w, l, TextOptions{}) },
		"github":   WriteGitHub,
		"markdown": WriteMarkdown,
		"junit":    WriteJUnit,
	} {
		var out bytes.Buffer
		if err := write(&out, l); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "a\nerror") || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s:\n%s", name, out.String())
		}
	}
}
