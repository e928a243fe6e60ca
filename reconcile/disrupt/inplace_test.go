package disrupt

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

func TestFollowing(t *testing.T) {
	all := sugar.InPlace{Labels: []string{"team", "x/*"}, Annotations: []string{"*"}, Taints: []string{"dedicated"}, Tags: []string{"cost"}}
	taint := func(key, value string) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
	}
	tests := map[string]struct {
		why   string
		o     sugar.InPlace
		alter func(*karpenter.NodePool, *aws.EC2NodeClass, *karpenter.NodeClaim)
		want  follow
	}{
		"as it is": {"nothing is to be done twice", all, func(*karpenter.NodePool, *aws.EC2NodeClass, *karpenter.NodeClaim) {}, replaced},
		"without a template": {"one launched before the pool wanted it", all, func(_ *karpenter.NodePool, _ *aws.EC2NodeClass, c *karpenter.NodeClaim) {
			delete(c.Annotations, annotationTemplate)
		}, adopt},
		"a label": {"named", all, func(p *karpenter.NodePool, _ *aws.EC2NodeClass, _ *karpenter.NodeClaim) {
			p.Spec.Template.Labels["team"] = "b"
		}, change},
		"a label by its beginning": {"x/*", all, func(p *karpenter.NodePool, _ *aws.EC2NodeClass, _ *karpenter.NodeClaim) {
			p.Spec.Template.Labels["x/y"] = "new"
		}, change},
		"another label": {"not named", all, func(p *karpenter.NodePool, _ *aws.EC2NodeClass, _ *karpenter.NodeClaim) {
			p.Spec.Template.Labels["tier"] = "b"
		}, replaced},
		"one that is, one that isn't": {"the node goes anyway", all, func(p *karpenter.NodePool, _ *aws.EC2NodeClass, _ *karpenter.NodeClaim) {
			p.Spec.Template.Labels["team"], p.Spec.Template.Labels["tier"] = "b", "b"
		}, replaced},
		"a label is gone": {"removed in place", all, func(p *karpenter.NodePool, _ *aws.EC2NodeClass, _ *karpenter.NodeClaim) {
			delete(p.Spec.Template.Labels, "team")
		}, change},
		"something else changed too": {"expireAfter is part of the hash", all, func(p *karpenter.NodePool, _ *aws.EC2NodeClass, _ *karpenter.NodeClaim) {
			p.Spec.Template.Labels["team"] = "b"
			p.Spec.Template.Spec.ExpireAfter = karpenter.After(time.Hour)
		}, replaced},
		"taint": {"its value", all, func(p *karpenter.NodePool, _ *aws.EC2NodeClass, _ *karpenter.NodeClaim) {
			p.Spec.Template.Spec.Taints = []corev1.Taint{taint("keep", "x"), taint("dedicated", "b")}
		}, change},
		"another taint": {"not named", all, func(p *karpenter.NodePool, _ *aws.EC2NodeClass, _ *karpenter.NodeClaim) {
			p.Spec.Template.Spec.Taints = []corev1.Taint{taint("keep", "y"), taint("dedicated", "a")}
		}, replaced},
		"tag": {"of the class", all, func(_ *karpenter.NodePool, c *aws.EC2NodeClass, _ *karpenter.NodeClaim) { c.Spec.Tags["cost"] = "b" }, change},
		"tag gone": {"it can't be removed", all, func(_ *karpenter.NodePool, c *aws.EC2NodeClass, _ *karpenter.NodeClaim) {
			delete(c.Spec.Tags, "cost")
		}, replaced},
		"class": {"user data", all, func(p *karpenter.NodePool, c *aws.EC2NodeClass, _ *karpenter.NodeClaim) {
			p.Spec.Template.Labels["team"] = "b"
			text := "#!/bin/sh"
			c.Spec.UserData = &text
		}, replaced},
		"nothing in place": {"the pool names nothing", sugar.InPlace{}, func(p *karpenter.NodePool, _ *aws.EC2NodeClass, _ *karpenter.NodeClaim) {
			p.Spec.Template.Labels["team"] = "b"
		}, replaced},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pool, class := &karpenter.NodePool{}, &aws.EC2NodeClass{}
			pool.Spec.Template.Labels = map[string]string{"team": "a", "tier": "a"}
			pool.Spec.Template.Spec.Taints = []corev1.Taint{taint("keep", "x"), taint("dedicated", "a")}
			class.Spec.Tags = map[string]string{"cost": "a"}
			claim := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				karpenter.AnnotationNodePoolHash: pool.Hash(), karpenter.AnnotationNodePoolHashVersion: karpenter.NodePoolHashVersion,
				aws.AnnotationEC2NodeClassHash: class.Hash(), aws.AnnotationEC2NodeClassHashVersion: aws.EC2NodeClassHashVersion,
				annotationTemplate: templateOf(pool, class).encode(),
			}}}
			tc.alter(pool, class, claim)
			if got, _ := following(claim, pool, class, tc.o); got != tc.want {
				t.Errorf("following() = %d, want %d (%s)", got, tc.want, tc.why)
			}
		})
	}
}

func TestOverlay(t *testing.T) {
	have := map[string]string{"theirs": "1", "team": "a", "gone": "x", "gone-but-changed": "by hand"}
	last := map[string]string{"team": "a", "gone": "x", "gone-but-changed": "y", "same": "s"}
	got := overlay(have, last, map[string]string{"team": "b", "same": "s", "new": "n"})
	want := map[string]string{"theirs": "1", "team": "b", "gone-but-changed": "by hand", "new": "n"}
	if diff := cmp.Diff(want, got); diff != "" || len(have) != 4 {
		t.Error(diff)
	}
	if again := overlay(got, last, map[string]string{"team": "b", "same": "s", "new": "n"}); !maps.Equal(got, again) {
		t.Errorf("a second time it gives %v", again)
	}
}

func TestRetaint(t *testing.T) {
	taint := func(key, value string) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
	}
	have := []corev1.Taint{taint("theirs", ""), taint("dedicated", "a"), taint("gone", "")}
	last := []corev1.Taint{taint("dedicated", "a"), taint("gone", ""), taint("startup", "done")}
	want := []corev1.Taint{taint("dedicated", "b"), taint("new", ""), taint("startup", "done")}
	got := retaint(have, last, want)
	if diff := cmp.Diff([]corev1.Taint{taint("theirs", ""), taint("dedicated", "b"), taint("new", "")}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(got, retaint(got, last, want)); diff != "" {
		t.Errorf("a second time: %s", diff)
	}
}
