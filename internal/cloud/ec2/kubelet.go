package ec2

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

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
	for _, x := range []struct {
		name  string
		value *int32
	}{{"maxPods", k.MaxPods}, {"podsPerCore", k.PodsPerCore}} {
		if deref(x.value) < 0 {
			errs = append(errs, fmt.Errorf("kubelet.%s %d must not be negative", x.name, *x.value))
		}
	}
	errs = append(errs, checkReserved("kubeReserved", k.KubeReserved), checkReserved("systemReserved", k.SystemReserved),
		checkThresholds("evictionHard", k.EvictionHard), checkThresholds("evictionSoft", k.EvictionSoft),
		checkGrace(&k.KubeletSettings), checkImageGC(&k.KubeletSettings))
	return k, errors.Join(errs...)
}

// checkReserved says what the kubelet would refuse of resources that are set aside.
// https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/
func checkReserved(field string, table map[string]string) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(table)) {
		switch key {
		case "cpu", "memory", "ephemeral-storage", "pid":
		default:
			errs = append(errs, fmt.Errorf("kubelet.%s.%s: only cpu, memory, ephemeral-storage and pid can be reserved", field, key))
		}
		if q, err := resource.ParseQuantity(table[key]); err != nil || q.Sign() < 0 {
			errs = append(errs, fmt.Errorf("kubelet.%s.%s: %q is not a quantity of at least 0", field, key, table[key]))
		}
	}
	return errors.Join(errs...)
}

// isSignal says whether a kubelet evicts by the signal.
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#eviction-signals
func isSignal(s string) bool {
	switch s {
	case "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
		"containerfs.available", "containerfs.inodesFree", "pid.available", "allocatableMemory.available":
		return true
	}
	return false
}

func checkThresholds(field string, table map[string]string) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if !isSignal(key) {
			errs = append(errs, fmt.Errorf("kubelet.%s.%s: there is no such signal; memory.available is one", field, key))
		}
		if q, ok := threshold(table[key], resource.Quantity{}); !ok || q.Sign() < 0 {
			errs = append(errs, fmt.Errorf("kubelet.%s.%s: %q is neither a quantity nor a percentage", field, key, table[key]))
		}
	}
	return errors.Join(errs...)
}

// checkGrace holds soft thresholds and their grace periods against each other.
func checkGrace(k *aws.KubeletSettings) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(k.EvictionSoft)) {
		if k.EvictionSoftGracePeriod[key] == "" {
			errs = append(errs, fmt.Errorf("kubelet.evictionSoft.%s needs an entry in evictionSoftGracePeriod", key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(k.EvictionSoftGracePeriod)) {
		text := k.EvictionSoftGracePeriod[key]
		if _, has := k.EvictionSoft[key]; !has {
			errs = append(errs, fmt.Errorf("kubelet.evictionSoftGracePeriod.%s needs an entry in evictionSoft", key))
		}
		if d, err := time.ParseDuration(text); text != "" && (err != nil || d < 0) {
			errs = append(errs, fmt.Errorf("kubelet.evictionSoftGracePeriod.%s: %q is not a duration, as in 1m30s", key, text))
		}
	}
	return errors.Join(errs...)
}

// The kubelet's own thresholds for the collection of images, in percent.
// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
const (
	imageGCHigh = 85
	imageGCLow  = 80
)

// checkImageGC also holds one threshold that is given against the other's default.
func checkImageGC(k *aws.KubeletSettings) error {
	high, low := int32(imageGCHigh), int32(imageGCLow)
	var errs []error
	for _, x := range []struct {
		name  string
		given *int32
		value *int32
	}{{"imageGCHighThresholdPercent", k.ImageGCHighThresholdPercent, &high}, {"imageGCLowThresholdPercent", k.ImageGCLowThresholdPercent, &low}} {
		if x.given == nil {
			continue
		}
		*x.value = *x.given
		if *x.given < 0 || *x.given > 100 {
			errs = append(errs, fmt.Errorf("kubelet.%s %d must be from 0 to 100", x.name, *x.given))
		}
	}
	if high <= low {
		errs = append(errs, fmt.Errorf("kubelet.imageGCHighThresholdPercent %d must be above imageGCLowThresholdPercent %d", high, low))
	}
	return errors.Join(errs...)
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
