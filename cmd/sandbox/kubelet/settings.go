package kubelet

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Settings is what user data asks of a kubelet.
type Settings struct {
	// Family is the operating system that reads the user data.
	Family string

	ClusterName string
	Endpoint    string
	// CA is in PEM.
	CA []byte

	Labels map[string]string
	Taints []corev1.Taint
	// MaxPods is 0 if the agent computes it.
	MaxPods int64
	// PodsPerCore is 0 if unlimited.
	PodsPerCore int64
	// KubeReserved, SystemReserved and EvictionHard replace the agent's
	// defaults signal by signal.
	KubeReserved, SystemReserved map[string]string
	EvictionHard                 map[string]string
}

// Names of the families that are read.
const (
	AL2023       = "AL2023"
	Bottlerocket = "Bottlerocket"
)

// ParseUserData reads user data as the machine's agent would.
func ParseUserData(data []byte) (Settings, error) {
	text := bytes.TrimSpace(data)
	switch {
	case len(text) == 0:
		return Settings{}, errors.New("user data is empty: nothing tells the machine which cluster to join")
	case isMIME(text), bytes.HasPrefix(text, []byte("apiVersion: node.eks.aws/")), bytes.HasPrefix(text, []byte("---")):
		return parseAL2023(data)
	case bytes.HasPrefix(text, []byte("<powershell>")):
		return Settings{}, errors.New("user data is for Windows, which the sandbox has no machines of")
	case bytes.HasPrefix(text, []byte("#!")), bytes.HasPrefix(text, []byte("#cloud-config")):
		return Settings{}, errors.New("user data is a script, which the sandbox does not run: use AL2023 or Bottlerocket")
	}
	return parseBottlerocket(text)
}

// validate refuses what would keep the agent or the kubelet from starting.
func (s Settings) validate() error {
	switch {
	case s.ClusterName == "":
		return errors.New("user data names no cluster")
	case s.Endpoint == "":
		return errors.New("user data names no API server endpoint")
	case len(s.CA) == 0:
		return errors.New("user data holds no certificate authority")
	}
	if block, _ := pem.Decode(s.CA); block == nil {
		return errors.New("the certificate authority in the user data is not PEM")
	} else if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		return fmt.Errorf("the certificate authority in the user data: %w", err)
	}
	if s.MaxPods < 0 || s.PodsPerCore < 0 {
		return errors.New("a negative number of pods")
	}
	var refused []string
	for key, value := range s.Labels {
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			return fmt.Errorf("label %q: %s", key, strings.Join(errs, "; "))
		}
		if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
			return fmt.Errorf("label %s=%q: %s", key, value, strings.Join(errs, "; "))
		}
		if !labelAllowed(key) {
			refused = append(refused, key)
		}
	}
	if len(refused) > 0 {
		slices.Sort(refused)
		return fmt.Errorf("the kubelet may not set labels %s: they belong to kubernetes.io or k8s.io", strings.Join(refused, ", "))
	}
	for _, t := range s.Taints {
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return fmt.Errorf("taint %s has effect %q", t.Key, t.Effect)
		}
	}
	return nil
}

// labelAllowed says whether a kubelet may give its own Node a label. Outside of
// these names everything in the two reserved domains is refused, see
// https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/
// under --node-labels.
func labelAllowed(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	if !qualified {
		return true
	}
	within := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	if !within("kubernetes.io") && !within("k8s.io") {
		return true
	}
	if within("kubelet.kubernetes.io") || within("node.kubernetes.io") {
		return true
	}
	switch key {
	case corev1.LabelHostname, corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType,
		"beta.kubernetes.io/arch", "beta.kubernetes.io/os":
		return true
	}
	return false
}

// parseLabels reads the value of --node-labels.
func parseLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	for _, pair := range strings.Split(text, ",") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("node label %q has no value", pair)
		}
		labels[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return labels, nil
}

// parseTaint reads key=value:effect or key:effect.
func parseTaint(text string) (corev1.Taint, error) {
	rest, effect, ok := strings.Cut(text, ":")
	if !ok {
		return corev1.Taint{}, fmt.Errorf("taint %q has no effect", text)
	}
	key, value, _ := strings.Cut(rest, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}

func parseCA(encoded string) ([]byte, error) {
	ca, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("the certificate authority in the user data: %w", err)
	}
	return ca, nil
}

// threshold is how much of a capacity an eviction signal keeps free.
func threshold(text string, capacity resource.Quantity) (resource.Quantity, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		p, err := strconv.ParseFloat(percent, 64)
		if err != nil || p < 0 || p > 100 {
			return resource.Quantity{}, fmt.Errorf("%q is no percentage", text)
		}
		return *resource.NewQuantity(int64(float64(capacity.Value())*p/100), resource.BinarySI), nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}, fmt.Errorf("%q: %w", text, err)
	}
	return q, nil
}
