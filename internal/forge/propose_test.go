package forge_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/forge"
)

// TestPropose opens a pull request, changes it, closes it, and finds it again by its
// branch, on every forge.
func TestPropose(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			f := standard(t, kind)
			f.Branches["coppice/adopt/prod"] = hash(10)
			// A fork may have a branch of the same name, and another branch be merged.
			f.Pulls = append(f.Pulls, &forge.Pull{Number: 21, HeadRef: "coppice/adopt/prod", Head: hash(11), BaseRef: "main", Base: hash(2), Open: true, Fork: true})
			api, ctx := open(t, f), t.Context()
			label := forge.Label{Cluster: "prod", Source: "fleet/one", Key: "k", Proposes: []string{"a", "b"}}
			body := label.Line(api.Limits()) + "\nSomebody changed -->\n"
			made, err := api.Propose(ctx, forge.Proposal{Head: "coppice/adopt/prod", Base: "main", Title: "adopt", Body: body})
			if err != nil {
				t.Fatal(err)
			}
			if !made.Open || made.Fork || made.Number == 0 || made.HeadRef != "coppice/adopt/prod" || made.BaseRef != "main" || made.URL == "" || !forge.SameCommit(made.Head, hash(10)) {
				t.Errorf("made %+v", made)
			}
			if _, err := api.Propose(ctx, forge.Proposal{Head: "coppice/adopt/prod", Base: "main", Title: "adopt", Body: body}); err == nil {
				t.Error("a second one was opened")
			}
			list := func(closed bool) []forge.Pull {
				t.Helper()
				all, err := api.Pulls(ctx, forge.Query{Base: "main", Head: "coppice/adopt/prod", Closed: closed})
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			all := list(false)
			if len(all) != 1 || all[0].Number != made.Number || len(list(true)) != 0 {
				t.Fatalf("open %+v, closed %+v", all, list(true))
			}
			is, rest, ok := forge.ReadLabel(all[0].Body)
			if !ok || is.Source != label.Source || !slices.Equal(is.Proposes, label.Proposes) || !strings.HasPrefix(rest, "Somebody changed") {
				t.Errorf("label %+v, %q, %v", is, rest, ok)
			}
			if err := api.Amend(ctx, made.Number, "adopt less", "text"); err != nil {
				t.Fatal(err)
			}
			if all = list(false); len(all) != 1 || all[0].Title != "adopt less" || all[0].Body != "text" || !all[0].Open {
				t.Errorf("amended: %+v", all)
			}
			if err := api.ClosePull(ctx, made.Number); err != nil {
				t.Fatal(err)
			}
			if all = list(true); len(all) != 1 || all[0].Number != made.Number || all[0].Open || all[0].Merged || len(list(false)) != 0 {
				t.Errorf("closed: %+v, open %+v", all, list(false))
			}
			// One that was merged, many pull requests ago, is found too.
			f.pull(made.Number).Merged, f.pull(made.Number).MergeCommit = true, hash(2)
			for i := range 130 {
				f.Pulls = append(f.Pulls, &forge.Pull{Number: 300 + i, Head: hash(10), HeadRef: "x", Base: hash(2), BaseRef: "main", Merged: true, Updated: made.Updated.AddDate(0, 0, 1)})
			}
			if all = list(true); len(all) != 1 || !all[0].Merged {
				t.Errorf("merged: %+v", all)
			}
			if _, _, ok := forge.ReadLabel("no label\ntext"); ok {
				t.Error("a text without a label has one")
			}
		})
	}
}
