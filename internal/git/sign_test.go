package git

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"
	"golang.org/x/crypto/ssh"
)

func pgpKey(t *testing.T, passphrase string) (private, public []byte) {
	t.Helper()
	entity, err := openpgp.NewEntity("Coppice", "", "coppice@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(kind string, encode func(w *bytes.Buffer) error) []byte {
		var raw, out bytes.Buffer
		if err := encode(&raw); err != nil {
			t.Fatal(err)
		}
		w, err := armor.Encode(&out, kind, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(raw.Bytes())
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	public = write(openpgp.PublicKeyType, func(w *bytes.Buffer) error { return entity.Serialize(w) })
	if passphrase != "" {
		if err := entity.EncryptPrivateKeys([]byte(passphrase), nil); err != nil {
			t.Fatal(err)
		}
		return write(openpgp.PrivateKeyType, func(w *bytes.Buffer) error { return entity.SerializePrivateWithoutSigning(w, nil) }), public
	}
	return write(openpgp.PrivateKeyType, func(w *bytes.Buffer) error { return entity.SerializePrivate(w, nil) }), public
}

func sshKey(t *testing.T, key crypto.PrivateKey, passphrase string) []byte {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(key, "coppice")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "coppice", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block)
}

// signed makes one signed commit and returns it as Git stores it, with its parts.
func signed(t *testing.T, s *Signer) *object.Commit {
	t.Helper()
	b := builder{store: memory.NewStorage()}
	hash, err := b.commit(nil, plumbing.ZeroHash, Write{
		Branch: "x", Files: map[string][]byte{"a": []byte("b\n")}, Message: "drift: something\n\nCoppice-Cluster: one\n",
		Author: Identity{Name: "Coppice", Email: "coppice@example.com"}, Now: time.Now(), Signer: s,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := object.GetCommit(b.store, hash)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSignPGP(t *testing.T) {
	for name, passphrase := range map[string]string{"bare": "", "locked": "correct horse"} {
		t.Run(name, func(t *testing.T) {
			private, public := pgpKey(t, passphrase)
			s, err := NewPGPSigner(private, []byte(passphrase))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := signed(t, s).Verify(string(public)); err != nil {
				t.Errorf("the signature doesn't hold: %v", err)
			}
			_, other := pgpKey(t, "")
			if _, err := signed(t, s).Verify(string(other)); err == nil {
				t.Error("another key verifies it")
			}
		})
	}
}

// TestSignSSH has OpenSSH's own tool judge the signatures.
func TestSignSSH(t *testing.T) {
	tool, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("there is no ssh-keygen")
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		key        crypto.PrivateKey
		passphrase string
	}{"ed25519": {ed, ""}, "rsa": {r, ""}, "locked": {ed, "correct horse"}} {
		t.Run(name, func(t *testing.T) {
			s, err := NewSSHSigner(sshKey(t, tc.key, tc.passphrase), []byte(tc.passphrase))
			if err != nil {
				t.Fatal(err)
			}
			c := signed(t, s)
			raw := &plumbing.MemoryObject{}
			if err := c.EncodeWithoutSignature(raw); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			allowed := "coppice@example.com " + string(ssh.MarshalAuthorizedKey(s.ssh.PublicKey()))
			for file, text := range map[string]string{"allowed": allowed, "sig": c.PGPSignature} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			reader, err := raw.Reader()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(tool, "-Y", "verify", "-n", "git", "-f", filepath.Join(dir, "allowed"), "-I", "coppice@example.com", "-s", filepath.Join(dir, "sig"))
			cmd.Stdin = reader
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestSignerSecrets: whatever goes wrong with a key, nothing of it is told.
func TestSignerSecrets(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, _ := pgpKey(t, "correct horse")
	locked := sshKey(t, ed, "correct horse")
	for name, tc := range map[string]struct {
		why  string
		make func() (*Signer, error)
		want string
	}{
		"wrong passphrase":  {"it is the user's to mend", func() (*Signer, error) { return NewPGPSigner(private, []byte("battery staple")) }, "passphrase is wrong"},
		"no PGP key":        {"the text may be another secret", func() (*Signer, error) { return NewPGPSigner([]byte("hunter2"), nil) }, "can't be read"},
		"missing":           {"SSH says so itself", func() (*Signer, error) { return NewSSHSigner(locked, nil) }, "needs a passphrase"},
		"wrong SSH":         {"the library's text isn't for users", func() (*Signer, error) { return NewSSHSigner(locked, []byte("battery staple")) }, "can't be used"},
		"no SSH key at all": {"the text may be another secret", func() (*Signer, error) { return NewSSHSigner([]byte("hunter2"), nil) }, "can't be used"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.make()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%v, want %q", err, tc.want)
			}
			for _, secret := range []string{"hunter2", "battery", "PRIVATE"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%v tells %q", err, secret)
				}
			}
		})
	}
	s, err := NewSSHSigner(sshKey(t, ed, ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", s, s, s, s); strings.Count(text, "SHA256:") != 4 {
		t.Error(text)
	}
}
