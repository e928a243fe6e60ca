package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/cmd/sandbox/stack"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// explainLimit bounds the calls that explain a failure.
const explainLimit = 5 * time.Second

// explainPods is how many pods are told of.
const explainPods = 8

// explain describes what stands in the way of pods, as far as the API server
// knows: pods that are not bound, nodes that take none, claims that are no nodes.
func (s *scene) explain(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, explainLimit)
	defer cancel()
	var b strings.Builder
	var pods corev1.PodList
	if err := s.client.List(ctx, &pods); err != nil {
		return err.Error()
	}
	unbound := 0
	for _, p := range pods.Items {
		if p.Spec.NodeName != "" {
			continue
		}
		if unbound++; unbound > explainPods {
			continue
		}
		fmt.Fprintf(&b, "pod %s is not bound", p.Name)
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled {
				fmt.Fprintf(&b, ": %s", c.Message)
			}
		}
		b.WriteString("\n")
	}
	if more := unbound - explainPods; more > 0 {
		fmt.Fprintf(&b, "… and %d more pods are not\n", more)
	}
	var nodes corev1.NodeList
	if err := s.client.List(ctx, &nodes, stack.NotSystem()); err != nil {
		return err.Error()
	}
	for _, n := range nodes.Items {
		var taints []string
		for _, t := range n.Spec.Taints {
			taints = append(taints, t.ToString())
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && (c.Status != corev1.ConditionTrue || len(taints) > 0) {
				fmt.Fprintf(&b, "node %s: Ready is %s, taints %q\n", n.Name, c.Status, taints)
			}
		}
	}
	var claims karpenter.NodeClaimList
	if err := s.client.List(ctx, &claims); err != nil {
		return b.String()
	}
	for _, c := range claims.Items {
		for _, cond := range c.Status.Conditions {
			if cond.Type == karpenter.ConditionReady && cond.Status != metav1.ConditionTrue {
				fmt.Fprintf(&b, "NodeClaim %s (%s) is not ready: %s %s\n", c.Name, c.Status.ProviderID, cond.Reason, cond.Message)
			}
		}
	}
	for _, f := range s.stack.Kubelets.Failures() {
		fmt.Fprintf(&b, "machine %s did not become a node: %s\n", f.Machine, f.Reason)
	}
	return b.String()
}
