package kubelet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// authority makes a certificate authority in PEM.
func authority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

const cluster = `apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    apiServerEndpoint: https://127.0.0.1:6443
    certificateAuthority: CA
    cidr: 10.100.0.0/16
    name: demo
`

const part = "\n--//\nContent-Type: application/node.eks.aws\n\n"

const mimeHead = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n"

func TestParseUserData(t *testing.T) {
	ca := authority(t)
	base := func(s Settings) Settings {
		s.ClusterName, s.Endpoint, s.CA = "demo", "https://127.0.0.1:6443", ca
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		for _, m := range []*map[string]string{&s.KubeReserved, &s.SystemReserved, &s.EvictionHard} {
			if *m == nil {
				*m = map[string]string{}
			}
		}
		return s
	}
	tests := map[string]struct {
		why  string
		data string
		want Settings
		err  string
	}{
		"karpenter": {
			why: "what Karpenter renders for AL2023",
			data: mimeHead + part + cluster + `  kubelet:
    config:
      maxPods: 29
      registerWithTaints:
      - {key: dedicated, value: gpu, effect: NoSchedule}
      - {key: karpenter.sh/unregistered, effect: NoExecute}
    flags:
    - --node-labels="karpenter.sh/nodepool=default,karpenter.sh/capacity-type=spot"
--//--
`,
			want: base(Settings{
				Family: AL2023, MaxPods: 29,
				Labels: map[string]string{"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "spot"},
				Taints: []corev1.Taint{
					{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
					{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
				},
			}),
		},
		"windows line ends": {
			why:  "mail has them",
			data: strings.ReplaceAll(mimeHead+part+cluster+"--//--\n", "\n", "\r\n"),
			want: base(Settings{Family: AL2023}),
		},
		"bare": {
			why:  "nodeadm takes a NodeConfig without MIME",
			data: cluster,
			want: base(Settings{Family: AL2023}),
		},
		"merged": {
			why: "a later NodeConfig overrides fields of an earlier one, scripts between them are cloud-init's",
			data: mimeHead + part + `apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {name: other}
  kubelet:
    config: {maxPods: 8, podsPerCore: 4, kubeReserved: {cpu: 100m, memory: 1Gi}, evictionHard: {memory.available: 5%}}
    flags: [--node-labels=a=b, --max-pods=12]
` + "\n--//\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n\n#!/bin/sh\necho cluster: x\n" + part + cluster + `  kubelet:
    config: {maxPods: 20, kubeReserved: {memory: 2Gi}}
    flags: ['--node-labels=c=d']
--//--
`,
			want: base(Settings{
				Family: AL2023, MaxPods: 12, PodsPerCore: 4, Labels: map[string]string{"c": "d"},
				KubeReserved: map[string]string{"cpu": "100m", "memory": "2Gi"}, EvictionHard: map[string]string{"memory.available": "5%"},
			}),
		},
		"taints by flag": {
			why:  "a flag overrides the file",
			data: cluster + "  kubelet: {config: {registerWithTaints: [{key: a, effect: NoSchedule}]}, flags: ['--register-with-taints=b=c:NoExecute,d:PreferNoSchedule', --v=2, --rotate]}\n",
			want: base(Settings{Family: AL2023, Taints: []corev1.Taint{
				{Key: "b", Value: "c", Effect: corev1.TaintEffectNoExecute}, {Key: "d", Effect: corev1.TaintEffectPreferNoSchedule},
			}}),
		},
		"bottlerocket": {
			why: "TOML",
			data: `[settings]
[settings.kubernetes]
api-server = "https://127.0.0.1:6443"
cluster-certificate = "CA"
cluster-name = "demo"
max-pods = 58
cluster-dns-ip = "10.100.0.10"

[settings.kubernetes.node-labels]
'karpenter.sh/nodepool' = 'default'

[settings.kubernetes.node-taints]
'karpenter.sh/unregistered' = [':NoExecute']
'dedicated' = ['gpu:NoSchedule']

[settings.kubernetes.eviction-hard]
'memory.available' = '12%'
`,
			want: base(Settings{
				Family: Bottlerocket, MaxPods: 58,
				Labels: map[string]string{"karpenter.sh/nodepool": "default"},
				Taints: []corev1.Taint{
					{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
					{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
				},
				EvictionHard: map[string]string{"memory.available": "12%"},
			}),
		},
		"empty":         {why: "an instance without user data boots and joins nothing", data: " \n", err: "user data is empty"},
		"script":        {why: "nothing runs scripts here", data: "#!/bin/bash\n/etc/eks/bootstrap.sh demo\n", err: "is a script"},
		"cloud-config":  {why: "nor cloud-config", data: "#cloud-config\npackages: []\n", err: "is a script"},
		"windows":       {why: "no machine is Windows", data: "<powershell>\nStart\n</powershell>", err: "is for Windows"},
		"garbage":       {why: "TOML is the last guess", data: "join please", err: "neither MIME, a NodeConfig nor TOML"},
		"no part":       {why: "a document for cloud-init alone", data: mimeHead + "\n--//\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n--//--\n", err: "has no part of type application/node.eks.aws"},
		"cut off":       {why: "the last boundary is missing", data: mimeHead + part + cluster, err: "read a part of the user data"},
		"other kind":    {why: "nodeadm refuses it", data: "apiVersion: node.eks.aws/v1alpha1\nkind: Node\n", err: `kind "Node"`},
		"bad YAML":      {why: "a tab", data: "apiVersion: node.eks.aws/v1alpha1\n\tkind: x\n", err: "read the NodeConfig"},
		"no cluster":    {why: "nodeadm wants one", data: strings.Replace(cluster, "    name: demo\n", "", 1), err: "names no cluster"},
		"no endpoint":   {why: "nodeadm wants one", data: strings.Replace(cluster, "    apiServerEndpoint: https://127.0.0.1:6443\n", "", 1), err: "no API server endpoint"},
		"no authority":  {why: "nodeadm wants one", data: strings.Replace(cluster, "    certificateAuthority: CA\n", "", 1), err: "holds no certificate authority"},
		"no CIDR":       {why: "nodeadm wants one", data: strings.Replace(cluster, "    cidr: 10.100.0.0/16\n", "", 1), err: "names no service CIDR"},
		"bad base64":    {why: "cut off while copying", data: strings.Replace(cluster, "CA\n", "CA=\n", 1), err: "certificate authority"},
		"not PEM":       {why: "encoded twice, say", data: strings.Replace(cluster, ": CA\n", ": aGVsbG8=\n", 1), err: "is not PEM"},
		"reserved":      {why: "the kubelet exits on such labels", data: cluster + "  kubelet: {flags: ['--node-labels=kubernetes.io/role=x,node.kubernetes.io/ok=y,foo.k8s.io/z=1']}\n", err: "may not set labels foo.k8s.io/z, kubernetes.io/role"},
		"label value":   {why: "the API server would refuse it", data: cluster + "  kubelet: {flags: ['--node-labels=a=b/c']}\n", err: `label a="b/c"`},
		"label key":     {why: "the API server would refuse it", data: cluster + "  kubelet: {flags: ['--node-labels=a b=c']}\n", err: `label "a b"`},
		"label alone":   {why: "the kubelet wants key=value", data: cluster + "  kubelet: {flags: ['--node-labels=a']}\n", err: "has no value"},
		"taint effect":  {why: "misspelt", data: cluster + "  kubelet: {config: {registerWithTaints: [{key: a, effect: Never}]}}\n", err: `effect "Never"`},
		"taint alone":   {why: "no effect", data: cluster + "  kubelet: {flags: ['--register-with-taints=a']}\n", err: "has no effect"},
		"pods by flag":  {why: "not a number", data: cluster + "  kubelet: {flags: ['--max-pods=many']}\n", err: "--max-pods=many"},
		"negative pods": {why: "the kubelet exits", data: cluster + "  kubelet: {config: {maxPods: -1}}\n", err: "negative"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			encoded := base64.StdEncoding.EncodeToString(ca)
			data := strings.ReplaceAll(tc.data, ": CA\n", ": "+encoded+"\n")
			data = strings.ReplaceAll(data, ": CA\r\n", ": "+encoded+"\r\n")
			data = strings.ReplaceAll(data, `"CA"`, `"`+encoded+`"`)
			got, err := ParseUserData([]byte(data))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("%s: got error %v, want %q", tc.why, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.why, err)
			}
			for _, m := range []*map[string]string{&got.KubeReserved, &got.SystemReserved, &got.EvictionHard} {
				if *m == nil {
					*m = map[string]string{}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
