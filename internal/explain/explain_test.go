package explain

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/internal/snapshot"
)

// TestExplain asks each question that is the name of a file, as pod_web_shop-1,
// about the archive's snapshot. UPDATE=1 rewrites the answers.
func TestExplain(t *testing.T) {
	path := filepath.Join("testdata", "answers.txtar")
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	shot, err := snapshot.Read(strings.NewReader(string(archive.Files[0].Data)))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{"pod": "Pod", "node": "Node", "nodeclaim": "NodeClaim", "nodepool": "NodePool"}
	for i := range archive.Files[1:] {
		f := &archive.Files[i+1]
		t.Run(f.Name, func(t *testing.T) {
			parts := strings.Split(f.Name, "_")
			about := record.Subject{Kind: kinds[parts[0]], Name: parts[len(parts)-1]}
			if len(parts) == 3 {
				about.Namespace = parts[1]
			}
			answer, err := Explain(shot, about)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := answer.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if os.Getenv("UPDATE") != "" {
				f.Data = []byte(text.String())
				return
			}
			if text.String() != string(f.Data) {
				t.Errorf("got\n%s\nwant\n%s", text.String(), f.Data)
			}
			if _, err := json.Marshal(answer); err != nil {
				t.Error(err)
			}
		})
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var missing *NotFoundError
	if _, err := Explain(shot, record.Subject{Kind: "Pod", Namespace: "web", Name: "shop-9"}); !errors.As(err, &missing) || missing.Near[0] != "shop-1" {
		t.Errorf("a pod that isn't there: %v", err)
	}
	if _, err := Explain(shot, record.Subject{Kind: "Service", Name: "x"}); err == nil {
		t.Error("a Service was explained")
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59*time.Second + 600*time.Millisecond: "1m00s", 61 * time.Second: "1m01s",
		47*time.Hour + 59*time.Minute: "47h59m", 49 * time.Hour: "2d01h",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
