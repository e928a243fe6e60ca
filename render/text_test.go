package render

import (
	"testing"
	"testing/fstest"

	"github.com/coppice-dev/coppice/internal/diag"
)

// TestTextThatIsNone wants one finding for a file that isn't text, whatever parsers
// would say about each of its bytes, and what is wrong elsewhere beside it.
func TestTextThatIsNone(t *testing.T) {
	utf16 := func(s string) string {
		out := "\xff\xfe"
		for _, c := range []byte(s) {
			out += string([]byte{c, 0})
		}
		return out
	}
	cases := map[string]struct {
		why     string
		text    string
		pos     diag.Position
		message string
	}{
		"nul":    {"a NUL in a string", "package c\n\nx: \"a\x00b\"\n", diag.Position{Line: 3, Col: 6}, "the file holds a NUL byte, so it isn't text"},
		"utf16":  {"an editor's other encoding", utf16("package c\n"), diag.Position{}, "the file is encoded in UTF-16"},
		"latin1": {"CUE takes it for U+FFFD", "package c\n\nx: \"a\xffb\"\n", diag.Position{Line: 3, Col: 6}, "the file isn't valid UTF-8"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.pos.File = "b.cue"
			_, findings := Render(fstest.MapFS{
				"a.cue": {Data: []byte("package c\n\nnodePools: {}\n")}, "b.cue": {Data: []byte(c.text)},
			}, "")
			if len(findings) != 1 || findings[0].Pos != c.pos || findings[0].Message != c.message || findings[0].Code != CodeSyntax {
				t.Errorf("%s: findings:\n%s", c.why, describe(findings))
			}
			c.pos.File = "b.yaml"
			_, findings = Manifest("b.yaml", []byte(c.text))
			if len(findings) != 1 || findings[0].Pos != c.pos || findings[0].Message != c.message || findings[0].Code != CodeYAML {
				t.Errorf("%s: findings of YAML:\n%s", c.why, describe(findings))
			}
		})
	}
}

func TestTabInYAML(t *testing.T) {
	_, findings := Manifest("a.yaml", []byte("kind: NodePool\nmetadata:\n\tname: a\n"))
	want := diag.Position{File: "a.yaml", Line: 3, Col: 1}
	if len(findings) != 1 || findings[0].Pos != want || findings[0].Message != "the line is indented with a tab, which YAML doesn't allow" {
		t.Errorf("findings:\n%s", describe(findings))
	}
}

// TestFaultsOfTheWhole wants one finding with a place where CUE or an API server would
// give none, or several.
func TestFaultsOfTheWhole(t *testing.T) {
	structs := "package c\n\nt0: {x: 1}\n"
	for i := 1; i <= 17; i++ {
		structs += "t" + string(rune('0'+i/10)) + string(rune('0'+i%10)) + ": {a: t" + previous(i) + ", b: t" + previous(i) + "}\n"
	}
	cases := map[string]struct {
		why, text, code string
		pos             diag.Position
	}{
		"cycle":   {"CUE names no place for a cycle through a definition", "package c\n\n#L: {n: #L}\nnodePools: {}\n", CodeConflict, diag.Position{File: "a.cue", Line: 3, Col: 1}},
		"doubled": {"an object that wasn't read to its end isn't judged", structs + "nodePools: a: spec: t17\n", CodeTooLarge, diag.Position{File: "a.cue", Line: 21, Col: 12}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, findings := Check(fstest.MapFS{"a.cue": {Data: []byte(c.text)}}, "", newJudge(t))
			if len(findings) != 1 || findings[0].Code != c.code || findings[0].Pos != c.pos {
				t.Errorf("%s: findings:\n%s", c.why, describe(findings))
			}
		})
	}
}

func previous(i int) string {
	if i == 1 {
		return "0"
	}
	return string(rune('0'+(i-1)/10)) + string(rune('0'+(i-1)%10))
}
