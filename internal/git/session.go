package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/memory"
)

// errLimit marks every exceeded bound.
var errLimit = errors.New("over the limit")

// advertisedBytes bounds the list of refs: 64 bytes a ref, half a million refs.
const advertisedBytes = 32 << 20

// endpoint returns the parsed address, or an ErrURL or ErrPlain.
func (r Remote) endpoint() (*url.URL, *transport.Endpoint, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" {
		return nil, nil, r.failKind("use", ErrURL, "")
	}
	switch u.Scheme {
	case "http", "https":
		if u.User != nil {
			return nil, nil, r.failKind("use", ErrURL, "")
		}
		if u.Scheme == "http" && (r.Auth.Token != "" || r.Auth.Username != "" || r.Auth.Password != "") && !loopback(u.Hostname()) {
			return nil, nil, r.failKind("use", ErrPlain, "")
		}
	case "ssh":
		if _, has := u.User.Password(); has || strings.Trim(u.Path, "/") == "" {
			return nil, nil, r.failKind("use", ErrURL, "")
		}
	default:
		return nil, nil, r.failKind("use", ErrURL, "")
	}
	ep, err := transport.NewEndpoint(r.URL)
	if err != nil {
		return nil, nil, r.failKind("use", ErrURL, "")
	}
	return u, ep, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// readSession opens a conversation with a server that hands out commits.
func (r Remote) readSession(ctx context.Context) (transport.UploadPackSession, error) {
	u, ep, err := r.endpoint()
	if err != nil {
		return nil, err
	}
	if u.Scheme == "ssh" {
		return r.dialSSH(ctx, u, transport.UploadPackServiceName)
	}
	cl, auth, err := r.httpClient(u)
	if err != nil {
		return nil, err
	}
	return cl.NewUploadPackSession(ep, auth)
}

// writeSession opens a conversation with a server that takes commits.
func (r Remote) writeSession(ctx context.Context) (transport.ReceivePackSession, error) {
	u, ep, err := r.endpoint()
	if err != nil {
		return nil, err
	}
	if u.Scheme == "ssh" {
		return r.dialSSH(ctx, u, transport.ReceivePackServiceName)
	}
	cl, auth, err := r.httpClient(u)
	if err != nil {
		return nil, err
	}
	return cl.NewReceivePackSession(ep, auth)
}

// boundedBody ends a body with errLimit after so many bytes.
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

// openRead begins a conversation, which the caller closes.
func (r Remote) openRead(ctx context.Context) (*reading, error) {
	sess, err := r.readSession(ctx)
	if err != nil {
		return nil, err
	}
	adv, err := sess.AdvertisedReferencesContext(ctx)
	if err != nil {
		_ = sess.Close()
		return nil, err
	}
	return &reading{remote: r, sess: sess, adv: adv}, nil
}

func (c *reading) close() { _ = c.sess.Close() }

// The filters of a partial clone that are used, as git-rev-list(1) names them.
const (
	withoutFiles = packp.Filter("blob:none")
	withoutTrees = packp.Filter("tree:0")
)

// partial reports whether the server leaves out what a filter names and hands the
// rest out by its hash. Servers say the latter in several ways.
func (c *reading) partial() bool {
	caps := c.adv.Capabilities
	return caps.Supports(capability.Filter) &&
		(caps.Supports(capability.AllowReachableSHA1InWant) || caps.Supports("allow-any-sha1-in-want"))
}

// request is what is asked for in one go.
type request struct {
	wants, haves []plumbing.Hash
	// depth is how many commits are sent of a history, 0 for all of them.
	depth int
	// filter is left out if the server knows none.
	filter packp.Filter
}

// answer is what the server said beside the objects.
type answer struct {
	// known are the haves that the server has too.
	known []plumbing.Hash
	// cut are the commits whose parents were left out because of the depth.
	cut []plumbing.Hash
}

// get asks for objects and adds them to a store.
func (c *reading) get(ctx context.Context, store *memory.Storage, ask request) error {
	_, err := c.ask(ctx, store, ask)
	return err
}

func (c *reading) ask(ctx context.Context, store *memory.Storage, ask request) (answer, error) {
	caps := c.adv.Capabilities
	req := packp.NewUploadPackRequestFromCapabilities(caps)
	req.Wants, req.Haves = ask.wants, ask.haves
	if ask.depth > 0 && caps.Supports(capability.Shallow) {
		req.Depth = packp.DepthCommits(ask.depth)
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return answer{}, err
		}
	}
	if ask.filter != "" && caps.Supports(capability.Filter) {
		req.Filter = ask.filter
		if err := req.Capabilities.Set(capability.Filter); err != nil {
			return answer{}, err
		}
	}
	if caps.Supports(capability.NoProgress) {
		if err := req.Capabilities.Set(capability.NoProgress); err != nil {
			return answer{}, err
		}
	}
	res, err := c.sess.UploadPack(ctx, req)
	if err != nil {
		return answer{}, err
	}
	var body io.Reader = res
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		body = sideband.NewDemuxer(sideband.Sideband64k, res)
	case req.Capabilities.Supports(capability.Sideband):
		body = sideband.NewDemuxer(sideband.Sideband, res)
	}
	err = unpack(ctx, body, c.remote.Limits.withDefaults(), store)
	if closeErr := res.Close(); err == nil {
		err = closeErr
	}
	return answer{known: res.ACKs, cut: res.Shallows}, err
}
