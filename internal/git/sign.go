package git

import (
	"bytes"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"
)

// Signer signs commits. Its methods may be called concurrently.
type Signer struct {
	pgp *openpgp.Entity
	ssh ssh.Signer
}

// NewPGPSigner reads an armoured OpenPGP private key, with its passphrase if it has
// one.
func NewPGPSigner(key, passphrase []byte) (*Signer, error) {
	ring, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(key))
	if err != nil {
		// Its text may quote what it read.
		return nil, errors.New("the OpenPGP key can't be read; export it with gpg --armor --export-secret-keys")
	}
	if len(ring) != 1 || ring[0].PrivateKey == nil {
		return nil, errors.New("the OpenPGP key must be one private key")
	}
	entity := ring[0]
	if entity.PrivateKey.Encrypted {
		if err := entity.DecryptPrivateKeys(passphrase); err != nil {
			return nil, errors.New("the OpenPGP key's passphrase is wrong or missing")
		}
	}
	return &Signer{pgp: entity}, nil
}

// NewSSHSigner reads an SSH private key in PEM or OpenSSH's form, with its
// passphrase if it has one.
func NewSSHSigner(key, passphrase []byte) (*Signer, error) {
	var signer ssh.Signer
	var err error
	if len(passphrase) > 0 {
		signer, err = ssh.ParsePrivateKeyWithPassphrase(key, passphrase)
	} else {
		signer, err = ssh.ParsePrivateKey(key)
	}
	var missing *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &missing):
		return nil, errors.New("the SSH key needs a passphrase")
	case err != nil:
		return nil, errors.New("the SSH key or its passphrase can't be used; make one with ssh-keygen -t ed25519")
	}
	return &Signer{ssh: signer}, nil
}

// String names the key and holds no secret.
func (s *Signer) String() string {
	if s.pgp != nil {
		return fmt.Sprintf("OpenPGP %X", s.pgp.PrimaryKey.Fingerprint)
	}
	return "SSH " + ssh.FingerprintSHA256(s.ssh.PublicKey())
}

// GoString is String, so that %#v prints no key.
func (s *Signer) GoString() string { return s.String() }

// sign returns the armoured signature of a commit without its signature.
func (s *Signer) sign(payload []byte, now time.Time) (string, error) {
	if s.pgp != nil {
		var out bytes.Buffer
		cfg := &packet.Config{Time: func() time.Time { return now }}
		if err := openpgp.ArmoredDetachSign(&out, s.pgp, bytes.NewReader(payload), cfg); err != nil {
			return "", fmt.Errorf("sign with %s: %w", s, err)
		}
		return out.String() + "\n", nil
	}
	return s.signSSH(payload)
}

// sshLine is where OpenSSH breaks the lines of a signature.
const sshLine = 70

func (s *Signer) signSSH(payload []byte) (string, error) {
	sum := sha512.Sum512(payload)
	message := append([]byte(sigMagic), ssh.Marshal(sigSigned{Namespace: sigNamespace, HashAlgorithm: "sha512", Hash: string(sum[:])})...)
	signature, err := s.ssh.Sign(rand.Reader, message)
	if s.ssh.PublicKey().Type() == ssh.KeyAlgoRSA {
		// An RSA key's own default is SHA-1, which is refused everywhere.
		algorithm, ok := s.ssh.(ssh.AlgorithmSigner)
		if !ok {
			return "", errors.New("the RSA key can't sign with SHA-2")
		}
		signature, err = algorithm.SignWithAlgorithm(rand.Reader, message, ssh.KeyAlgoRSASHA512)
	}
	if err != nil {
		return "", fmt.Errorf("sign with %s: %w", s, err)
	}
	blob := ssh.Marshal(sigBlob{
		Version: sigVersion, PublicKey: string(s.ssh.PublicKey().Marshal()), Namespace: sigNamespace,
		HashAlgorithm: "sha512", Signature: string(ssh.Marshal(signature)),
	})
	text := base64.StdEncoding.EncodeToString(append([]byte(sigMagic), blob...))
	var out strings.Builder
	out.WriteString("-----BEGIN SSH SIGNATURE-----\n")
	for len(text) > 0 {
		n := min(sshLine, len(text))
		out.WriteString(text[:n] + "\n")
		text = text[n:]
	}
	out.WriteString("-----END SSH SIGNATURE-----\n")
	return out.String(), nil
}
