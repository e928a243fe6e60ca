package ec2

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// maxUserData is EC2's limit in bytes, before base64.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html
const maxUserData = 16384

// cluster is what a node has to know to find its API server.
type cluster struct {
	name     string
	endpoint string
	ca       string // base64 of PEM, "" if unknown
	cidr     string // of services
}

// bootstrap is all that user data is made from.
type bootstrap struct {
	family  family
	cluster cluster
	kubelet kubelet
	maxPods int64
	labels  map[string]string
	taints  []corev1.Taint
	raid0   bool
	custom  string // the class's own user data
}

// dnsHost is which of the service addresses EKS gives to the cluster's DNS.
// https://docs.aws.amazon.com/eks/latest/userguide/managing-coredns.html
const dnsHost = 10

// dns is the address of the cluster's DNS: what the class says, or else what EKS
// gives it. It is "" if the range of service addresses isn't known.
func (b *bootstrap) dns() string {
	if given := b.kubelet.ClusterDNS; len(given) > 0 {
		return given[0]
	}
	services, err := netip.ParsePrefix(b.cluster.cidr)
	if err != nil {
		return ""
	}
	a := services.Masked().Addr()
	for range dnsHost {
		a = a.Next()
	}
	if !services.Contains(a) {
		return ""
	}
	return a.String()
}

// userData writes what an instance of the family needs to join the cluster, with
// the class's own user data merged in as the family allows. Equal input gives equal
// bytes.
func userData(b bootstrap) (string, error) {
	var text string
	var err error
	switch b.family {
	case al2023:
		text, err = nodeadmData(b)
	case al2:
		text, err = bootstrapScriptData(b)
	case bottlerocket:
		text, err = bottlerocketData(b)
	case windows2019, windows2022, windows2025:
		text, err = powershellData(b)
	case custom:
		text = b.custom
	default:
		return "", fmt.Errorf("AMI family %q is unknown", b.family)
	}
	if err != nil {
		return "", fmt.Errorf("user data: %w", err)
	}
	if len(text) > maxUserData {
		return "", &userDataTooLong{len(text)}
	}
	return text, nil
}

// userDataTooLong says that user data has more bytes than EC2 takes.
type userDataTooLong struct{ bytes int }

func (e *userDataTooLong) Error() string {
	return fmt.Sprintf("user data: %d bytes are more than the %d that EC2 takes; shorten spec.userData", e.bytes, maxUserData)
}

// nodeTaints are what the kubelet registers with: the pool's, then those that go
// once the node has started, then ours, which keeps pods away until the claim's
// controller has met the node.
func nodeTaints(pool, startup []corev1.Taint) []corev1.Taint {
	return slices.Concat(pool, startup, []corev1.Taint{karpenter.UnregisteredTaint()})
}

// kubeletLabels returns the labels that the API server lets a kubelet give itself:
// of the kubernetes.io and k8s.io domains only two are open to it. The others come
// from the kubelet itself or are put on the Node when it registers.
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
func kubeletLabels(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	for k, v := range labels {
		domain, _, hasDomain := strings.Cut(k, "/")
		if !hasDomain {
			domain = ""
		}
		switch {
		case k == corev1.LabelInstanceTypeStable || k == karpenter.LabelWindowsBuild:
			continue
		case within(domain, "node.kubernetes.io") || within(domain, "kubelet.kubernetes.io"):
		case within(domain, "kubernetes.io") || within(domain, "k8s.io"):
			continue
		}
		out[k] = v
	}
	return out
}

func within(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}

// labelArgument is the value of --node-labels.
func labelArgument(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return strings.Join(out, ",")
}

// taintArgument is the value of --register-with-taints.
func taintArgument(taints []corev1.Taint) string {
	var out []string
	for _, t := range taints {
		out = append(out, fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect))
	}
	return strings.Join(out, ",")
}

// kubeletFlag is the command-line flag of a field of KubeletConfiguration, or "" if
// the images that take flags don't know it.
func kubeletFlag(field string) string {
	switch field {
	case "podsPerCore":
		return "pods-per-core"
	case "systemReserved":
		return "system-reserved"
	case "kubeReserved":
		return "kube-reserved"
	case "evictionHard":
		return "eviction-hard"
	case "evictionSoft":
		return "eviction-soft"
	case "evictionSoftGracePeriod":
		return "eviction-soft-grace-period"
	case "evictionMaxPodGracePeriod":
		return "eviction-max-pod-grace-period"
	case "imageGCHighThresholdPercent":
		return "image-gc-high-threshold"
	case "imageGCLowThresholdPercent":
		return "image-gc-low-threshold"
	case "cpuCFSQuota":
		return "cpu-cfs-quota"
	}
	return ""
}

// kubeletArguments are the kubelet's flags for a node, sorted by name, with values
// quoted by quote.
func kubeletArguments(b bootstrap, quote func(string) string) []string {
	out := []string{
		fmt.Sprintf("--max-pods=%d", b.maxPods),
		"--node-labels=" + quote(labelArgument(b.labels)),
		"--register-with-taints=" + quote(taintArgument(b.taints)),
	}
	for field, value := range b.kubelet.fields {
		flag := kubeletFlag(field)
		if flag == "" || field == "podsPerCore" && !b.family.podsPerCore() {
			continue
		}
		if table, ok := value.(map[string]any); ok {
			// Thresholds are written signal<quantity, everything else name=quantity.
			sign := "="
			if field == "evictionHard" || field == "evictionSoft" {
				sign = "<"
			}
			var pairs []string
			for _, k := range slices.Sorted(maps.Keys(table)) {
				pairs = append(pairs, fmt.Sprint(k, sign, table[k]))
			}
			out = append(out, "--"+flag+"="+quote(strings.Join(pairs, ",")))
			continue
		}
		out = append(out, fmt.Sprintf("--%s=%v", flag, value))
	}
	slices.Sort(out)
	return out
}

// ownPowershell takes a class's user data apart: the script, and what is beside it, such
// as <persist>. The tags are EC2's, in any case; without them all is script.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-windows-user-data.html
func ownPowershell(text string) (script, beside string, err error) {
	const open, end = "<powershell>", "</powershell>"
	lower := strings.Map(func(r rune) rune { // keeps positions
		if 'A' <= r && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, text)
	from, to := strings.Index(lower, open), strings.Index(lower, end)
	switch {
	case from < 0 && to < 0:
		return strings.TrimSpace(text), "", nil
	case from < 0 || to < from || strings.Count(lower, open) != 1 || strings.Count(lower, end) != 1:
		return "", "", fmt.Errorf("spec.userData must have one %s and one %s behind it, or neither", open, end)
	}
	script = strings.TrimSpace(text[from+len(open) : to])
	beside = strings.TrimSpace(strings.TrimSpace(text[:from]) + "\n" + strings.TrimSpace(text[to+len(end):]))
	return script, beside, nil
}

// powershellData starts a Windows node. The class's own script runs first.
func powershellData(b bootstrap) (string, error) {
	quote := func(s string) string { return `'` + strings.ReplaceAll(s, `'`, `''`) + `'` }
	own, beside, err := ownPowershell(b.custom)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("<powershell>\n")
	if own != "" {
		out.WriteString(own + "\n")
	}
	arguments := strings.Join(kubeletArguments(b, func(s string) string { return `"` + s + `"` }), " ")
	fmt.Fprintf(&out, `& "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1" -EKSClusterName %s -APIServerEndpoint %s`,
		quote(b.cluster.name), quote(b.cluster.endpoint))
	if b.cluster.ca != "" {
		out.WriteString(" -Base64ClusterCA " + quote(b.cluster.ca))
	}
	out.WriteString(" -KubeletExtraArgs " + quote(arguments))
	if dns := b.dns(); dns != "" {
		out.WriteString(" -DNSClusterIP " + quote(dns))
	}
	out.WriteString("\n</powershell>\n")
	if beside != "" {
		out.WriteString(beside + "\n")
	}
	return out.String(), nil
}
