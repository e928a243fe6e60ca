package gitserver

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

func sshPair(t *testing.T) (ssh.Signer, []byte) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer, pem.EncodeToMemory(block)
}

// TestSSHAndPartialClone has git itself clone in part, push, fetch and deepen.
func TestSSHAndPartialClone(t *testing.T) {
	for _, program := range []string{"git", "ssh"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	srv, err := New(Config{Dir: t.TempDir()})
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
	host, _ := sshPair(t)
	client, file := sshPair(t)
	_, stranger := sshPair(t)
	t.Cleanup(srv.ServeSSH(ln, SSHConfig{HostKeys: []ssh.Signer{host}, Authorized: []ssh.PublicKey{client.PublicKey()}}))
	home := t.TempDir()
	addr, port, _ := net.SplitHostPort(ln.Addr().String())
	for name, data := range map[string][]byte{
		"id": file, "stranger": stranger, "hosts": []byte(fmt.Sprintf("[%s]:%s %s", addr, port, ssh.MarshalAuthorizedKey(host.PublicKey()))),
	} {
		if err := os.WriteFile(filepath.Join(home, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	try := func(dir, key string, args ...string) (string, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+home, "GIT_CONFIG_NOSYSTEM=1",
			"GIT_SSH_COMMAND=ssh -F none -o IdentitiesOnly=yes -o BatchMode=yes -o UserKnownHostsFile="+filepath.Join(home, "hosts")+" -i "+filepath.Join(home, key),
			"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com")
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	run := func(dir string, args ...string) string {
		t.Helper()
		out, err := try(dir, "id", args...)
		if err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	url := "ssh://git@" + ln.Addr().String() + "/fleet.git"
	work := filepath.Join(home, "work")
	run(home, "init", "-q", "-b", "main", work)
	run(work, "remote", "add", "origin", url)
	for _, text := range []string{"one", "two", "three"} {
		if err := os.WriteFile(filepath.Join(work, "file"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		run(work, "add", ".")
		run(work, "commit", "-q", "-m", text)
		run(work, "push", "-q", "origin", "main")
	}
	for name, args := range map[string][]string{
		"whole": nil, "shallow": {"--depth=1"}, "without files": {"--filter=blob:none"}, "without trees": {"--filter=tree:0"},
	} {
		dir := filepath.Join(home, name)
		run(home, append(append([]string{"-c", "protocol.version=0", "clone", "-q"}, args...), url, dir)...)
		text, err := os.ReadFile(filepath.Join(dir, "file"))
		if err != nil || string(text) != "three" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if out := run(filepath.Join(home, "without files"), "rev-list", "--objects", "--missing=print", "HEAD"); strings.Count(out, "?") != 2 {
		t.Errorf("a clone without files lacks those of two commits:\n%s", out)
	}
	run(filepath.Join(home, "shallow"), "fetch", "-q", "--depth=2")
	if n := run(filepath.Join(home, "shallow"), "rev-list", "--count", "HEAD"); n != "2" {
		t.Errorf("%s commits after deepening", n)
	}
	if out, err := try(home, "stranger", "ls-remote", url); err == nil || !strings.Contains(out, "Permission denied") {
		t.Errorf("a stranger: %v, %s", err, out)
	}
	if out, err := try(home, "id", "ls-remote", strings.Replace(url, "fleet", "../etc", 1)); err == nil || !strings.Contains(out, "does not appear") {
		t.Errorf("a path outside: %v, %s", err, out)
	}
}
