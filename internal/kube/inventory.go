package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// EntryID is namespace_name_group_kind, the form that Flux uses. None of the
// parts can hold an underscore.
func EntryID(u *unstructured.Unstructured) string {
	gvk := u.GroupVersionKind()
	return strings.Join([]string{u.GetNamespace(), u.GetName(), gvk.Group, gvk.Kind}, "_")
}

// Entry is the inventory's line for an object to apply.
func Entry(u *unstructured.Unstructured) coppice.InventoryEntry {
	return coppice.InventoryEntry{ID: EntryID(u), Version: u.GroupVersionKind().Version, Digest: Digest(u)}
}

// Digest identifies an object's content as its author wrote it: 64 bits of a
// SHA-256 over its JSON with sorted keys.
func Digest(u *unstructured.Unstructured) string {
	data, err := json.Marshal(u.Object)
	if err != nil {
		panic(fmt.Sprintf("kube: %s is no JSON: %v", name(u), err))
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// Referenced makes an object that only names what an entry stands for.
func Referenced(e coppice.InventoryEntry) (*unstructured.Unstructured, error) {
	parts := strings.Split(e.ID, "_")
	if len(parts) != 4 || parts[1] == "" || parts[3] == "" || e.Version == "" {
		return nil, fmt.Errorf("inventory entry %q is malformed", e.ID)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: parts[2], Version: e.Version, Kind: parts[3]})
	u.SetNamespace(parts[0])
	u.SetName(parts[1])
	return u, nil
}

// Find returns the entry of an id.
func Find(entries []coppice.InventoryEntry, id string) (coppice.InventoryEntry, bool) {
	i := slices.IndexFunc(entries, func(e coppice.InventoryEntry) bool { return e.ID == id })
	if i < 0 {
		return coppice.InventoryEntry{}, false
	}
	return entries[i], true
}

// Left returns the entries of before that aren't in now, in the order in which
// to delete them: what refers to others first.
func Left(before, now []coppice.InventoryEntry) []coppice.InventoryEntry {
	var out []coppice.InventoryEntry
	for _, e := range before {
		if _, ok := Find(now, e.ID); !ok {
			out = append(out, e)
		}
	}
	rank := func(e coppice.InventoryEntry) int {
		if strings.HasSuffix(e.ID, "_"+aws.Group+"_EC2NodeClass") {
			return 1
		}
		return 0
	}
	slices.SortFunc(out, func(a, b coppice.InventoryEntry) int {
		if c := rank(a) - rank(b); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}

// Merge returns before with the entries of now added or replaced, sorted by id.
func Merge(before, now []coppice.InventoryEntry) []coppice.InventoryEntry {
	out := slices.Clone(now)
	for _, e := range before {
		if _, ok := Find(now, e.ID); !ok {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b coppice.InventoryEntry) int { return strings.Compare(a.ID, b.ID) })
	return out
}
