package stack

import (
	"encoding/pem"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/cmd/sandbox/kubelet"
)

func TestSystemNode(t *testing.T) {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	m := systemNode("us-west-2", "demo", srv.URL, ca)
	settings, err := kubelet.ParseUserData(m.UserData)
	if err != nil {
		t.Fatal(err)
	}
	node, err := kubelet.NewNode(m, settings, "v1.37.2", time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	want := corev1.Taint{Key: "CriticalAddonsOnly", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	if len(node.Spec.Taints) == 0 || node.Spec.Taints[0] != want {
		t.Errorf("its taints are %v, the first is to be %v: ordinary pods would come to it", node.Spec.Taints, want)
	}
	var opts client.ListOptions
	NotSystem().ApplyToList(&opts)
	if opts.LabelSelector.Matches(labels.Set(node.Labels)) {
		t.Error("the selector of other nodes takes it")
	}
	if !opts.LabelSelector.Matches(labels.Set{"karpenter.sh/nodepool": "general"}) {
		t.Error("the selector of other nodes leaves a pool's out")
	}
}
