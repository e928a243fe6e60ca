package pullrequest

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/forge"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// TestForkOutcome: after the merge, too, a fork's pull request is told nothing of the
// cluster.
func TestForkOutcome(t *testing.T) {
	commit := strings.Repeat("ab", 20)
	api, err := forge.New(forge.Config{URL: "https://git.example.com/acme/fleet", Kind: "gitea"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		status coppice.NodeSourceStatus
		phase  forge.Phase
		text   string
	}{
		"waits": {coppice.NodeSourceStatus{}, forge.Merged, "waits to be applied."},
		"refused": {coppice.NodeSourceStatus{
			LastAttemptedRevision: "main@sha1:" + commit,
			Conditions:            []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Message: "NodePool secret-project is in the way"}},
		}, forge.Merged, "**not applied**."},
		// Its reader is nil: to look at a pool would end the test.
		"applied": {coppice.NodeSourceStatus{
			LastAppliedRevision: "main@sha1:" + commit,
			Inventory:           &coppice.Inventory{Entries: []coppice.InventoryEntry{{ID: "_general_karpenter.sh_NodePool", Version: "v1"}}},
		}, forge.Done, "**applied**. Done."},
	} {
		v := &view{Reconciler: &Reconciler{}, src: &coppice.NodeSource{Status: tt.status}, forge: api, pull: forge.Pull{Number: 3, Fork: true, Merged: true, MergeCommit: commit}}
		text, phase, err := v.progress(t.Context())
		if err != nil || phase != tt.phase || !strings.HasSuffix(text, tt.text) {
			t.Errorf("%s: %q, %s, %v; want %q", name, text, phase, err, tt.text)
		}
	}
}
