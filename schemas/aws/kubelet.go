package aws

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// KubeletConfiguration is a part of the upstream KubeletConfiguration, by JSON
// field name.
//
// Karpenter 1.14 had 12 typed fields here and rules for them; 1.15 takes any
// field and, in three of them, expressions where numbers were. What either wrote
// must be read and written back unchanged, so the type is the open one. Settings
// gives the fields that decide what a node can hold.
type KubeletConfiguration map[string]apiextensionsv1.JSON

// KubeletSettings are the fields of a KubeletConfiguration that a node's
// capacity, or its user data in a family's own format, is made from.
type KubeletSettings struct {
	// ClusterDNS are the addresses of the cluster's DNS servers.
	ClusterDNS []string `json:"clusterDNS,omitempty"`
	// MaxPods bounds the pods on a node.
	MaxPods *int32 `json:"maxPods,omitempty"`
	// PodsPerCore bounds them by the node's CPUs. The smaller of the two counts.
	PodsPerCore *int32 `json:"podsPerCore,omitempty"`
	// SystemReserved and KubeReserved are kept from pods: cpu, memory,
	// ephemeral-storage and pid, as quantities.
	SystemReserved map[string]string `json:"systemReserved,omitempty"`
	KubeReserved   map[string]string `json:"kubeReserved,omitempty"`
	// EvictionHard and EvictionSoft map signals, as in memory.available, to
	// quantities or percentages.
	EvictionHard map[string]string `json:"evictionHard,omitempty"`
	EvictionSoft map[string]string `json:"evictionSoft,omitempty"`
	// EvictionSoftGracePeriod maps each signal of EvictionSoft to a duration.
	EvictionSoftGracePeriod map[string]string `json:"evictionSoftGracePeriod,omitempty"`
	// EvictionMaxPodGracePeriod is in seconds.
	EvictionMaxPodGracePeriod *int32 `json:"evictionMaxPodGracePeriod,omitempty"`
	// ImageGCHighThresholdPercent and ImageGCLowThresholdPercent are of the disk.
	ImageGCHighThresholdPercent *int32 `json:"imageGCHighThresholdPercent,omitempty"`
	ImageGCLowThresholdPercent  *int32 `json:"imageGCLowThresholdPercent,omitempty"`
	// CPUCFSQuota says whether CPU limits are enforced.
	CPUCFSQuota *bool `json:"cpuCFSQuota,omitempty"`
}

// Settings reads the fields that KubeletSettings has. Other fields are left
// alone. Each field is read by itself: the settings hold what could be read, and
// the error joins one entry, sorted by field, for each that could not.
func (k KubeletConfiguration) Settings() (KubeletSettings, error) {
	var s KubeletSettings
	var errs []error
	for _, name := range k.Fields() {
		next := s
		text, err := json.Marshal(map[string]json.RawMessage{name: k[name].Raw})
		if err == nil {
			err = json.Unmarshal(text, &next)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read kubelet.%s: %w", name, err))
			continue
		}
		s = next
	}
	return s, errors.Join(errs...)
}

// Fields lists the names of the fields that are set, sorted.
func (k KubeletConfiguration) Fields() []string {
	names := make([]string, 0, len(k))
	for name := range k {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
