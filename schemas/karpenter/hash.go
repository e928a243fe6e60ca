package karpenter

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/schemas/internal/hash"
)

// NodePoolHashVersion names the algorithm of NodePool.Hash. It differs from all
// of Karpenter's, so that a hash of one is never compared with a hash of the other.
const NodePoolHashVersion = "coppice-v1"

// Hash identifies what the pool's template asks of a node, apart from its
// requirements: a node whose claim carries another hash has drifted. Requirements
// are compared with the node itself.
func (p *NodePool) Hash() string {
	t := p.Spec.Template
	in := struct {
		Labels       map[string]string
		Annotations  map[string]string
		Taints       []corev1.Taint
		Startup      []corev1.Taint
		NodeClassRef *NodeClassReference
		Grace        string
		Expire       string
	}{
		Labels:       t.Labels,
		Annotations:  t.Annotations,
		Taints:       t.Spec.Taints,
		Startup:      t.Spec.StartupTaints,
		NodeClassRef: t.Spec.NodeClassRef,
	}
	// 60m and 1h ask for the same.
	if g := t.Spec.TerminationGracePeriod; g != nil {
		in.Grace = g.Duration.String()
	}
	if e := t.Spec.ExpireAfter; e.Duration != nil {
		in.Expire = e.Duration.String()
	} else if !e.IsZero() {
		in.Expire = Never
	}
	return hash.Of(in)
}
