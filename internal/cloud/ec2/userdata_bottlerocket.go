package ec2

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// bottlerocketData merges the class's settings with ours, ours winning: they are
// what the node needs to join.
// https://bottlerocket.dev/en/os/latest/#/api/settings/kubernetes/
func bottlerocketData(b bootstrap) (string, error) {
	doc := map[string]any{}
	if err := toml.Unmarshal([]byte(b.custom), &doc); err != nil {
		return "", fmt.Errorf("spec.userData is not TOML, which Bottlerocket takes: %w", err)
	}
	settings := child(doc, "settings")
	k := child(settings, "kubernetes")
	k["api-server"] = b.cluster.endpoint
	k["cluster-name"] = b.cluster.name
	k["max-pods"] = b.maxPods
	if b.cluster.ca != "" {
		k["cluster-certificate"] = b.cluster.ca
	}
	if dns := b.kubelet.ClusterDNS; len(dns) > 0 {
		k["cluster-dns-ip"] = dns
	}
	labels := child(k, "node-labels")
	for key, value := range b.labels {
		labels[key] = value
	}
	if len(labels) == 0 {
		delete(k, "node-labels")
	}
	taints := child(k, "node-taints")
	// A class's own taints stay, but the pool's value of the same key wins.
	for _, t := range b.taints {
		taints[t.Key] = []string{}
	}
	for _, t := range b.taints {
		taints[t.Key] = append(taints[t.Key].([]string), fmt.Sprintf("%s:%s", t.Value, t.Effect))
	}
	for field, value := range b.kubelet.fields {
		if name, ok := bottlerocketKubelet(field); ok {
			k[name] = bottlerocketValue(field, value)
		}
	}
	if b.raid0 {
		child(settings, "bootstrap-commands")["000-mount-instance-storage"] = map[string]any{
			"commands": [][]string{
				{"apiclient", "ephemeral-storage", "init"},
				{"apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"},
			},
			"essential": true,
			"mode":      "always",
		}
	}
	var out strings.Builder
	enc := toml.NewEncoder(&out)
	enc.SetIndentTables(false)
	if err := enc.Encode(doc); err != nil {
		return "", fmt.Errorf("write TOML: %w", err)
	}
	return out.String(), nil
}

// child returns the table under key, making it if there is none.
func child(table map[string]any, key string) map[string]any {
	if t, ok := table[key].(map[string]any); ok {
		return t
	}
	t := map[string]any{}
	table[key] = t
	return t
}

// bottlerocketKubelet is the name under settings.kubernetes of a field of
// KubeletConfiguration.
func bottlerocketKubelet(field string) (string, bool) {
	name := ""
	switch field {
	case "systemReserved":
		name = "system-reserved"
	case "kubeReserved":
		name = "kube-reserved"
	case "evictionHard":
		name = "eviction-hard"
	case "evictionSoft":
		name = "eviction-soft"
	case "evictionSoftGracePeriod":
		name = "eviction-soft-grace-period"
	case "evictionMaxPodGracePeriod":
		name = "eviction-max-pod-grace-period"
	case "imageGCHighThresholdPercent":
		name = "image-gc-high-threshold-percent"
	case "imageGCLowThresholdPercent":
		name = "image-gc-low-threshold-percent"
	case "cpuCFSQuota":
		name = "cpu-cfs-quota-enforced"
	case "containerLogMaxFiles":
		name = "container-log-max-files"
	case "containerLogMaxSize":
		name = "container-log-max-size"
	case "cpuManagerPolicy":
		name = "cpu-manager-policy"
	case "topologyManagerPolicy":
		name = "topology-manager-policy"
	case "topologyManagerScope":
		name = "topology-manager-scope"
	case "podPidsLimit":
		name = "pod-pids-limit"
	case "registryPullQPS":
		name = "registry-qps"
	case "registryBurst":
		name = "registry-burst"
	case "eventRecordQPS":
		name = "event-qps"
	case "eventBurst":
		name = "event-burst"
	case "kubeAPIQPS":
		name = "kube-api-qps"
	case "kubeAPIBurst":
		name = "kube-api-burst"
	case "allowedUnsafeSysctls":
		name = "allowed-unsafe-sysctls"
	}
	return name, name != ""
}

// bottlerocketValue is a kubelet setting as Bottlerocket types it: percentages are
// strings there and quantities always are.
func bottlerocketValue(field string, value any) any {
	switch field {
	case "imageGCHighThresholdPercent", "imageGCLowThresholdPercent":
		return fmt.Sprint(value)
	}
	if v, ok := value.(map[string]any); ok {
		out := make(map[string]string, len(v))
		for k, x := range v {
			out[k] = fmt.Sprint(x)
		}
		return out
	}
	return value
}
