package kubelet

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Labels and taints of the cloud controller manager.
const (
	labelZoneID        = "topology.k8s.aws/zone-id"
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
)

// NewNode is the Node that a kubelet registers: not ready, and tainted until the
// cloud controller manager has looked at it.
func NewNode(m Machine, s Settings, version string, now time.Time) (*corev1.Node, error) {
	capacity := Capacity(m, s)
	allocatable, err := Allocatable(capacity, m, s)
	if err != nil {
		return nil, err
	}
	labels := maps.Clone(s.Labels)
	maps.Copy(labels, map[string]string{
		corev1.LabelHostname:      m.PrivateDNS,
		corev1.LabelArchStable:    m.Arch,
		corev1.LabelOSStable:      "linux",
		"beta.kubernetes.io/arch": m.Arch,
		"beta.kubernetes.io/os":   "linux",
	})
	// On EC2 the cloud controller manager adds these a moment later. That moment
	// is a race in kube-controller-manager 1.37, whose node lifecycle controller
	// panics when it meets a node in a zone that it hasn't counted yet
	// (markNodeAsReachable); with hundreds of nodes at once it's easily lost.
	maps.Copy(labels, cloudLabels(m))
	taints := append(slices.Clone(s.Taints), corev1.Taint{Key: taintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	osImage := "Amazon Linux 2023"
	if s.Family == Bottlerocket {
		osImage = "Bottlerocket OS (aws-k8s)"
	}
	at := metav1.NewTime(now)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.PrivateDNS, Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: m.ProviderID(), Taints: taints},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: allocatable,
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "the node has sufficient memory", at),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "the node has sufficient disk space", at),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "the node has sufficient process IDs", at),
				condition(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", "the pod network is not set up yet", at),
			},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: m.PrivateIP},
				{Type: corev1.NodeInternalDNS, Address: m.PrivateDNS},
				{Type: corev1.NodeHostName, Address: m.PrivateDNS},
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID:               strings.TrimPrefix(m.ID, "i-"),
				SystemUUID:              strings.TrimPrefix(m.ID, "i-"),
				BootID:                  bootID(m.ID),
				KernelVersion:           "6.12.0",
				OSImage:                 osImage,
				ContainerRuntimeVersion: "containerd://2.1.0",
				KubeletVersion:          version,
				OperatingSystem:         "linux",
				Architecture:            m.Arch,
			},
		},
	}, nil
}

// bootID is that of a machine's first boot.
func bootID(id string) string {
	return uuid(fmt.Sprintf("%032s", strings.TrimPrefix(id, "i-")))
}

// nextBootID is that of the boot after the one with the ID.
func nextBootID(id string) string { return uuid(fmt.Sprintf("%x", sha256.Sum256([]byte(id)))) }

// uuid forms an ID of hexadecimal digits.
func uuid(hex string) string {
	return strings.Join([]string{hex[:8], hex[8:12], hex[12:16], hex[16:20], hex[20:32]}, "-")
}

func condition(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string, at metav1.Time) corev1.NodeCondition {
	return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: at, LastTransitionTime: at}
}

// readyCondition is what the kubelet reports once pods can run.
func readyCondition(now time.Time) corev1.NodeCondition {
	return condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "the node accepts pods", metav1.NewTime(now))
}

// cloudLabels are what the cloud controller manager knows about a machine.
func cloudLabels(m Machine) map[string]string {
	return map[string]string{
		corev1.LabelInstanceTypeStable:      m.Type,
		corev1.LabelInstanceType:            m.Type,
		corev1.LabelTopologyZone:            m.Zone,
		corev1.LabelTopologyRegion:          m.Region,
		corev1.LabelFailureDomainBetaZone:   m.Zone,
		corev1.LabelFailureDomainBetaRegion: m.Region,
		labelZoneID:                         m.ZoneID,
	}
}

// isReady says whether the node reports itself ready.
func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// nodeOwner makes an object go when the Node goes.
func nodeOwner(name string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}}
}
