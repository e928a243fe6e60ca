package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/pack"
)

func TestVolumes(t *testing.T) {
	s := NewState(clocktesting.NewFakePassiveClock(now))
	wait, immediate := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	class := func(name string, mode *storagev1.VolumeBindingMode, alter ...func(*storagev1.StorageClass)) {
		c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "ebs.csi.aws.com", VolumeBindingMode: mode}
		for _, f := range alter {
			f(c)
		}
		s.Set(c)
	}
	class("waits", &wait, func(c *storagev1.StorageClass) {
		c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	})
	class("zonal", &wait, func(c *storagev1.StorageClass) {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "topology.ebs.csi.aws.com/zone", Values: []string{"z1", "z2"}}}}}
	})
	class("at-once", &immediate)
	s.Set(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "topology.ebs.csi.aws.com/zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"z3"}}}},
		}}},
	}})
	claim := func(name string, class *string, volume string, phase corev1.PersistentVolumeClaimPhase) {
		s.Set(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: class, VolumeName: volume}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}})
	}
	text := func(s string) *string { return &s }
	claim("bound", nil, "pv", corev1.ClaimBound)
	claim("default", nil, "", corev1.ClaimPending)
	claim("zonal", text("zonal"), "", corev1.ClaimPending)
	claim("at-once", text("at-once"), "", corev1.ClaimPending)
	claim("lost", nil, "pv", corev1.ClaimLost)
	claim("no-class", text("nowhere"), "", corev1.ClaimPending)
	claim("no-volume", nil, "gone", corev1.ClaimBound)

	of := func(name string) corev1.Volume {
		return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	zone := func(values ...string) [][]pack.Requirement {
		return [][]pack.Requirement{{{Key: pack.LabelZone, Operator: pack.In, Values: values}}}
	}
	tests := map[string]struct {
		why     string
		volume  corev1.Volume
		want    []pack.Volume
		wantErr string
	}{
		"none":          {"an emptyDir binds nothing", corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, nil, ""},
		"bound":         {"where its volume is", of("bound"), []pack.Volume{{Name: "pv", Driver: "ebs.csi.aws.com", Terms: zone("z3")}}, ""},
		"default class": {"anywhere, as it waits for the pod", of("default"), []pack.Volume{{Name: "d/default", Driver: "ebs.csi.aws.com"}}, ""},
		"zonal class":   {"where the class allows", of("zonal"), []pack.Volume{{Name: "d/zonal", Driver: "ebs.csi.aws.com", Terms: zone("z1", "z2")}}, ""},
		"ephemeral": {"its claim doesn't exist yet", corev1.Volume{Name: "tmp", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: text("zonal")}},
		}}}, []pack.Volume{{Name: "d/p-tmp", Driver: "ebs.csi.aws.com", Terms: zone("z1", "z2")}}, ""},
		"immediate": {"nobody knows yet where it will be", of("at-once"), nil, "isn't bound yet"},
		"missing":   {"the pod can't start anywhere", of("nothing"), nil, "doesn't exist; create it"},
		"lost":      {"nor can this", of("lost"), nil, "lost its volume"},
		"no class":  {"nor this", of("no-class"), nil, `StorageClass "nowhere" doesn't exist`},
		"no volume": {"nor this", of("no-volume"), nil, `PersistentVolume "gone" doesn't exist`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, _, err := volumes(pod("p", func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{tc.volume} }), around{s})
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("volumes() = %v, %v; want an error with %q (%s)", got, err, tc.wantErr, tc.why)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("volumes() error %v (-want +got), %s:\n%s", err, tc.why, diff)
			}
		})
	}
}
