package render

import (
	"encoding/json"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestBundleRoundTrip(t *testing.T) {
	tree := fstest.MapFS{
		"lib/lib.cue": {Data: []byte("package lib\n\n#Limits: {cpu: 1.5, memory: 2.0, nodes: 1e3, big: 9007199254740993}\n")},
		"clusters/a/a.cue": {Data: []byte(`package a

import "cluster.local/lib"

nodePools: "one.two": {
	metadata: labels: "example.com/a.b": "c"
	spec: limits: lib.#Limits
	spec: list: [{a: null}, true, "\t"]
	spec: weight: int
}
`)},
	}
	want, findings := Render(tree, "a")
	if len(want.Objects) != 1 || !findings.HasErrors() {
		t.Fatalf("%d objects; findings:\n%s", len(want.Objects), describe(findings))
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Bundle
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Object{}, place{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	at := got.Objects[0].Position("spec", "limits", "cpu")
	if at.File != "lib/lib.cue" || at.Line != 3 {
		t.Errorf("spec.limits.cpu is at %s", at)
	}
	if again, err := json.Marshal(got); err != nil || string(again) != string(text) {
		t.Errorf("a second encoding differs: %v", err)
	}
}

func TestBundleRefusesBadPositions(t *testing.T) {
	for why, text := range map[string]string{
		"file out of range": `{"files":["a"],"objects":[{"value":{},"places":{"":[2,1,1,0,0,0]}}]}`,
		"negative file":     `{"files":["a"],"objects":[{"value":{},"places":{"":[-1,1,1,0,0,0]}}]}`,
		"huge number":       `{"objects":[{"value":{"a":99999999999999999999}}]}`,
		"not an object":     `{"objects":[{"value":5}]}`,
	} {
		var b Bundle
		if err := json.Unmarshal([]byte(text), &b); err == nil {
			t.Errorf("%s: decoded as %v", why, b)
		}
	}
}
