package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/mail"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// nodeConfigType is the MIME type of the part that nodeadm, AL2023's agent, reads.
const nodeConfigType = "application/node.eks.aws"

// nodeConfig is the part of nodeadm's NodeConfig (node.eks.aws/v1alpha1) that
// decides what becomes of the Node; see
// https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/api/.
type nodeConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Cluster struct {
			Name                 string `json:"name"`
			APIServerEndpoint    string `json:"apiServerEndpoint"`
			CertificateAuthority string `json:"certificateAuthority"`
			CIDR                 string `json:"cidr"`
		} `json:"cluster"`
		Kubelet struct {
			Config kubeletConfig `json:"config"`
			Flags  []string      `json:"flags"`
		} `json:"kubelet"`
	} `json:"spec"`
}

// kubeletConfig is the part of KubeletConfiguration that shows in the Node.
type kubeletConfig struct {
	MaxPods            *int64            `json:"maxPods"`
	PodsPerCore        *int64            `json:"podsPerCore"`
	RegisterWithTaints []corev1.Taint    `json:"registerWithTaints"`
	KubeReserved       map[string]string `json:"kubeReserved"`
	SystemReserved     map[string]string `json:"systemReserved"`
	EvictionHard       map[string]string `json:"evictionHard"`
}

func isMIME(text []byte) bool {
	head, _, _ := bytes.Cut(text, []byte("\n"))
	name, _, _ := bytes.Cut(head, []byte(":"))
	return bytes.EqualFold(name, []byte("MIME-Version")) || bytes.EqualFold(name, []byte("Content-Type"))
}

// parseAL2023 reads one NodeConfig, or a MIME document with any number of them,
// of which a later one overrides an earlier one field by field. Parts of other
// types are for cloud-init and say nothing about the Node.
func parseAL2023(data []byte) (Settings, error) {
	docs := [][]byte{data}
	if isMIME(bytes.TrimSpace(data)) {
		var err error
		if docs, err = nodeConfigs(data); err != nil {
			return Settings{}, err
		}
		if len(docs) == 0 {
			return Settings{}, errors.New("user data has no part of type " + nodeConfigType + ": nothing tells the machine which cluster to join")
		}
	}
	s := Settings{Family: AL2023, Labels: map[string]string{}}
	var cidr, ca string
	var flags []string
	for _, doc := range docs {
		var cfg nodeConfig
		if err := yaml.Unmarshal(doc, &cfg); err != nil {
			return Settings{}, fmt.Errorf("read the NodeConfig: %w", err)
		}
		if cfg.Kind != "NodeConfig" || cfg.APIVersion != "node.eks.aws/v1alpha1" {
			return Settings{}, fmt.Errorf("kind %q of %q is no NodeConfig of node.eks.aws/v1alpha1", cfg.Kind, cfg.APIVersion)
		}
		override(&s.ClusterName, cfg.Spec.Cluster.Name)
		override(&s.Endpoint, cfg.Spec.Cluster.APIServerEndpoint)
		override(&ca, cfg.Spec.Cluster.CertificateAuthority)
		override(&cidr, cfg.Spec.Cluster.CIDR)
		s.apply(cfg.Spec.Kubelet.Config)
		flags = append(flags, cfg.Spec.Kubelet.Flags...)
	}
	if cidr == "" {
		return Settings{}, errors.New("user data names no service CIDR")
	}
	var err error
	if s.CA, err = parseCA(ca); err != nil {
		return Settings{}, err
	}
	// The command line overrides the configuration file.
	if err := s.applyFlags(flags); err != nil {
		return Settings{}, err
	}
	return s, s.validate()
}

func override(field *string, value string) {
	if value != "" {
		*field = value
	}
}

func (s *Settings) apply(cfg kubeletConfig) {
	if cfg.MaxPods != nil {
		s.MaxPods = *cfg.MaxPods
	}
	if cfg.PodsPerCore != nil {
		s.PodsPerCore = *cfg.PodsPerCore
	}
	if cfg.RegisterWithTaints != nil {
		s.Taints = cfg.RegisterWithTaints
	}
	for _, m := range []struct {
		to   *map[string]string
		from map[string]string
	}{
		{&s.KubeReserved, cfg.KubeReserved}, {&s.SystemReserved, cfg.SystemReserved}, {&s.EvictionHard, cfg.EvictionHard},
	} {
		if *m.to == nil {
			*m.to = map[string]string{}
		}
		maps.Copy(*m.to, m.from)
	}
}

// applyFlags reads the kubelet's flags, each in an item of its own with its value
// after an equals sign; flags that don't show in the Node are passed over.
func (s *Settings) applyFlags(flags []string) error {
	for _, flag := range flags {
		name, value, ok := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		if !ok {
			continue
		}
		value = strings.Trim(value, `"'`)
		switch name {
		case "node-labels":
			labels, err := parseLabels(value)
			if err != nil {
				return err
			}
			s.Labels = labels
		case "register-with-taints":
			s.Taints = nil
			for _, text := range strings.Split(value, ",") {
				if text == "" {
					continue
				}
				t, err := parseTaint(text)
				if err != nil {
					return err
				}
				s.Taints = append(s.Taints, t)
			}
		case "max-pods":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return fmt.Errorf("--max-pods=%s: %w", value, err)
			}
			s.MaxPods = n
		}
	}
	return nil
}

// nodeConfigs returns the parts of a MIME document that nodeadm reads, in order.
func nodeConfigs(data []byte) ([][]byte, error) {
	msg, err := mail.ReadMessage(bytes.NewReader(bytes.TrimLeft(data, " \t\r\n")))
	if err != nil {
		return nil, fmt.Errorf("read the user data as MIME: %w", err)
	}
	kind, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	if err != nil {
		return nil, fmt.Errorf("read the user data as MIME: %w", err)
	}
	if kind == nodeConfigType {
		body, err := io.ReadAll(msg.Body)
		if err != nil {
			return nil, fmt.Errorf("read the user data as MIME: %w", err)
		}
		return [][]byte{body}, nil
	}
	if !strings.HasPrefix(kind, "multipart/") {
		return nil, nil
	}
	var docs [][]byte
	parts := multipart.NewReader(msg.Body, params["boundary"])
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a part of the user data: %w", err)
		}
		kind, _, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
		if err != nil || kind != nodeConfigType {
			continue
		}
		body, err := io.ReadAll(part)
		if err != nil {
			return nil, fmt.Errorf("read a part of the user data: %w", err)
		}
		docs = append(docs, body)
	}
}
