package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// connect reads the credentials, and the keys to verify with. Its error sets
// SecretNotUsable.
func (p *pass) connect(ctx context.Context) error {
	if p.src.Spec.SourceRef != nil {
		return nil
	}
	var err error
	if p.remote, err = p.remoteWith(ctx, p.src.Spec.SecretRef); err != nil {
		return err
	}
	if p.src.Spec.Verify == nil {
		return nil
	}
	data, err := p.secret(ctx, p.src.Spec.Verify.SecretRef.Name, "public keys as NAME.asc or NAME.sshpub")
	if err != nil {
		return err
	}
	if p.ring, err = git.ParseKeyring(data); err != nil {
		return terminally(reasonSecret, fmt.Errorf("the Secret %q: %w", p.src.Spec.Verify.SecretRef.Name, err))
	}
	p.try.content = string(p.src.Spec.Verify.Mode) + digestOf(data)
	return nil
}

// digestOf identifies a Secret's data.
func digestOf(data map[string][]byte) string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		_, _ = fmt.Fprintf(sum, "%s %d ", key, len(data[key]))
		_, _ = sum.Write(data[key])
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// secret reads a Secret of the source's namespace. What is in it is kept out of
// everything that this pass says.
func (p *pass) secret(ctx context.Context, name, keys string) (map[string][]byte, error) {
	var secret corev1.Secret
	if err := p.reader.Get(ctx, client.ObjectKey{Namespace: p.src.Namespace, Name: name}, &secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, terminally(reasonSecret, fmt.Errorf("there is no Secret %q; create it with the keys %s", name, keys))
		}
		return nil, retrying(reasonSecret, fmt.Errorf("read Secret %q: %w", name, err))
	}
	return secret.Data, nil
}

// remoteWith returns the repository with the credentials in a Secret, nil for none.
func (p *pass) remoteWith(ctx context.Context, ref *coppice.SecretReference) (git.Remote, error) {
	remote := git.Remote{URL: p.src.Spec.URL}
	var err error
	if remote.Proxy, err = p.proxy(ctx); err != nil {
		return git.Remote{}, err
	}
	overSSH := strings.HasPrefix(p.src.Spec.URL, "ssh://")
	if ref == nil {
		if overSSH {
			return git.Remote{}, terminally(reasonSecret, errors.New("SSH needs spec.secretRef: a Secret with the keys identity and known_hosts"))
		}
		return remote, nil
	}
	want := "username and password"
	if overSSH {
		want = "identity and known_hosts"
	}
	data, err := p.secret(ctx, ref.Name, want)
	if err != nil {
		return git.Remote{}, err
	}
	p.keep(data)
	refuse := func(format string, args ...any) (git.Remote, error) {
		return git.Remote{}, terminally(reasonSecret, fmt.Errorf("the Secret %q "+format, append([]any{ref.Name}, args...)...))
	}
	get := func(keys ...string) string {
		for _, key := range keys {
			if v := data[key]; len(v) > 0 {
				return string(v)
			}
		}
		return ""
	}
	remote.CABundle = []byte(get("ca.crt", "caFile"))
	if overSSH {
		remote.Auth = git.Auth{Identity: get("identity"), Passphrase: get("password"), KnownHosts: get("known_hosts")}
		switch {
		case remote.Auth.Identity == "":
			return refuse("has no key identity; add a private key in OpenSSH's format")
		case remote.Auth.KnownHosts == "":
			return refuse("has no key known_hosts; add the server's host keys, as its documentation lists them, so that nobody can stand in for it")
		}
		return remote, nil
	}
	cert, key := get("tls.crt", "certFile"), get("tls.key", "keyFile")
	if (cert == "") != (key == "") {
		return refuse("has one of tls.crt and tls.key; add the other")
	}
	token, user, password := get("bearerToken"), get("username"), get("password")
	switch {
	case get("githubAppID") != "":
		if remote.Auth, err = p.appAuth(ctx, ref.Name, data, remote); err != nil {
			return git.Remote{}, err
		}
	case token != "" && (user != "" || password != ""):
		return refuse("has bearerToken beside username or password; remove one of them")
	case token != "":
		remote.Auth.Token = token
	case password != "":
		remote.Auth.Username, remote.Auth.Password = user, password
	case user != "" || cert == "" && len(remote.CABundle) == 0:
		return refuse("has no key password; add it, and username beside it")
	}
	remote.Auth.ClientCert, remote.Auth.ClientKey = cert, key
	return remote, nil
}

// proxy is what the repository is reached through.
func (p *pass) proxy(ctx context.Context) (git.Proxy, error) {
	ref := p.src.Spec.ProxySecretRef
	if ref == nil {
		return git.Proxy{}, nil
	}
	data, err := p.secret(ctx, ref.Name, "address and, if it wants them, username and password")
	if err != nil {
		return git.Proxy{}, err
	}
	if len(data["address"]) == 0 {
		return git.Proxy{}, terminally(reasonSecret, fmt.Errorf("the Secret %q has no key address; add the proxy's URL", ref.Name))
	}
	p.keep(map[string][]byte{"password": data["password"]})
	return git.Proxy{Address: string(data["address"]), Username: string(data["username"]), Password: string(data["password"])}, nil
}

// shortest is the length from which on a value is looked for in what is said: a
// shorter one would be found in half of all words.
const shortest = 4

// keep remembers a Secret's values, for hush. What is public by its nature isn't
// one.
func (p *pass) keep(data map[string][]byte) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		switch key {
		case "username", "known_hosts", "ca.crt", "caFile", "tls.crt", "certFile",
			"githubAppID", "githubAppInstallationID", "githubAppInstallationOwner", "githubAppBaseURL":
			continue
		}
		if text := string(bytes.TrimSpace(data[key])); len(text) >= shortest {
			p.secrets = append(p.secrets, text)
		}
	}
}

// appAuth authenticates as an installation of a GitHub App.
func (p *pass) appAuth(ctx context.Context, name string, data map[string][]byte, remote git.Remote) (git.Auth, error) {
	owner, id := string(data["githubAppInstallationOwner"]), string(data["githubAppInstallationID"])
	if (owner == "") == (id == "") {
		return git.Auth{}, terminally(reasonSecret, fmt.Errorf("the Secret %q needs exactly one of githubAppInstallationOwner and githubAppInstallationID", name))
	}
	app := git.App{
		ID: string(data["githubAppID"]), InstallationID: id, Owner: owner, PrivateKey: string(data["githubAppPrivateKey"]),
		BaseURL: string(data["githubAppBaseURL"]), CABundle: remote.CABundle, Proxy: remote.Proxy,
	}
	key := digestOf(data) + p.src.Spec.URL
	now := p.clock.Now()
	token, ok := p.tokens.get(key, now)
	if !ok {
		ctx, cancel := p.timeout(ctx)
		defer cancel()
		var err error
		if token, err = app.Token(ctx, now, p.src.Spec.URL); err != nil {
			return git.Auth{}, gitFailure(err)
		}
		p.tokens.put(key, token, now)
	}
	p.secrets = append(p.secrets, token.Token)
	return token.Auth(), nil
}

// tokens keeps what apps were given until shortly before it expires.
type tokens struct {
	mu  sync.Mutex
	all map[string]git.AppToken
}

// tokenRest is how long a token must last to be used: longer than a pass takes.
const tokenRest = 5 * time.Minute

func (t *tokens) get(key string, now time.Time) (git.AppToken, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	token, ok := t.all[key]
	return token, ok && token.Expires.Sub(now) > tokenRest
}

func (t *tokens) put(key string, token git.AppToken, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]git.AppToken{}
	}
	maps.DeleteFunc(t.all, func(_ string, old git.AppToken) bool { return old.Expires.Sub(now) <= tokenRest })
	t.all[key] = token
}
