package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// identity is a user of the API server, known by its bearer token.
type identity struct {
	user   string
	groups []string
	token  string
}

// identities are the users that the control plane is started with. The two
// components carry the names that RBAC's built-in bindings know.
type identities struct {
	admin, controllerManager, scheduler identity
}

func newIdentities() (identities, error) {
	ids := identities{
		admin:             identity{user: "admin", groups: []string{"system:masters"}},
		controllerManager: identity{user: "system:kube-controller-manager"},
		scheduler:         identity{user: "system:kube-scheduler"},
	}
	for _, id := range []*identity{&ids.admin, &ids.controllerManager, &ids.scheduler} {
		raw := make([]byte, 24)
		if _, err := rand.Read(raw); err != nil {
			return identities{}, fmt.Errorf("draw a token: %w", err)
		}
		id.token = hex.EncodeToString(raw)
	}
	return ids, nil
}

// csv renders the identities in the format of --token-auth-file.
func (ids identities) csv() string {
	var b strings.Builder
	for _, id := range []identity{ids.admin, ids.controllerManager, ids.scheduler} {
		fmt.Fprintf(&b, "%s,%s,%s,%q\n", id.token, id.user, id.user, strings.Join(id.groups, ","))
	}
	return b.String()
}

// pki is where the key material lies.
type pki struct {
	caPEM []byte

	caFile, certFile, keyFile         string
	serviceAccountKey, serviceAccount string
}

// validity of all certificates: a sandbox lives for hours, not for weeks.
const validity = 30 * 24 * time.Hour

// newPKI makes an authority, a serving certificate for 127.0.0.1 and the key that
// signs service account tokens, under dir.
func newPKI(dir string, serviceIP net.IP, now time.Time) (pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return pki{}, fmt.Errorf("make the key folder: %w", err)
	}
	p := pki{
		caFile:            filepath.Join(dir, "ca.crt"),
		certFile:          filepath.Join(dir, "apiserver.crt"),
		keyFile:           filepath.Join(dir, "apiserver.key"),
		serviceAccountKey: filepath.Join(dir, "service-account.key"),
		serviceAccount:    filepath.Join(dir, "service-account.pub"),
	}

	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pki{}, fmt.Errorf("make the authority's key: %w", err)
	}
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "coppice sandbox"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(validity),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return pki{}, fmt.Errorf("sign the authority: %w", err)
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pki{}, fmt.Errorf("make the serving key: %w", err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:    ca.NotBefore,
		NotAfter:     ca.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), serviceIP},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return pki{}, fmt.Errorf("sign the serving certificate: %w", err)
	}

	saKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pki{}, fmt.Errorf("make the service account key: %w", err)
	}
	saPublic, err := x509.MarshalPKIXPublicKey(&saKey.PublicKey)
	if err != nil {
		return pki{}, fmt.Errorf("encode the service account key: %w", err)
	}

	p.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	leafPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leafDER})
	keyPEM, err := encodeKey(key)
	if err != nil {
		return pki{}, err
	}
	saPEM, err := encodeKey(saKey)
	if err != nil {
		return pki{}, err
	}
	for _, f := range []struct {
		path string
		data []byte
	}{
		{p.caFile, p.caPEM},
		{p.certFile, leafPEM},
		{p.keyFile, keyPEM},
		{p.serviceAccountKey, saPEM},
		{p.serviceAccount, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: saPublic})},
	} {
		if err := os.WriteFile(f.path, f.data, 0o600); err != nil {
			return pki{}, fmt.Errorf("write a key: %w", err)
		}
	}
	return p, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// writeKubeconfig writes the kubeconfig of one identity.
func writeKubeconfig(path, server string, ca []byte, id identity) error {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["sandbox"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	cfg.AuthInfos[id.user] = &clientcmdapi.AuthInfo{Token: id.token}
	cfg.Contexts["sandbox"] = &clientcmdapi.Context{Cluster: "sandbox", AuthInfo: id.user}
	cfg.CurrentContext = "sandbox"
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", id.user, err)
	}
	return nil
}
