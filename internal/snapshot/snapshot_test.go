package snapshot

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const secret = "hunter2"

// planted are objects with a secret wherever people put one.
func planted() []client.Object {
	userData := "export TOKEN=" + secret
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "web", Name: name, Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": secret, "notkarpenter.sh/x": secret,
			"karpenter.sh/do-not-disrupt": "true",
		}}
	}
	global := func(name string) metav1.ObjectMeta {
		m := meta(name)
		m.Namespace = ""
		return m
	}
	container := corev1.Container{
		Name: "c", Command: []string{secret}, Args: []string{secret}, Image: secret, WorkingDir: secret,
		Env: []corev1.EnvVar{{Name: "TOKEN", Value: secret}},
		LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: secret}}}}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}},
		Ports:     []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}, {ContainerPort: 90}},
	}
	template := corev1.PersistentVolumeClaimTemplate{ObjectMeta: meta("t")}
	return []client.Object{
		&aws.EC2NodeClass{ObjectMeta: global("default"), Spec: aws.EC2NodeClassSpec{UserData: &userData}},
		&corev1.Pod{ObjectMeta: meta("a"), Spec: corev1.PodSpec{
			Containers: []corev1.Container{container}, InitContainers: []corev1.Container{container},
			Volumes: []corev1.Volume{
				{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}},
				{Name: "p", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "e", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &template}}},
			},
		}, Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Image: secret}}}},
		&corev1.PersistentVolume{ObjectMeta: global("v"), Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: "vol-1", VolumeAttributes: map[string]string{"key": secret}}}}},
		&corev1.PersistentVolume{ObjectMeta: global("w"), Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			NFS: &corev1.NFSVolumeSource{Server: secret}}}},
		&storagev1.StorageClass{ObjectMeta: global("gp3"), Provisioner: "ebs.csi.aws.com", Parameters: map[string]string{"password": secret}},
		&corev1.PersistentVolume{ObjectMeta: global("x"), Spec: corev1.PersistentVolumeSpec{MountOptions: []string{"password=" + secret}}},
		&storagev1.StorageClass{ObjectMeta: global("cifs"), MountOptions: []string{"password=" + secret}},
		&coppice.NodeSource{ObjectMeta: meta("fleet"), Spec: coppice.NodeSourceSpec{URL: "https://git.example.com/fleet?access_token=" + secret}},
		&karpenter.NodePool{ObjectMeta: global("p"), Spec: karpenter.NodePoolSpec{Template: karpenter.NodeClaimTemplate{ObjectMeta: karpenter.ObjectMeta{Annotations: map[string]string{"x": secret}}}}},
		&corev1.Secret{ObjectMeta: meta("s"), StringData: map[string]string{"x": secret}},
		&corev1.ConfigMap{ObjectMeta: meta("c"), Data: map[string]string{"x": secret}},
		&eventsv1.Event{ObjectMeta: meta("other"), ReportingController: "kubelet", Note: secret},
		&eventsv1.Event{ObjectMeta: meta("ours"), ReportingController: Reporter, Note: "planned"},
		&corev1.Node{ObjectMeta: global("n"), Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{secret}}}}},
	}
}

func TestSnapshotHoldsNoSecrets(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(testkit.Scheme(t)).WithObjects(planted()...).Build()
	s, err := Take(t.Context(), c, time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := s.Write(&first); err != nil {
		t.Fatal(err)
	}
	for n, line := range strings.Split(first.String(), "\n") {
		if strings.Contains(line, secret) {
			t.Errorf("line %d holds a secret: %s", n+1, line)
		}
	}
	for _, want := range []string{`"claimName": "data"`, `"cpu": "500m"`, `"hostPort": 80`, `"karpenter.sh/do-not-disrupt": "true"`, `"note": "planned"`, `"driver": "ebs.csi.aws.com"`, `"volumeClaimTemplate"`} {
		if !strings.Contains(first.String(), want) {
			t.Errorf("%s is lost", want)
		}
	}
	back, err := Read(&first)
	if err != nil {
		t.Fatal(err)
	}
	if err := back.Write(&second); err != nil {
		t.Fatal(err)
	}
	again := &bytes.Buffer{}
	if err := s.Write(again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(again.String(), second.String()); diff != "" {
		t.Errorf("reading and writing changes it:\n%s", diff)
	}
}

func TestRead(t *testing.T) {
	for name, test := range map[string]struct{ why, in string }{
		"empty":   {"a file that was cut off at once", ""},
		"another": {"a manifest isn't a snapshot", `{"apiVersion":"v1","kind":"List"}`},
		"cut off": {"the disk was full", fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"nodes":[`, APIVersion, Kind)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Read(strings.NewReader(test.in)); err == nil || !strings.Contains(err.Error(), "'coppice snapshot' writes one") {
				t.Errorf("%v (%s)", err, test.why)
			}
		})
	}
}
