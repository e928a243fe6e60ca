package ec2

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/schemas/aws"
)

// Each archive has a class in "class", what the launch adds in "in", and the launch
// template that comes of them in "want", without what EC2 wasn't told. UPDATE=1
// rewrites the latter.
func TestTemplateData(t *testing.T) {
	files, err := filepath.Glob("testdata/template/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			section := map[string][]byte{}
			for _, f := range a.Files {
				section[f.Name] = f.Data
			}
			class := &aws.EC2NodeClass{}
			if err := yaml.UnmarshalStrict(section["class"], class); err != nil {
				t.Fatal(err)
			}
			var in struct {
				CapacityType string              `json:"capacityType"`
				EFAs         int64               `json:"efas"`
				Cards        int64               `json:"cards"`
				Reservation  string              `json:"reservation"`
				Market       ec2types.MarketType `json:"market"`
				IPv6         bool                `json:"ipv6"`
			}
			if err := yaml.UnmarshalStrict(section["in"], &in); err != nil {
				t.Fatal(err)
			}
			data := templateData(templateInput{
				class: class, capacityType: in.CapacityType, image: "ami-1", userData: "join", efas: in.EFAs, cards: in.Cards,
				reservation: in.Reservation, market: in.Market, ipv6: in.IPv6,
				tags: map[string]string{"b": "2", "a": "1"},
			})
			got := told(t, data)
			if want := section["want"]; !bytes.Equal(got, want) {
				if os.Getenv("UPDATE") == "" {
					t.Fatalf("launch template (-want +got):\n%s", cmp.Diff(string(want), string(got)))
				}
				kept := a.Files[:0]
				for _, f := range a.Files {
					if f.Name != "want" {
						kept = append(kept, f)
					}
				}
				a.Files = append(kept, txtar.File{Name: "want", Data: got})
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// told writes what the request says, leaving out what it doesn't.
func told(t *testing.T, data *ec2types.RequestLaunchTemplateData) []byte {
	t.Helper()
	text, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(prune(v))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			if p := prune(x); p != nil && p != "" {
				out[k] = p
			}
		}
		return out
	case []any:
		var out []any
		for _, x := range v {
			out = append(out, prune(x))
		}
		if out == nil {
			return nil
		}
		return out
	}
	return v
}

func TestTemplateName(t *testing.T) {
	class := newClass()
	in := templateInput{class: class, image: "ami-1", capacityType: "spot", tags: map[string]string{"a": "1"}}
	name := templateName(templateData(in), in.tags)
	if again := templateName(templateData(in), in.tags); again != name {
		t.Errorf("equal content has the names %s and %s", name, again)
	}
	in.image = "ami-2"
	if other := templateName(templateData(in), in.tags); other == name {
		t.Error("other content has the same name")
	}
	if len(name) < 3 || len(name) > 128 {
		t.Errorf("EC2 doesn't take the name %s", name)
	}
}
