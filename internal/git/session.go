package git

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"
)

// errLimit marks every exceeded bound.
var errLimit = errors.New("over the limit")

// advertisedBytes bounds the list of refs: 64 bytes a ref, half a million refs.
const advertisedBytes = 32 << 20

// client returns the transport, endpoint and credentials of one operation. Each
// operation has a client of its own, so that bounds and trust are never shared
// between repositories; connections are pooled by the round tripper below it.
func (r Remote) client() (transport.Transport, *transport.Endpoint, transport.AuthMethod, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, nil, nil, r.failKind("use", ErrURL, "")
	}
	ep, err := transport.NewEndpoint(r.URL)
	if err != nil {
		return nil, nil, nil, r.failKind("use", ErrURL, "")
	}
	rt := http.DefaultTransport
	if len(r.CABundle) > 0 {
		if rt, err = trusting(r.CABundle); err != nil {
			return nil, nil, nil, r.failKind("use", ErrCA, "")
		}
	}
	bounded := boundedTransport{next: rt, get: advertisedBytes, post: r.Limits.withDefaults().PackBytes}
	cl := githttp.NewClientWithOptions(&http.Client{Transport: bounded}, &githttp.ClientOptions{
		RedirectPolicy: githttp.FollowInitialRedirects,
	})
	switch {
	case r.Auth.Token != "":
		return cl, ep, &githttp.TokenAuth{Token: r.Auth.Token}, nil
	case r.Auth.Username != "" || r.Auth.Password != "":
		return cl, ep, &githttp.BasicAuth{Username: r.Auth.Username, Password: r.Auth.Password}, nil
	}
	return cl, ep, nil, nil
}

// trusting returns a round tripper that also trusts the given certificates. It
// keeps no connections, as nothing would ever close them.
func trusting(bundle []byte) (http.RoundTripper, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(bundle) {
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

// boundedTransport ends a response's body with errLimit after so many bytes.
type boundedTransport struct {
	next      http.RoundTripper
	get, post int64
}

// RoundTrip implements http.RoundTripper.
func (t boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	limit := t.post
	if req.Method == http.MethodGet {
		limit = t.get
	}
	res.Body = &boundedBody{ReadCloser: res.Body, limit: limit, left: limit}
	return res, nil
}

type boundedBody struct {
	io.ReadCloser
	limit, left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%w: the server sent more than %d bytes", errLimit, b.limit)
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}

// reading is an open conversation with a server that hands out commits.
type reading struct {
	remote Remote
	sess   transport.UploadPackSession
	adv    *packp.AdvRefs
}

func (r Remote) openRead(ctx context.Context) (*reading, error) {
	cl, ep, auth, err := r.client()
	if err != nil {
		return nil, err
	}
	sess, err := cl.NewUploadPackSession(ep, auth)
	if err != nil {
		return nil, err
	}
	adv, err := sess.AdvertisedReferencesContext(ctx)
	if err != nil {
		return nil, err
	}
	return &reading{remote: r, sess: sess, adv: adv}, nil
}

// commit gets one commit and its tree, without its parents.
func (c *reading) commit(ctx context.Context, hash plumbing.Hash) (*memory.Storage, error) {
	req := packp.NewUploadPackRequestFromCapabilities(c.adv.Capabilities)
	req.Wants = []plumbing.Hash{hash}
	if c.adv.Capabilities.Supports(capability.Shallow) {
		req.Depth = packp.DepthCommits(1)
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return nil, err
		}
	}
	if c.adv.Capabilities.Supports(capability.NoProgress) {
		if err := req.Capabilities.Set(capability.NoProgress); err != nil {
			return nil, err
		}
	}
	res, err := c.sess.UploadPack(ctx, req)
	if err != nil {
		return nil, err
	}
	var body io.Reader = res
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		body = sideband.NewDemuxer(sideband.Sideband64k, res)
	case req.Capabilities.Supports(capability.Sideband):
		body = sideband.NewDemuxer(sideband.Sideband, res)
	}
	store, err := unpack(ctx, body, c.remote.Limits.withDefaults())
	if closeErr := res.Close(); err == nil {
		err = closeErr
	}
	return store, err
}
