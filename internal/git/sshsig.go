package git

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/crypto/ssh"
)

// The format of SSH signatures is that of OpenSSH's PROTOCOL.sshsig.
const (
	sigMagic     = "SSHSIG"
	sigVersion   = 1
	sigNamespace = "git"
)

// sigBlob is a signature without its magic.
type sigBlob struct {
	Version       uint32
	PublicKey     string
	Namespace     string
	Reserved      string
	HashAlgorithm string
	Signature     string
}

// sigSigned is what is really signed, without its magic.
type sigSigned struct {
	Namespace     string
	Reserved      string
	HashAlgorithm string
	Hash          string
}

func (k Keyring) checkSSH(payload, armoured []byte) (string, error) {
	if len(k.ssh) == 0 {
		return "", errors.New("it has an SSH signature, and there are no SSH keys to verify with; add the signer's as NAME.sshpub")
	}
	block, _ := pem.Decode(armoured)
	if block == nil || block.Type != "SSH SIGNATURE" || !bytes.HasPrefix(block.Bytes, []byte(sigMagic)) {
		return "", errors.New("its SSH signature is malformed")
	}
	var blob sigBlob
	if err := ssh.Unmarshal(block.Bytes[len(sigMagic):], &blob); err != nil || blob.Version != sigVersion {
		return "", errors.New("its SSH signature is malformed")
	}
	if blob.Namespace != sigNamespace {
		return "", fmt.Errorf("its SSH signature was made for %q and not for git", blob.Namespace)
	}
	at := slices.IndexFunc(k.ssh, func(key ssh.PublicKey) bool { return string(key.Marshal()) == blob.PublicKey })
	if at < 0 {
		shown := "an SSH key"
		if key, err := ssh.ParsePublicKey([]byte(blob.PublicKey)); err == nil {
			shown = "SSH key " + ssh.FingerprintSHA256(key)
		}
		return "", fmt.Errorf("it is signed by %s, which is not among those to verify with", shown)
	}
	var sum []byte
	switch blob.HashAlgorithm {
	case "sha256":
		h := sha256.Sum256(payload)
		sum = h[:]
	case "sha512":
		h := sha512.Sum512(payload)
		sum = h[:]
	default:
		return "", fmt.Errorf("its SSH signature uses the hash %q, which is not accepted", blob.HashAlgorithm)
	}
	var sig ssh.Signature
	if err := ssh.Unmarshal([]byte(blob.Signature), &sig); err != nil {
		return "", errors.New("its SSH signature is malformed")
	}
	if sig.Format == ssh.KeyAlgoRSA {
		return "", errors.New("its SSH signature uses SHA-1, which is not accepted")
	}
	signed := append([]byte(sigMagic), ssh.Marshal(sigSigned{
		Namespace: blob.Namespace, Reserved: blob.Reserved, HashAlgorithm: blob.HashAlgorithm, Hash: string(sum),
	})...)
	if err := k.ssh[at].Verify(signed, &sig); err != nil {
		return "", errors.New("its SSH signature does not match what was signed")
	}
	return "SSH key " + ssh.FingerprintSHA256(k.ssh[at]), nil
}
