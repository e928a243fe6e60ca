package cloud_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestDrifted(t *testing.T) {
	arch := func(a string) []corev1.NodeSelectorRequirement {
		return []corev1.NodeSelectorRequirement{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{a}}}
	}
	gpu := append(arch("amd64"), corev1.NodeSelectorRequirement{Key: aws.LabelInstanceGPUCount, Operator: corev1.NodeSelectorOpExists})
	plain := append(arch("amd64"), corev1.NodeSelectorRequirement{Key: aws.LabelInstanceGPUCount, Operator: corev1.NodeSelectorOpDoesNotExist})
	tests := map[string]struct {
		why    string
		change func(class *aws.EC2NodeClass, claim *karpenter.NodeClaim, i *cloud.Instance)
		want   string
	}{
		"same": {"", func(*aws.EC2NodeClass, *karpenter.NodeClaim, *cloud.Instance) {}, ""},
		"spec": {"a static field changed since the launch",
			func(c *aws.EC2NodeClass, _ *karpenter.NodeClaim, _ *cloud.Instance) {
				c.Spec.Tags = map[string]string{"a": "b"}
			}, cloud.NodeClassDrift},
		"other algorithm": {"Karpenter's hash says nothing about ours",
			func(c *aws.EC2NodeClass, n *karpenter.NodeClaim, _ *cloud.Instance) {
				c.Spec.Tags = map[string]string{"a": "b"}
				n.Annotations[aws.AnnotationEC2NodeClassHashVersion] = "v4"
			}, ""},
		"adopted": {"a claim without a hash is left alone",
			func(c *aws.EC2NodeClass, n *karpenter.NodeClaim, _ *cloud.Instance) {
				c.Spec.Tags = map[string]string{"a": "b"}
				n.Annotations = nil
			}, ""},
		"selectors": {"what selectors say is dynamic: what they find counts",
			func(c *aws.EC2NodeClass, _ *karpenter.NodeClaim, _ *cloud.Instance) {
				c.Spec.SubnetSelectorTerms = []aws.SubnetSelectorTerm{{ID: "subnet-1"}}
			}, ""},
		"newer image": {"", func(c *aws.EC2NodeClass, _ *karpenter.NodeClaim, _ *cloud.Instance) {
			c.Status.AMIs = append([]aws.AMI{{ID: "ami-new", Requirements: plain}}, c.Status.AMIs...)
		}, cloud.AMIDrift},
		"newer image of another kind": {"an image for GPUs is none for this type",
			func(c *aws.EC2NodeClass, _ *karpenter.NodeClaim, _ *cloud.Instance) {
				c.Status.AMIs = append([]aws.AMI{{ID: "ami-new", Requirements: gpu}}, c.Status.AMIs...)
			}, ""},
		"no image left for the type": {"", func(c *aws.EC2NodeClass, _ *karpenter.NodeClaim, _ *cloud.Instance) {
			c.Status.AMIs = []aws.AMI{{ID: "ami-1", Requirements: arch("arm64")}}
		}, cloud.AMIDrift},
		"images unknown": {"a class that lost its images for now drifts nothing",
			func(c *aws.EC2NodeClass, _ *karpenter.NodeClaim, _ *cloud.Instance) {
				c.Status.AMIs = nil
				c.Status.Conditions[0].Status = metav1.ConditionFalse
			}, ""},
		"images of an older spec": {"", func(c *aws.EC2NodeClass, _ *karpenter.NodeClaim, _ *cloud.Instance) {
			c.Status.AMIs[0].ID = "ami-new"
			c.Generation++
		}, ""},
		"another group": {"", func(c *aws.EC2NodeClass, _ *karpenter.NodeClaim, _ *cloud.Instance) {
			c.Status.SecurityGroups = append(c.Status.SecurityGroups, aws.SecurityGroup{ID: "sg-3"})
		}, cloud.SecurityGroupDrift},
		"a group less": {"", func(_ *aws.EC2NodeClass, _ *karpenter.NodeClaim, i *cloud.Instance) {
			i.SecurityGroupIDs = []string{"sg-1"}
		}, cloud.SecurityGroupDrift},
		"subnet": {"", func(_ *aws.EC2NodeClass, _ *karpenter.NodeClaim, i *cloud.Instance) { i.SubnetID = "subnet-9" }, cloud.SubnetDrift},
		"reservation": {"", func(_ *aws.EC2NodeClass, _ *karpenter.NodeClaim, i *cloud.Instance) {
			i.CapacityType, i.ReservationID = cloud.Reserved, "cr-9"
		}, cloud.CapacityReservationDrift},
		"reservation selected": {"", func(_ *aws.EC2NodeClass, _ *karpenter.NodeClaim, i *cloud.Instance) {
			i.CapacityType, i.ReservationID = cloud.Reserved, "cr-1"
		}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			class := &aws.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default", Generation: 3}, Status: aws.EC2NodeClassStatus{
				AMIs:                 []aws.AMI{{ID: "ami-1", Requirements: plain}, {ID: "ami-0", Requirements: plain}},
				SecurityGroups:       []aws.SecurityGroup{{ID: "sg-2"}, {ID: "sg-1"}},
				Subnets:              []aws.Subnet{{ID: "subnet-1"}, {ID: "subnet-2"}},
				CapacityReservations: []aws.CapacityReservation{{ID: "cr-1"}},
			}}
			for _, c := range []string{aws.ConditionAMIsReady, aws.ConditionSecurityGroupsReady, aws.ConditionSubnetsReady, aws.ConditionCapacityReservationsReady} {
				class.Status.Conditions = append(class.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, ObservedGeneration: 3})
			}
			claim := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{corev1.LabelArchStable: "amd64"},
				Annotations: map[string]string{
					aws.AnnotationEC2NodeClassHash: class.Hash(), aws.AnnotationEC2NodeClassHashVersion: aws.EC2NodeClassHashVersion,
				},
			}}
			instance := cloud.Instance{ImageID: "ami-1", SecurityGroupIDs: []string{"sg-1", "sg-2"}, SubnetID: "subnet-2", CapacityType: cloud.Spot}
			tt.change(class, claim, &instance)
			if got := cloud.Drifted(class, claim, instance); got != tt.want {
				t.Errorf("%s: drift is %q, want %q", tt.why, got, tt.want)
			}
		})
	}
}
