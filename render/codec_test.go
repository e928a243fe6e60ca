package render

import (
	"slices"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// forms encodes the objects of a bundle, each as one that has to be decoded in turn.
func forms(t testing.TB, b Bundle) [][]byte {
	t.Helper()
	var e Encoder
	var out [][]byte
	for _, o := range b.Objects {
		form, err := e.Encode(o)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, slices.Clone(form))
	}
	return out
}

// faulty is a bundle of two objects with all that an object can have.
func faulty(t testing.TB) Bundle {
	t.Helper()
	tree := fstest.MapFS{
		"lib/lib.cue": {Data: []byte("package lib\n\n#Limits: {cpu: 1.5, memory: 2.0, nodes: 1e3, big: 9007199254740993, less: -3}\n")},
		"clusters/a/a.cue": {Data: []byte(`package a

import "cluster.local/lib"

nodePools: "one.two": {
	metadata: labels: "example.com/a.b": "c"
	spec: limits: lib.#Limits
	spec: list: [{a: null}, true, false, "\t", []]
	spec: weight: int
}
nodePools: three: spec: limits: lib.#Limits
`)},
	}
	b, findings := Render(tree, "a")
	if len(b.Objects) != 2 || !findings.HasErrors() {
		t.Fatalf("%d objects; findings:\n%s", len(b.Objects), describe(findings))
	}
	return b
}

func TestObjectsRoundTrip(t *testing.T) {
	want := faulty(t)
	var d Decoder
	got := Bundle{Cluster: "a"}
	for _, form := range forms(t, want) {
		o, err := d.Decode(form)
		if err != nil {
			t.Fatal(err)
		}
		got.Objects = append(got.Objects, o)
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Object{}, place{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	at := got.Objects[0].Position("spec", "limits", "cpu")
	if at.File != "lib/lib.cue" || at.Line != 3 {
		t.Errorf("spec.limits.cpu is at %s", at)
	}
	if d := cmp.Diff(forms(t, want), forms(t, got)); d != "" {
		t.Errorf("a second encoding differs:\n%s", d)
	}
}

// TestEncoderRefuses wants an error for what JSON has no form for, and not a loss.
func TestEncoderRefuses(t *testing.T) {
	var e Encoder
	if form, err := e.Encode(Object{Value: map[string]any{"a": 5}}); err == nil {
		t.Errorf("encoded an int as %q", form)
	}
}

// TestDecoderRefusesParts cuts forms short at every byte, and adds one.
func TestDecoderRefusesParts(t *testing.T) {
	form := forms(t, faulty(t))[0]
	for n := range form {
		var d Decoder
		if o, err := d.Decode(form[:n]); err == nil {
			t.Fatalf("decoded %d of %d bytes as %v", n, len(form), o)
		}
	}
	var d Decoder
	if _, err := d.Decode(append(slices.Clone(form), 0)); err == nil {
		t.Error("decoded a form with a byte too many")
	}
}

func FuzzDecode(f *testing.F) {
	for _, form := range forms(f, faulty(f)) {
		f.Add(form)
	}
	deep := []byte{0, 0, 1, 1, 1}
	for range 100_000 {
		deep = append(deep, tagList, 1)
	}
	f.Add(deep)
	f.Add([]byte{0, 0, 1, 1, 1, tagMap, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, form []byte) {
		var d Decoder
		o, err := d.Decode(form)
		if err != nil {
			return
		}
		var e Encoder
		again, err := e.Encode(o)
		if err != nil {
			t.Fatal(err)
		}
		d = Decoder{}
		if second, err := d.Decode(again); err != nil {
			t.Fatalf("can't decode what was encoded: %v", err)
		} else if diff := cmp.Diff(o, second, cmp.AllowUnexported(Object{}, place{}), cmpopts.EquateNaNs()); diff != "" {
			t.Error(diff)
		}
	})
}
