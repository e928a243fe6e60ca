package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestCommitted wants the committed file to be what the pinned sources give.
func TestCommitted(t *testing.T) {
	fresh := filepath.Join(t.TempDir(), "catalogue.tsv.gz")
	if err := run(fresh); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(fresh)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../catalogue.tsv.gz")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("catalogue.tsv.gz is not what the sources give: run go generate in internal/catalogue")
	}
}
