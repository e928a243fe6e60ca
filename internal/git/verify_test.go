package git

import (
	"bytes"
	"crypto/rand"
	"crypto/sha512"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"
)

// born is when the keys of these tests are made.
var born = time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

// pgpPair makes a key that lasts so many seconds (0 for ever) and its public part.
func pgpPair(t *testing.T, name string, seconds uint32) (*openpgp.Entity, []byte) {
	t.Helper()
	e, err := openpgp.NewEntity(name, "", name+"@example.com", &packet.Config{
		Algorithm: packet.PubKeyAlgoEdDSA, KeyLifetimeSecs: seconds, Time: func() time.Time { return born },
	})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.PublicKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Serialize(w), w.Close()); err != nil {
		t.Fatal(err)
	}
	return e, out.Bytes()
}

func signPGP(t *testing.T, e *openpgp.Entity) func([]byte) string {
	return func(text []byte) string {
		var out bytes.Buffer
		if err := openpgp.ArmoredDetachSign(&out, e, bytes.NewReader(text), &packet.Config{Time: func() time.Time { return born.Add(time.Minute) }}); err != nil {
			t.Fatal(err)
		}
		return out.String() + "\n"
	}
}

func signSSH(t *testing.T, key ssh.Signer, namespace string) func([]byte) string {
	return func(text []byte) string {
		sum := sha512.Sum512(text)
		signed := append([]byte(sigMagic), ssh.Marshal(sigSigned{Namespace: namespace, HashAlgorithm: "sha512", Hash: string(sum[:])})...)
		sig, err := key.Sign(rand.Reader, signed)
		if err != nil {
			t.Fatal(err)
		}
		blob := append([]byte(sigMagic), ssh.Marshal(sigBlob{
			Version: 1, PublicKey: string(key.PublicKey().Marshal()), Namespace: namespace, HashAlgorithm: "sha512", Signature: string(ssh.Marshal(sig)),
		})...)
		return string(pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: blob}))
	}
}

// signed makes a commit with a signature over what text becomes by change.
func (s *server) signed(branch, message string, sign func([]byte) string, change func(string) string) string {
	s.t.Helper()
	tree := s.git("mktree", "--missing")
	text := "tree " + tree + "\nauthor Ada <ada@example.com> 1796032800 +0000\ncommitter Ada <ada@example.com> 1796032800 +0000\nencoding UTF-8\n\n" + message
	if sign != nil {
		sig := strings.TrimRight(sign([]byte(text)), "\n")
		head, body, _ := strings.Cut(text, "\n\n")
		text = head + "\ngpgsig " + strings.ReplaceAll(sig, "\n", "\n ") + "\n\n" + body
	}
	if change != nil {
		text = change(text)
	}
	hash := s.gitIn(text, "hash-object", "-t", "commit", "-w", "--stdin", "--literally")
	s.git("update-ref", "refs/heads/"+branch, hash)
	return hash
}

func (s *server) signedTag(name, inside, commit string, sign func([]byte) string) {
	s.t.Helper()
	text := "object " + commit + "\ntype commit\ntag " + inside + "\ntagger Ada <ada@example.com> 1796032800 +0000\n\nrelease\n"
	if sign != nil {
		text += sign([]byte(text))
	}
	hash := s.gitIn(text, "hash-object", "-t", "tag", "-w", "--stdin", "--literally")
	s.git("update-ref", "refs/tags/"+name, hash)
}

func TestVerify(t *testing.T) {
	s := newServer(t)
	ada, adaPub := pgpPair(t, "ada", 0)
	eve, _ := pgpPair(t, "eve", 0)
	old, oldPub := pgpPair(t, "old", 3600)
	sshAda, _ := sshPair(t, "")
	sshEve, _ := sshPair(t, "")
	keys := map[string][]byte{
		"ada.asc": adaPub, "old.asc": oldPub, "ada.sshpub": ssh.MarshalAuthorizedKey(sshAda.PublicKey()), "other": []byte("anything"),
	}
	good := s.signed("pgp", "good\n", signPGP(t, ada), nil)
	s.signed("ssh", "good\n", signSSH(t, sshAda, "git"), nil)
	s.signed("unsigned", "bare\n", nil, nil)
	s.signed("eve", "by eve\n", signPGP(t, eve), nil)
	s.signed("ssh-eve", "by eve\n", signSSH(t, sshEve, "git"), nil)
	s.signed("old", "by an expired key\n", signPGP(t, old), nil)
	s.signed("file", "signed as a file\n", signSSH(t, sshAda, "file"), nil)
	tamper := func(text string) string { return strings.Replace(text, "ship it", "sink it", 1) }
	s.signed("pgp-changed", "ship it\n", signPGP(t, ada), tamper)
	s.signed("ssh-changed", "ship it\n", signSSH(t, sshAda, "git"), tamper)
	s.signed("twice", "good\n", signPGP(t, ada), func(text string) string {
		return strings.Replace(text, "\n\n", "\ngpgsig x\n\n", 1)
	})
	s.signed("in-body", "good\ngpgsig "+beginPGP+"\n", nil, nil)
	s.signedTag("v1.0.0", "v1.0.0", good, signPGP(t, ada))
	s.signedTag("v1.1.0", "v1.1.0", good, signSSH(t, sshAda, "git"))
	s.signedTag("v2.0.0", "v1.0.0", good, signPGP(t, ada))
	s.signedTag("v3.0.0", "v3.0.0", good, nil)
	bare := s.signed("unsigned2", "bare\n", nil, nil)
	s.signedTag("v4.0.0", "v4.0.0", bare, signPGP(t, ada))
	s.git("update-ref", "refs/tags/light", good)

	for name, tc := range map[string]struct {
		why  string
		ref  Ref
		mode VerifyMode
		// say is in the result, or in the error if bad is set.
		say string
		bad bool
	}{
		"OpenPGP":         {"a known key signed", Ref{Branch: "pgp"}, VerifyHead, "OpenPGP key " + ada.PrimaryKey.KeyIdString(), false},
		"SSH":             {"a known key signed", Ref{Branch: "ssh"}, VerifyHead, "SSH key " + ssh.FingerprintSHA256(sshAda.PublicKey()), false},
		"unsigned":        {"anybody may have made it", Ref{Branch: "unsigned"}, VerifyHead, "not signed", true},
		"unknown OpenPGP": {"eve isn't trusted", Ref{Branch: "eve"}, VerifyHead, "not among", true},
		"unknown SSH":     {"eve isn't trusted", Ref{Branch: "ssh-eve"}, VerifyHead, ssh.FingerprintSHA256(sshEve.PublicKey()) + ", which is not among", true},
		"expired":         {"a key's lifetime is a limit", Ref{Branch: "old"}, VerifyHead, "expired", true},
		"other purpose":   {"a signature for something else is none for this", Ref{Branch: "file"}, VerifyHead, "not for git", true},
		"changed OpenPGP": {"the signature is another commit's", Ref{Branch: "pgp-changed"}, VerifyHead, "does not match", true},
		"changed SSH":     {"the signature is another commit's", Ref{Branch: "ssh-changed"}, VerifyHead, "does not match", true},
		"two signatures":  {"it isn't clear which one counts", Ref{Branch: "twice"}, VerifyHead, "two signatures", true},
		"in the message":  {"a message is no header", Ref{Branch: "in-body"}, VerifyHead, "not signed", true},
		"tag":             {"the tag is signed, its commit needn't be", Ref{Tag: "v4.0.0"}, VerifyTag, "the tag v4.0.0 is signed by OpenPGP", false},
		"tag by SSH":      {"tags are signed with either", Ref{SemVer: "1.x"}, VerifyTag, "the tag v1.1.0 is signed by SSH", false},
		"both":            {"tag and commit are signed", Ref{Tag: "v1.0.0"}, VerifyTagAndHead, ", commit ", false},
		"both, bare":      {"both must be", Ref{Tag: "v4.0.0"}, VerifyTagAndHead, "not signed", true},
		"renamed tag":     {"an old signed tag under a new name is no new release", Ref{Tag: "v2.0.0"}, VerifyTag, `calls itself "v1.0.0"`, true},
		"unsigned tag":    {"an annotated tag needn't be signed", Ref{Tag: "v3.0.0"}, VerifyTag, "not signed", true},
		"light tag":       {"there is nothing that could be signed", Ref{Tag: "light"}, VerifyTag, "no annotated tag", true},
		"branch":          {"a branch has no tag", Ref{Branch: "pgp"}, VerifyTagAndHead, "no annotated tag", true},
	} {
		t.Run(name, func(t *testing.T) {
			ring, err := ParseKeyring(keys)
			if err != nil {
				t.Fatal(err)
			}
			rev, err := s.remote().Head(t.Context(), tc.ref)
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.remote().Fetch(t.Context(), rev)
			if err != nil {
				t.Fatal(err)
			}
			who, err := c.Verify(ring, tc.mode, born.Add(2*time.Hour))
			if tc.bad {
				if !errors.Is(err, ErrSignature) || !strings.Contains(err.Error(), tc.say) {
					t.Errorf("%s: %q, %v; want %q", tc.why, who, err, tc.say)
				}
				return
			}
			if err != nil || !strings.Contains(who, tc.say) {
				t.Errorf("%s: %q, %v; want %q", tc.why, who, err, tc.say)
			}
		})
	}
}

func TestKeyring(t *testing.T) {
	_, pub := pgpPair(t, "ada", 0)
	for name, files := range map[string]map[string][]byte{
		"nothing":     {},
		"other names": {"key": pub},
		"no OpenPGP":  {"a.asc": []byte("ssh-ed25519 AAAA")},
		"no SSH":      {"a.sshpub": pub},
	} {
		if _, err := ParseKeyring(files); !errors.Is(err, ErrKeyring) {
			t.Errorf("%s: %v", name, err)
		}
	}
	key, _ := sshPair(t, "")
	line := ssh.MarshalAuthorizedKey(key.PublicKey())
	ring, err := ParseKeyring(map[string][]byte{"authorized_keys": append(append([]byte("# team\n"), line...), line...)})
	if err != nil || len(ring.ssh) != 2 {
		t.Errorf("%d keys, %v", len(ring.ssh), err)
	}
}

// TestVerifyGitsOwn takes a commit that git signed with ssh-keygen.
func TestVerifyGitsOwn(t *testing.T) {
	s := newServer(t)
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed")
	}
	key, private := sshPair(t, "")
	file := filepath.Join(s.root, "id")
	if err := os.WriteFile(file, []byte(private), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".pub", ssh.MarshalAuthorizedKey(key.PublicKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := []string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + file + ".pub"}
	hash := s.git(append(conf, "commit-tree", "-S", "-m", "signed", s.git("mktree", "--missing"))...)
	s.git("update-ref", "refs/heads/main", hash)
	s.git(append(conf, "tag", "-s", "-m", "signed too", "v1.0.0", hash)...)
	ring, err := ParseKeyring(map[string][]byte{"ada.sshpub": ssh.MarshalAuthorizedKey(key.PublicKey())})
	if err != nil {
		t.Fatal(err)
	}
	rev, err := s.remote().Head(t.Context(), Ref{Tag: "v1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.remote().Fetch(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	if who, err := c.Verify(ring, VerifyTagAndHead, born); err != nil {
		t.Error(who, err)
	}
}
