package demo

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// install applies what "coppice install" prints, but for the Deployment: the controller is
// a process here, since the machines run no containers. It gets the service account's
// token, so that it has the rights of an installed one and no others.
func (s *scene) install(ctx context.Context) error {
	e := s.stack.Endpoints
	manifests, err := s.coppice.Output(ctx, "install", "--cluster-name", e.ClusterName, "--image", "coppice", "--namespace", namespace)
	if err != nil {
		return err
	}
	var keep [][]byte
	for _, doc := range bytes.Split(manifests, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			return fmt.Errorf("read what coppice install prints: %w", err)
		}
		if kind.Kind != "Deployment" && kind.Kind != "PodDisruptionBudget" && kind.Kind != "Service" {
			keep = append(keep, doc)
		}
	}
	n, err := s.applyYAML(ctx, bytes.Join(keep, []byte("\n---\n")))
	if err != nil {
		return err
	}
	s.story.say("coppice install | kubectl apply: a service account and its rights, %d objects", n)

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "coppice"}}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(24 * 60 * 60))}}
	if err := s.client.SubResource("token").Create(ctx, account, token); err != nil {
		return fmt.Errorf("ask for a token of service account %s: %w", account.Name, err)
	}
	path := filepath.Join(s.cfg.DataDir, "controller.kubeconfig")
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"sandbox": {Server: s.stack.REST.Host, CertificateAuthorityData: s.stack.REST.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"coppice": {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"sandbox": {Cluster: "sandbox", AuthInfo: "coppice"}},
		CurrentContext: "sandbox",
	}, path)
	if err != nil {
		return fmt.Errorf("write the controller's kubeconfig: %w", err)
	}
	s.coppice.Args = append(s.coppice.Args, "--kubeconfig="+path)
	return nil
}
