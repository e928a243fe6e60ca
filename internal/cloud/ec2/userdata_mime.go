package ec2

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/textproto"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	mimeNodeConfig = "application/node.eks.aws"
	mimeScript     = `text/x-shellscript; charset="us-ascii"`
)

// part is one part of a MIME archive.
type part struct {
	header textproto.MIMEHeader
	body   []byte
}

// nodeadmData is for AL2023, whose nodeadm merges the NodeConfigs of an archive in
// order, the last one winning: ours comes last, so that a class can't undo what
// the cluster needs.
// https://awslabs.github.io/amazon-eks-ami/nodeadm/
func nodeadmData(b bootstrap) (string, error) {
	config := map[string]any{}
	for k, v := range b.kubelet.fields {
		config[k] = v
	}
	config["maxPods"] = b.maxPods
	var taints []any
	for _, t := range b.taints {
		taint := map[string]any{"key": t.Key, "effect": string(t.Effect)}
		if t.Value != "" {
			taint["value"] = t.Value
		}
		taints = append(taints, taint)
	}
	if len(taints) > 0 {
		config["registerWithTaints"] = taints
	}
	join := map[string]any{"name": b.cluster.name, "apiServerEndpoint": b.cluster.endpoint, "cidr": b.cluster.cidr}
	if b.cluster.ca != "" {
		join["certificateAuthority"] = b.cluster.ca
	}
	kubelet := map[string]any{"config": config}
	if len(b.labels) > 0 {
		kubelet["flags"] = []any{fmt.Sprintf(`--node-labels="%s"`, labelArgument(b.labels))}
	}
	spec := map[string]any{"cluster": join, "kubelet": kubelet}
	if b.raid0 {
		spec["instance"] = map[string]any{"localStorage": map[string]any{"strategy": "RAID0"}}
	}
	body, err := yaml.Marshal(map[string]any{"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec})
	if err != nil {
		return "", fmt.Errorf("write NodeConfig: %w", err)
	}
	parts, err := ownParts(b.custom)
	if err != nil {
		return "", err
	}
	ours := part{textproto.MIMEHeader{"Content-Type": {mimeNodeConfig}}, append([]byte("# Written by Coppice.\n"), body...)}
	return archive(append(parts, ours))
}

// bootstrapScriptData is for AL2, whose image has a script that joins the cluster.
func bootstrapScriptData(b bootstrap) (string, error) {
	quote := func(s string) string { return `'` + strings.ReplaceAll(s, `'`, `'\''`) + `'` }
	lines := []string{
		"/etc/eks/bootstrap.sh " + quote(b.cluster.name),
		"--apiserver-endpoint " + quote(b.cluster.endpoint),
	}
	if b.cluster.ca != "" {
		lines = append(lines, "--b64-cluster-ca "+quote(b.cluster.ca))
	}
	// Once it is given endpoint and CA the script asks EKS nothing more: it would take
	// the cluster for one of IPv4 and guess the address of its DNS.
	dns := b.dns()
	if dns != "" {
		lines = append(lines, "--dns-cluster-ip "+quote(dns))
	}
	if strings.Contains(cmp.Or(b.cluster.cidr, dns), ":") {
		lines = append(lines, "--ip-family ipv6")
	}
	lines = append(lines, "--use-max-pods false")
	if b.raid0 {
		lines = append(lines, "--local-disks raid0")
	}
	arguments := kubeletArguments(b, func(s string) string { return `"` + s + `"` })
	lines = append(lines, "--kubelet-extra-args "+quote(strings.Join(arguments, " ")))
	script := "#!/bin/bash\nset -e\n" + strings.Join(lines, " \\\n  ") + "\n"

	parts, err := ownParts(b.custom)
	if err != nil {
		return "", err
	}
	return archive(append(parts, part{textproto.MIMEHeader{"Content-Type": {mimeScript}}, []byte(script)}))
}

// ownParts splits a class's user data: a MIME archive into its parts, a NodeConfig
// or a script into one.
func ownParts(text string) ([]part, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if m, err := mail.ReadMessage(strings.NewReader(strings.TrimLeft(text, "\n\r\t "))); err == nil {
		kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
		if err == nil && strings.HasPrefix(kind, "multipart/") {
			return readArchive(m.Body, params["boundary"])
		}
	}
	if isNodeConfig(text) {
		return []part{{textproto.MIMEHeader{"Content-Type": {mimeNodeConfig}}, []byte(text)}}, nil
	}
	if isArchive(text) {
		return nil, fmt.Errorf("spec.userData begins like a MIME archive but has no readable header; check the lines before the first boundary")
	}
	return []part{{textproto.MIMEHeader{"Content-Type": {mimeScript}}, []byte(text)}}, nil
}

func readArchive(body io.Reader, boundary string) ([]part, error) {
	var parts []part
	r := multipart.NewReader(body, boundary)
	for {
		p, err := r.NextRawPart()
		if err == io.EOF {
			return parts, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read part %d of the MIME archive in spec.userData: %w", len(parts)+1, err)
		}
		data, err := io.ReadAll(p)
		if err != nil {
			return nil, fmt.Errorf("read part %d of the MIME archive in spec.userData: %w", len(parts)+1, err)
		}
		parts = append(parts, part{p.Header, data})
	}
}

func isArchive(text string) bool {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	first = strings.ToLower(first)
	return strings.HasPrefix(first, "mime-version:") || strings.HasPrefix(first, "content-type: multipart/")
}

func isNodeConfig(text string) bool {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	err := yaml.Unmarshal([]byte(text), &head)
	return err == nil && head.Kind == "NodeConfig" && strings.HasPrefix(head.APIVersion, "node.eks.aws/")
}

// archive writes parts as multipart/mixed.
func archive(parts []part) (string, error) {
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	boundary := freeBoundary(parts)
	if err := w.SetBoundary(boundary); err != nil {
		return "", fmt.Errorf("write MIME archive: %w", err)
	}
	fmt.Fprintf(&out, "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=%q\r\n\r\n", boundary)
	for _, p := range parts {
		pw, err := w.CreatePart(p.header)
		if err != nil {
			return "", fmt.Errorf("write MIME archive: %w", err)
		}
		if _, err := pw.Write(p.body); err != nil {
			return "", fmt.Errorf("write MIME archive: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return "", fmt.Errorf("write MIME archive: %w", err)
	}
	return out.String(), nil
}

// freeBoundary is a boundary that no part contains: "//", which the EKS examples
// use, or a longer one.
func freeBoundary(parts []part) string {
	boundary := "//"
	for n := 1; slices.ContainsFunc(parts, func(p part) bool { return bytes.Contains(p.body, []byte("--"+boundary)) }); n++ {
		boundary = fmt.Sprintf("//part-%d", n)
	}
	return boundary
}
