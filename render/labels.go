package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// wellKnownLabels lists the labels that nodes have without anybody's doing, and
// the older names of some.
func wellKnownLabels() []string {
	return append(karpenter.WellKnownLabels(),
		"kubernetes.io/hostname", "beta.kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/instance-type",
		"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
		aws.LabelInstanceHypervisor, aws.LabelInstanceEncryptionInTransitSupported, aws.LabelInstanceCategory,
		aws.LabelInstanceCapabilityFlex, aws.LabelInstanceFamily, aws.LabelInstanceGeneration, aws.LabelInstanceLocalNVME,
		aws.LabelInstanceSize, aws.LabelInstanceCPU, aws.LabelInstanceCPUManufacturer, aws.LabelInstanceCPUSustainedClockSpeedMHz,
		aws.LabelInstanceMemory, aws.LabelInstanceEBSBandwidth, aws.LabelInstanceNetworkBandwidth, aws.LabelInstanceGPUName,
		aws.LabelInstanceGPUManufacturer, aws.LabelInstanceGPUCount, aws.LabelInstanceGPUMemory, aws.LabelInstanceAcceleratorName,
		aws.LabelInstanceAcceleratorManufacturer, aws.LabelInstanceAcceleratorCount, aws.LabelInstanceTenancy,
		aws.LabelCapacityReservationID, aws.LabelCapacityReservationType, aws.LabelCapacityReservationInterruptible,
		aws.LabelPlacementGroupID, aws.LabelPlacementGroupPartition, aws.LabelNodeClass, aws.LabelTopologyZoneID, aws.LabelEBSTopologyZone,
	)
}

// nearestLabel is the well-known label that a key was most likely meant to be: one
// that is spelt alike, or one whose name begins or ends like the key's in the same domain.
func nearestLabel(key string) string {
	known := wellKnownLabels()
	if s := nearest(key, known); s != "" {
		return s
	}
	domain, name, _ := strings.Cut(key, "/")
	for _, k := range slices.Sorted(slices.Values(known)) {
		d, n, _ := strings.Cut(k, "/")
		if d == domain && len(n) > 1 && len(name) > 1 && (strings.HasPrefix(name, n) || strings.HasPrefix(n, name)) {
			return k
		}
	}
	return ""
}

// unknownLabel says what is odd about the key of a requirement, or nothing: in the
// domains of Kubernetes and AWS it is hardly a label of the author's own.
func unknownLabel(key string) (message, help string) {
	domain, _, _ := strings.Cut(key, "/")
	official := domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, "k8s.aws")
	if !official || slices.Contains(wellKnownLabels(), key) {
		return "", ""
	}
	s := nearestLabel(key)
	if s == "" {
		return "", ""
	}
	return fmt.Sprintf("nothing sets the label %s on nodes", key), fmt.Sprintf("did you mean %s?", s)
}

// keyHelp suggests what the name of a map's entry, or the key of a requirement, was
// meant to be, "" if nothing is near or the place takes any.
func keyHelp(path []any, given string) string {
	var suggestion string
	for i := len(path) - 1; i >= 0 && suggestion == ""; i-- {
		switch path[i] {
		case "evictionHard", "evictionSoft", "evictionSoftGracePeriod":
			signals := []string{"memory.available", "allocatableMemory.available", "pid.available"}
			for _, disk := range []string{"nodefs", "imagefs", "containerfs"} {
				signals = append(signals, disk+".available", disk+".inodesFree")
			}
			return choiceHelp(given, signals)
		case "kubeReserved", "systemReserved":
			return choiceHelp(given, []string{"cpu", "memory", "ephemeral-storage", "pid"})
		case "requirements", "labels":
			if suggestion = nearestLabel(given); suggestion == "" || suggestion == given {
				return ""
			}
		case "schedule":
			suggestion = nearest(given, []string{"@annually", "@yearly", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
		}
	}
	if suggestion == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %s?", suggestion)
}
