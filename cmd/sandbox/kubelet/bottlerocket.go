package kubelet

import (
	"fmt"
	"slices"

	"github.com/pelletier/go-toml/v2"
)

// bottlerocketSettings is the part of Bottlerocket's settings that shows in the
// Node; see https://bottlerocket.dev/en/os/latest/api/settings/kubernetes/.
type bottlerocketSettings struct {
	Settings struct {
		Kubernetes struct {
			ClusterName        string `toml:"cluster-name"`
			APIServer          string `toml:"api-server"`
			ClusterCertificate string `toml:"cluster-certificate"`

			MaxPods        int64               `toml:"max-pods"`
			NodeLabels     map[string]string   `toml:"node-labels"`
			NodeTaints     map[string][]string `toml:"node-taints"`
			KubeReserved   map[string]string   `toml:"kube-reserved"`
			SystemReserved map[string]string   `toml:"system-reserved"`
			EvictionHard   map[string]string   `toml:"eviction-hard"`
		} `toml:"kubernetes"`
	} `toml:"settings"`
}

func parseBottlerocket(data []byte) (Settings, error) {
	var doc bottlerocketSettings
	if err := toml.Unmarshal(data, &doc); err != nil {
		return Settings{}, fmt.Errorf("user data is neither MIME, a NodeConfig nor TOML: %w", err)
	}
	k := doc.Settings.Kubernetes
	s := Settings{
		Family:         Bottlerocket,
		ClusterName:    k.ClusterName,
		Endpoint:       k.APIServer,
		Labels:         map[string]string{},
		MaxPods:        k.MaxPods,
		KubeReserved:   k.KubeReserved,
		SystemReserved: k.SystemReserved,
		EvictionHard:   k.EvictionHard,
	}
	for key, value := range k.NodeLabels {
		s.Labels[key] = value
	}
	keys := make([]string, 0, len(k.NodeTaints))
	for key := range k.NodeTaints {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		for _, rest := range k.NodeTaints[key] {
			t, err := parseTaint(key + "=" + rest)
			if err != nil {
				return Settings{}, err
			}
			s.Taints = append(s.Taints, t)
		}
	}
	var err error
	if s.CA, err = parseCA(k.ClusterCertificate); err != nil {
		return Settings{}, err
	}
	return s, s.validate()
}
