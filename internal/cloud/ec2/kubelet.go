package ec2

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/coppice-dev/coppice/schemas/aws"
)

// kubelet is a class's kubelet configuration: the fields that size a node, and all
// of them as written, for the user data.
type kubelet struct {
	aws.KubeletSettings
	// fields are those of the upstream KubeletConfiguration: whole numbers are int64.
	fields map[string]any
}

// readKubelet reads a class's settings and says everything that is wrong with them.
// What could be read is in the result all the same.
func readKubelet(config aws.KubeletConfiguration) (kubelet, error) {
	k := kubelet{fields: make(map[string]any, len(config))}
	var errs []error
	for _, name := range config.Fields() {
		var v any
		if err := json.Unmarshal(config[name].Raw, &v); err != nil {
			errs = append(errs, fmt.Errorf("kubelet.%s: %w", name, err))
			continue
		}
		k.fields[name] = v
	}
	settings, err := config.Settings()
	k.KubeletSettings = settings
	errs = append(errs, err)
	if _, set := k.fields["registerWithTaints"]; set {
		errs = append(errs, fmt.Errorf("kubelet.registerWithTaints: set the NodePool's taints and startupTaints instead"))
	}
	quantities := func(name string, table map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(table)) {
			if q, err := resource.ParseQuantity(table[key]); err != nil || q.Sign() < 0 {
				errs = append(errs, fmt.Errorf("kubelet.%s.%s: %q is not a quantity of at least 0", name, key, table[key]))
			}
		}
	}
	quantities("kubeReserved", k.KubeReserved)
	quantities("systemReserved", k.SystemReserved)
	thresholds := func(name string, table map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(table)) {
			if _, ok := threshold(table[key], resource.Quantity{}); !ok {
				errs = append(errs, fmt.Errorf("kubelet.%s.%s: %q is neither a quantity nor a percentage", name, key, table[key]))
			}
		}
	}
	thresholds("evictionHard", k.EvictionHard)
	thresholds("evictionSoft", k.EvictionSoft)
	for _, key := range slices.Sorted(maps.Keys(k.EvictionSoft)) {
		if k.EvictionSoftGracePeriod[key] == "" {
			errs = append(errs, fmt.Errorf("kubelet.evictionSoft.%s needs an entry in evictionSoftGracePeriod", key))
		}
	}
	high, low := deref(k.ImageGCHighThresholdPercent), deref(k.ImageGCLowThresholdPercent)
	if k.ImageGCHighThresholdPercent != nil && k.ImageGCLowThresholdPercent != nil && high <= low {
		errs = append(errs, fmt.Errorf("kubelet.imageGCHighThresholdPercent %d must be above imageGCLowThresholdPercent %d", high, low))
	}
	return k, errors.Join(errs...)
}

// unsupported lists, sorted, the fields that user data of the family can't carry.
func (k *kubelet) unsupported(f family) []string {
	if f == al2023 || f == custom {
		return nil // one takes all, the other takes none from us
	}
	var out []string
	for field := range k.fields {
		known := field == "clusterDNS" || field == "maxPods"
		if f == bottlerocket {
			_, is := bottlerocketKubelet(field)
			known = known || is
		} else {
			known = known || kubeletFlag(field) != "" && (field != "podsPerCore" || f.podsPerCore())
		}
		if !known {
			out = append(out, field)
		}
	}
	slices.Sort(out)
	return out
}
