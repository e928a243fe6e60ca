package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/cloud"
)

// Controller is what the controller that runs in a cluster works with, as far as its
// decisions depend on it.
type Controller struct {
	Settings Settings     `json:"settings"`
	Market   cloud.Market `json:"market"`
}

// Settings are what the controller is told by its flags, in the words of those.
type Settings struct {
	PreferencePolicy string              `json:"preferencePolicy"`
	MinValuesPolicy  string              `json:"minValuesPolicy"`
	ClusterLimits    corev1.ResourceList `json:"clusterLimits,omitempty"`
	// MemoryOverhead is a part of the whole, as in 0.075.
	MemoryOverhead float64 `json:"vmMemoryOverheadPercent"`
	ReservedENIs   int     `json:"reservedENIs"`
}

// DefaultSettings are those of a controller without flags.
func DefaultSettings() Settings {
	return Settings{PreferencePolicy: "Priced", MinValuesPolicy: "Strict", MemoryOverhead: 0.075}
}

// Flags writes the settings that aren't the defaults as the flags that make them.
func (s Settings) Flags() []string {
	var out []string
	add := func(name, value, usual string) {
		if value != usual {
			out = append(out, "--"+name+"="+value)
		}
	}
	usual := DefaultSettings()
	add("preference-policy", s.PreferencePolicy, usual.PreferencePolicy)
	add("min-values-policy", s.MinValuesPolicy, usual.MinValuesPolicy)
	var limits []string
	for _, name := range slices.Sorted(maps.Keys(s.ClusterLimits)) {
		q := s.ClusterLimits[name]
		limits = append(limits, string(name)+"="+q.String())
	}
	add("cluster-limits", strings.Join(limits, ","), "")
	add("vm-memory-overhead-percent", strconv.FormatFloat(s.MemoryOverhead, 'f', -1, 64), strconv.FormatFloat(usual.MemoryOverhead, 'f', -1, 64))
	add("reserved-enis", strconv.Itoa(s.ReservedENIs), strconv.Itoa(usual.ReservedENIs))
	return out
}

// ControllerPath is where a controller serves what it works with.
const ControllerPath = "/controller"

// Tell serves what a controller works with, to anybody: who may ask is decided before.
type Tell func(context.Context) (*Controller, error)

// ServeHTTP answers GET.
func (t Tell) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	c, err := t(r.Context())
	if err != nil {
		http.Error(w, fmt.Sprintf("read prices: %v", err), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The client may be gone; nobody else is to be told.
	_ = json.NewEncoder(w).Encode(c)
}
