package stack

import (
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/cmd/sandbox/kubelet"
)

// labelNodeGroup is the label in which EKS names the managed node group of a node.
const labelNodeGroup = "eks.amazonaws.com/nodegroup"

// NotSystem selects all Nodes but the system's.
func NotSystem() client.ListOption {
	missing, err := labels.NewRequirement(labelNodeGroup, selection.DoesNotExist, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	return client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*missing)}
}

// systemNode is the machine that a cluster has before its autoscaler launches any: the
// one that the autoscaler runs on. No pod without the toleration comes to it, and it's
// none of the simulator's instances, so that it costs nothing.
//
// Without any node kube-scheduler takes each try for an error of its own, and tries a pod
// again after 1, 2, 4, 8 and then every 10 s, whatever has happened meanwhile.
func systemNode(region, cluster, endpoint string, ca []byte) kubelet.Machine {
	const address = "192.168.0.10"
	return kubelet.Machine{
		ID: "i-00000000000005757", Type: "m5.large", Region: region, Zone: region + "a", ZoneID: "usw2-az1", Arch: "amd64",
		PrivateIP: address, PrivateDNS: "ip-192-168-0-10." + region + ".compute.internal",
		VCPU: 2, MemoryMiB: 8192, RootGiB: rootGiB, ENIs: 3, IPv4PerENI: 10,
		UserData: fmt.Appendf(nil, `apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {name: %s, apiServerEndpoint: %s, certificateAuthority: %s, cidr: %s}
  kubelet:
    flags:
    - --node-labels=%s=%s
    - --register-with-taints=CriticalAddonsOnly=true:NoSchedule
`, cluster, endpoint, base64.StdEncoding.EncodeToString(ca), serviceCIDR, labelNodeGroup, "system"),
	}
}
