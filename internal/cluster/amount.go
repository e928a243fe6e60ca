package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coppice-dev/coppice/internal/pack"
)

// Quantity is the inverse of Resources for one amount.
func Quantity(name string, amount int64) resource.Quantity {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU:
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return *resource.NewQuantity(amount, resource.BinarySI)
	}
	return *resource.NewQuantity(amount, resource.DecimalSI)
}

// ResourceList is the inverse of Resources.
func ResourceList(in pack.Resources) corev1.ResourceList {
	out := make(corev1.ResourceList, len(in))
	for name, amount := range in {
		out[corev1.ResourceName(name)] = Quantity(name, amount)
	}
	return out
}

// Amount writes an amount as people write it.
func Amount(name string, amount int64) string {
	q := Quantity(name, amount)
	return q.String()
}
