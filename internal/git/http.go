package git

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// httpClient returns the transport and credentials of one operation. Each operation
// has a client of its own, so that bounds and trust are never shared between
// repositories; connections are pooled by the round tripper below it.
func (r Remote) httpClient(u *url.URL) (transport.Transport, transport.AuthMethod, error) {
	rt, err := r.trip()
	if err != nil {
		return nil, nil, err
	}
	guarded := guardedTransport{
		next: rt, get: advertisedBytes, post: r.Limits.withDefaults().PackBytes,
		origin: u, bare: r.Auth == (Auth{}),
	}
	cl := githttp.NewClientWithOptions(&http.Client{Transport: guarded}, &githttp.ClientOptions{
		RedirectPolicy: githttp.FollowInitialRedirects,
	})
	switch {
	case r.Auth.Token != "":
		return cl, &githttp.TokenAuth{Token: r.Auth.Token}, nil
	case r.Auth.Username != "" || r.Auth.Password != "":
		return cl, &githttp.BasicAuth{Username: r.Auth.Username, Password: r.Auth.Password}, nil
	}
	return cl, nil, nil
}

// trip returns the shared round tripper, or one of its own if certificates are to
// be trusted or shown.
func (r Remote) trip() (http.RoundTripper, error) {
	cert, key := r.Auth.ClientCert, r.Auth.ClientKey
	if len(r.CABundle) == 0 && cert == "" && key == "" && r.Proxy == (Proxy{}) {
		return http.DefaultTransport, nil
	}
	rt, err := trusting(r.CABundle)
	if err != nil {
		return nil, r.failKind("use", ErrCA, "")
	}
	if cert != "" || key != "" {
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			return nil, r.failKind("use", ErrClientCert, "")
		}
		rt.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	if r.Proxy != (Proxy{}) {
		if err := r.Proxy.use(rt); err != nil {
			return nil, r.failKind("use", ErrProxy, "")
		}
	}
	return rt, nil
}

// Proxy is a proxy server. The zero value is what the environment names, if anything.
type Proxy struct {
	// Address is a URL: http, https or socks5, a host and, if it isn't the scheme's own, a
	// port.
	Address            string
	Username, Password string
}

// String hides the password.
func (p Proxy) String() string { return RedactURL(p.Address) }

// GoString hides the password from %#v.
func (p Proxy) GoString() string { return "git.Proxy{" + p.String() + "}" }

// MarshalText hides the password from encoders.
func (p Proxy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// use makes a transport go through the proxy.
func (p Proxy) use(rt *http.Transport) error {
	u, err := url.Parse(p.Address)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" {
		return ErrProxy
	}
	if p.Username != "" || p.Password != "" {
		u.User = url.UserPassword(p.Username, p.Password)
	}
	rt.Proxy = http.ProxyURL(u)
	return nil
}

// trusting returns a round tripper that also trusts the given certificates. It keeps
// no connections, as nothing would ever close them.
func trusting(bundle []byte) (*http.Transport, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if len(bundle) > 0 && !roots.AppendCertsFromPEM(bundle) {
		return nil, ErrCA
	}
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		base = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	rt := base.Clone()
	rt.DisableKeepAlives = true
	rt.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return rt, nil
}

// guardedTransport bounds what a server sends, and keeps credentials at the
// address that they were given for.
type guardedTransport struct {
	next      http.RoundTripper
	get, post int64
	origin    *url.URL
	// bare is set if there are no credentials to keep.
	bare bool
}

// RoundTrip implements http.RoundTripper.
func (t guardedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.bare && !sameOrigin(t.origin, req.URL) {
		return nil, ErrRedirect
	}
	res, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 300 && res.StatusCode < 400 && !t.bare {
		if to, err := res.Location(); err == nil && !sameOrigin(t.origin, to) {
			_ = res.Body.Close()
			return nil, fmt.Errorf("%w: %s", ErrRedirect, to.Host)
		}
	}
	limit := t.post
	if req.Method == http.MethodGet {
		limit = t.get
	}
	res.Body = &boundedBody{ReadCloser: res.Body, limit: limit, left: limit}
	return res, nil
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Host, b.Host)
}
