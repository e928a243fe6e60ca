package git

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/storage/memory"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/coppice-dev/coppice/internal/testkit/gitserver"
)

// sshPair makes a key pair and returns it with the private key's file.
func sshPair(t *testing.T, passphrase string) (ssh.Signer, string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var block *pem.Block
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(key, "test")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "test", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer, string(pem.EncodeToMemory(block))
}

// sshServer serves an empty repository fleet over SSH.
type sshServer struct {
	host   ssh.Signer
	addr   string
	remote Remote
	key    string
}

func newSSHServer(t *testing.T) *sshServer {
	t.Helper()
	srv, err := gitserver.New(gitserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Create("fleet"); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sshServer{addr: ln.Addr().String()}
	s.host, _ = sshPair(t, "")
	var client ssh.Signer
	client, s.key = sshPair(t, "")
	t.Cleanup(srv.ServeSSH(ln, gitserver.SSHConfig{HostKeys: []ssh.Signer{s.host}, Authorized: []ssh.PublicKey{client.PublicKey()}}))
	s.remote = Remote{URL: "ssh://git@" + s.addr + "/fleet.git", Auth: Auth{Identity: s.key, KnownHosts: s.known(s.host)}}
	return s
}

// known is a line of known_hosts.
func (s *sshServer) known(key ssh.Signer) string {
	host, port, _ := net.SplitHostPort(s.addr)
	return fmt.Sprintf("[%s]:%s %s", host, port, ssh.MarshalAuthorizedKey(key.PublicKey()))
}

func put(t *testing.T, r Remote, files map[string]string) string {
	t.Helper()
	w := Write{Branch: "main", Files: map[string][]byte{}, Message: "change\n", Author: Identity{Name: "Ada", Email: "ada@example.com"}, Now: time.Unix(1, 0)}
	for name, text := range files {
		w.Files[name] = []byte(text)
	}
	out, err := r.Push(t.Context(), w, Retry{})
	if err != nil {
		t.Fatal(err)
	}
	return out.Hash
}

func TestSSH(t *testing.T) {
	s := newSSHServer(t)
	if _, err := s.remote.Head(t.Context(), Ref{}); !errors.Is(err, ErrRef) {
		t.Errorf("head of an empty repository: %v", err)
	}
	first := put(t, s.remote, map[string]string{"clusters/one/a.cue": "a: 1\n", "big/x": strings.Repeat("x", 5000)})
	second := put(t, s.remote, map[string]string{"clusters/one/a.cue": "a: 2\n"})
	rev, err := s.remote.Head(t.Context(), Ref{Branch: "main"})
	if err != nil || rev.Hash != second {
		t.Fatalf("head is %s (%v), want %s", rev, err, second)
	}
	for _, dir := range []string{".", "clusters/one"} {
		c, err := s.remote.FetchFolder(t.Context(), rev, dir)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := c.FS("clusters/one")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := fs.ReadFile(tree, "a.cue"); err != nil || string(text) != "a: 2\n" {
			t.Errorf("read %q, %v", text, err)
		}
		if want := map[string]int{".": 2, "clusters/one": 1}[dir]; len(c.store.(*memory.Storage).Blobs) != want {
			t.Errorf("%d files came along for %s, want %d", len(c.store.(*memory.Storage).Blobs), dir, want)
		}
	}
	for base, want := range map[string]Ancestry{first: Descends, second: Descends, strings.Repeat("1", 40): Unrelated} {
		if got, err := s.remote.Ancestry(t.Context(), second, base); err != nil || got != want {
			t.Errorf("ancestry with %s is %d (%v), want %d", base, got, err, want)
		}
	}
	if got, err := s.remote.Ancestry(t.Context(), first, second); err != nil || got != Unrelated {
		t.Errorf("a commit descends from its child: %d (%v)", got, err)
	}
}

func TestSSHRefusals(t *testing.T) {
	s := newSSHServer(t)
	put(t, s.remote, map[string]string{"a": "a"})
	other, otherKey := sshPair(t, "")
	_, locked := sshPair(t, "open sesame")
	host, port, _ := net.SplitHostPort(s.addr)
	for name, tc := range map[string]struct {
		why  string
		edit func(*Remote)
		kind error
		say  string
	}{
		"no known_hosts": {"nobody else's server may be taken for the one that is meant", func(r *Remote) { r.Auth.KnownHosts = "" }, ErrKnownHosts, "known_hosts"},
		"broken hosts":   {"a file that can't be read protects from nothing", func(r *Remote) { r.Auth.KnownHosts = "host key?" }, ErrKnownHosts, "line 1"},
		"other host key": {"the server isn't the one that is known", func(r *Remote) { r.Auth.KnownHosts = s.known(other) }, ErrHostKey, ssh.FingerprintSHA256(s.host.PublicKey())},
		"other host": {"a key is known for the host that it stands beside", func(r *Remote) {
			r.Auth.KnownHosts = "example.com " + string(ssh.MarshalAuthorizedKey(s.host.PublicKey()))
		}, ErrHostKey, "no line for [" + host + "]:" + port},
		"revoked": {"a revoked key isn't trusted, whatever else is said of it", func(r *Remote) {
			r.Auth.KnownHosts += "@revoked * " + string(ssh.MarshalAuthorizedKey(s.host.PublicKey()))
		}, ErrHostKey, "revokes"},
		"other key":        {"the server doesn't know the key", func(r *Remote) { r.Auth.Identity = otherKey }, ErrAuth, ""},
		"no key":           {"there is nothing to authenticate with", func(r *Remote) { r.Auth.Identity = "" }, ErrIdentity, "identity"},
		"no passphrase":    {"the key is encrypted", func(r *Remote) { r.Auth.Identity = locked }, ErrIdentity, "passphrase"},
		"wrong passphrase": {"the passphrase isn't the key's", func(r *Remote) { r.Auth.Identity, r.Auth.Passphrase = locked, "nope" }, ErrIdentity, "password doesn't open it"},
		"no repository":    {"the path is another", func(r *Remote) { r.URL = strings.Replace(r.URL, "fleet", "fleat", 1) }, ErrNotFound, ""},
		"password in URL":  {"a password in an address is one in every log", func(r *Remote) { r.URL = "ssh://git:pass@" + s.addr + "/fleet.git" }, ErrURL, ""},
		"no path":          {"a host alone is no repository", func(r *Remote) { r.URL = "ssh://git@" + s.addr }, ErrURL, ""},
		"scp-like address": {"that form is no URL", func(r *Remote) { r.URL = "git@" + host + ":fleet.git" }, ErrURL, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.remote
			tc.edit(&r)
			_, err := r.Head(t.Context(), Ref{})
			if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.say) {
				t.Fatalf("%s: got %v, want %v with %q", tc.why, err, tc.kind, tc.say)
			}
			var e *Error
			if errors.As(err, &e); !e.Permanent() && tc.kind != ErrAuth && tc.kind != ErrNotFound {
				t.Errorf("%v will not go away by itself", err)
			}
			for _, secret := range []string{"PRIVATE KEY", "open sesame", "nope", "pass@"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%v tells %q", err, secret)
				}
			}
		})
	}
}

func TestSSHEncryptedKey(t *testing.T) {
	s := newSSHServer(t)
	put(t, s.remote, map[string]string{"a": "a"})
	block, _ := pem.Decode([]byte(s.key))
	raw, err := ssh.ParseRawPrivateKey(pem.EncodeToMemory(block))
	if err != nil {
		t.Fatal(err)
	}
	locked, err := ssh.MarshalPrivateKeyWithPassphrase(*raw.(*ed25519.PrivateKey), "", []byte("open sesame"))
	if err != nil {
		t.Fatal(err)
	}
	r := s.remote
	r.Auth.Identity, r.Auth.Passphrase = string(pem.EncodeToMemory(locked)), "open sesame"
	if _, err := r.Head(t.Context(), Ref{}); err != nil {
		t.Error(err)
	}
}

// TestSSHSilence has a server that never says a word.
func TestSSHSilence(t *testing.T) {
	s := newSSHServer(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	r := s.remote
	r.URL = "ssh://git@" + ln.Addr().String() + "/fleet.git"
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Head(ctx, Ref{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestSSHCuts has a network that breaks after so many bytes, anywhere between the
// handshake and the pack: never is anything made of half a commit, and never is the
// answer waited for.
func TestSSHCuts(t *testing.T) {
	s := newSSHServer(t)
	noise := make([]byte, 64<<10)
	_, _ = rand.Read(noise)
	hash := put(t, s.remote, map[string]string{"a": string(noise)})
	broken := 0
	for _, bytes := range []int64{0, 10, 500, 1500, 3000, 10_000, 60_000, 1 << 20} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				near, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					defer func() { _ = near.Close() }()
					far, err := net.Dial("tcp", s.addr)
					if err != nil {
						return
					}
					defer func() { _ = far.Close() }()
					go func() { _, _ = io.Copy(far, near) }()
					_, _ = io.CopyN(near, far, bytes)
				}()
			}
		}()
		r := s.remote
		r.URL = "ssh://git@" + ln.Addr().String() + "/fleet.git"
		r.Auth.KnownHosts = "* " + string(ssh.MarshalAuthorizedKey(s.host.PublicKey()))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		c, err := r.Fetch(ctx, Revision{Hash: hash})
		if ctx.Err() != nil {
			t.Errorf("after %d bytes nothing was noticed", bytes)
		}
		cancel()
		_ = ln.Close()
		if err != nil {
			broken++
			var e *Error
			if !errors.As(err, &e) || e.Permanent() {
				t.Errorf("after %d bytes: %v is not worth another try", bytes, err)
			}
			continue
		}
		if _, err := c.FS(""); err != nil || bytes < int64(len(noise)) {
			t.Errorf("after %d bytes there is a commit: %v", bytes, err)
		}
	}
	if broken < 6 {
		t.Errorf("%d of the fetches were cut", broken)
	}
}

func TestKnownHosts(t *testing.T) {
	key, _ := sshPair(t, "")
	line := string(ssh.MarshalAuthorizedKey(key.PublicKey()))
	for name, tc := range map[string]struct {
		why, hosts, host, port string
		want                   bool
	}{
		"plain":        {"a name is itself", "git.example.com", "git.example.com", "22", true},
		"case":         {"names have no case", "Git.Example.com", "git.example.COM", "22", true},
		"port":         {"another port is another server", "git.example.com", "git.example.com", "2222", false},
		"with port":    {"a port stands behind brackets", "[git.example.com]:2222", "git.example.com", "2222", true},
		"list":         {"one of several names", "a.example.com,git.example.com", "git.example.com", "22", true},
		"wildcard":     {"a star stands for anything", "*.example.com", "git.example.com", "22", true},
		"negated":      {"a negation beats what stands beside it", "*.example.com,!git.example.com", "git.example.com", "22", false},
		"part":         {"a name isn't its own beginning", "git.example.com", "git.example.community", "22", false},
		"hashed":       {"ssh-keygen -H hides names", knownhosts.HashHostname("git.example.com"), "git.example.com", "22", true},
		"hashed other": {"of another name", knownhosts.HashHostname("other.example.com"), "git.example.com", "22", false},
	} {
		t.Run(name, func(t *testing.T) {
			known, err := parseKnownHosts("# comment\n" + tc.hosts + " " + line)
			if err != nil {
				t.Fatal(err)
			}
			if got := known.check(tc.host, tc.port, key.PublicKey()) == nil; got != tc.want {
				t.Errorf("%s: %s for %s:%s is %v", tc.why, tc.hosts, tc.host, tc.port, got)
			}
		})
	}
}
