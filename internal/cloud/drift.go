package cloud

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Reasons for which an instance isn't what its class would launch today.
const (
	// NodeClassDrift: the class's spec is another than at the launch.
	NodeClassDrift = "NodeClassDrift"
	// AMIDrift: the class would take another image for the instance's type.
	AMIDrift = "AMIDrift"
	// SecurityGroupDrift: the instance isn't in exactly the class's security groups.
	SecurityGroupDrift = "SecurityGroupDrift"
	// SubnetDrift: the instance is in none of the class's subnets.
	SubnetDrift = "SubnetDrift"
	// CapacityReservationDrift: the instance uses a reservation that the class no
	// longer selects.
	CapacityReservationDrift = "CapacityReservationDrift"
)

// Drifted says why the class would not launch the instance like this today, or "" if
// it would. The claim holds what was true at the launch: the class's hash in its
// annotations and the type in its labels. What the class's selectors find counts
// only while it is known to be current, so that a class in trouble drifts nothing.
func Drifted(class *aws.EC2NodeClass, claim *karpenter.NodeClaim, instance Instance) string {
	// Hashes of different algorithms say nothing about each other.
	if claim.Annotations[aws.AnnotationEC2NodeClassHashVersion] == aws.EC2NodeClassHashVersion &&
		claim.Annotations[aws.AnnotationEC2NodeClassHash] != class.Hash() {
		return NodeClassDrift
	}
	if current(class, aws.ConditionAMIsReady) && claim.Labels[corev1.LabelArchStable] != "" {
		if image, ok := ImageFor(class.Status.AMIs, claim.Labels); !ok || image != instance.ImageID {
			return AMIDrift
		}
	}
	if current(class, aws.ConditionSecurityGroupsReady) {
		var want []string
		for _, g := range class.Status.SecurityGroups {
			want = append(want, g.ID)
		}
		slices.Sort(want)
		if !slices.Equal(want, instance.SecurityGroupIDs) {
			return SecurityGroupDrift
		}
	}
	if current(class, aws.ConditionSubnetsReady) &&
		!slices.ContainsFunc(class.Status.Subnets, func(s aws.Subnet) bool { return s.ID == instance.SubnetID }) {
		return SubnetDrift
	}
	if instance.CapacityType == Reserved && current(class, aws.ConditionCapacityReservationsReady) &&
		!slices.ContainsFunc(class.Status.CapacityReservations, func(r aws.CapacityReservation) bool { return r.ID == instance.ReservationID }) {
		return CapacityReservationDrift
	}
	return ""
}

// current says whether the condition holds for the class as it stands.
func current(class *aws.EC2NodeClass, condition string) bool {
	c := apimeta.FindStatusCondition(class.Status.Conditions, condition)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == class.Generation
}

// ImageFor returns the first image, in the status' order of preference, that runs on
// nodes with these labels.
func ImageFor(images []aws.AMI, labels map[string]string) (string, bool) {
	for _, image := range images {
		if !slices.ContainsFunc(image.Requirements, func(r corev1.NodeSelectorRequirement) bool { return !meets(labels, r) }) {
			return image.ID, true
		}
	}
	return "", false
}

// meets says whether labels fulfil one requirement of an image. Images know only
// these operators.
func meets(labels map[string]string, r corev1.NodeSelectorRequirement) bool {
	value, has := labels[r.Key]
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return has && slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpExists:
		return has
	case corev1.NodeSelectorOpDoesNotExist:
		return !has
	}
	return false
}
