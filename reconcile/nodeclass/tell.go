package nodeclass

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// transition is a condition that changed, as an event says it.
type transition struct {
	condition, eventType, text string
}

// transitions lists the conditions whose status or reason changed, in their order.
func transitions(before, after []metav1.Condition) []transition {
	var out []transition
	for _, c := range after {
		was := metav1.ConditionUnknown
		old := apimeta.FindStatusCondition(before, c.Type)
		if old != nil {
			if old.Status == c.Status && old.Reason == c.Reason {
				continue
			}
			was = old.Status
		}
		t := transition{condition: c.Type, eventType: corev1.EventTypeNormal, text: fmt.Sprintf("%s went from %s to %s", c.Type, was, c.Status)}
		if c.Status == metav1.ConditionFalse {
			t.eventType = corev1.EventTypeWarning
		}
		if c.Reason != c.Type {
			t.text += " (" + c.Reason + ")"
		}
		if c.Message != "" {
			t.text += ": " + c.Message
		}
		out = append(out, t)
	}
	return out
}

// namesInMessage is how many names a message lists.
const namesInMessage = 5

// waitingFor says which claims keep a class from going. The text is the same for the
// same claims, so that repeats of it are one event.
func waitingFor(claims []karpenter.NodeClaim) string {
	var names []string
	for _, c := range claims {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	more := ""
	if len(names) > namesInMessage {
		more = fmt.Sprintf(" and %d more", len(names)-namesInMessage)
		names = names[:namesInMessage]
	}
	return fmt.Sprintf("%d NodeClaims still refer to the class: %s%s", len(claims), strings.Join(names, ", "), more)
}
