package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"
)

// sshSession is a conversation over one SSH connection. It serves both directions,
// and opens another channel for every request after the first, as a server ends a
// channel with its answer.
type sshSession struct {
	remote  Remote
	service string
	path    string
	client  *ssh.Client
	// stop takes the connection's bond to the operation's context away.
	stop func() bool

	adv *packp.AdvRefs
	ch  *sshChannel
}

var (
	_ transport.UploadPackSession  = (*sshSession)(nil)
	_ transport.ReceivePackSession = (*sshSession)(nil)
)

// dialSSH connects and authenticates. Everything ends with ctx.
func (r Remote) dialSSH(ctx context.Context, u *url.URL, service string) (*sshSession, error) {
	if strings.TrimSpace(r.Auth.KnownHosts) == "" {
		return nil, r.failKind("connect", ErrKnownHosts, "")
	}
	hosts, err := parseKnownHosts(r.Auth.KnownHosts)
	if err != nil {
		return nil, r.failKind("connect", ErrKnownHosts, err.Error())
	}
	key, err := r.Auth.signer()
	if err != nil {
		return nil, r.failKind("connect", ErrIdentity, err.Error())
	}
	port := u.Port()
	if port == "" {
		port = "22"
	}
	user := "git"
	if u.User != nil && u.User.Username() != "" {
		user = u.User.Username()
	}
	addr := net.JoinHostPort(u.Hostname(), port)
	var wrongHost error
	conf := &ssh.ClientConfig{
		User: user,
		Auth: []ssh.AuthMethod{ssh.PublicKeys(key)},
		HostKeyCallback: func(_ string, _ net.Addr, shown ssh.PublicKey) error {
			wrongHost = hosts.check(u.Hostname(), port, shown)
			return wrongHost
		},
		// A server with several keys is asked for one that is known.
		HostKeyAlgorithms: hosts.algorithms(u.Hostname(), port),
		ClientVersion:     "SSH-2.0-coppice",
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c, chans, reqs, err := ssh.NewClientConn(conn, addr, conf)
	if err != nil {
		stop()
		_ = conn.Close()
		switch {
		case wrongHost != nil:
			return nil, r.failKind("connect", ErrHostKey, wrongHost.Error())
		case strings.Contains(err.Error(), "unable to authenticate"):
			return nil, r.failKind("connect", ErrAuth, "")
		}
		return nil, err
	}
	return &sshSession{
		remote: r, service: service, path: servicePath(u.Path),
		client: ssh.NewClient(c, chans, reqs), stop: stop,
	}, nil
}

// signer reads the private key.
func (a Auth) signer() (ssh.Signer, error) {
	if a.Identity == "" {
		return nil, errors.New("the Secret has no key identity; add a private key in OpenSSH's format")
	}
	var key ssh.Signer
	var err error
	if a.Passphrase != "" {
		key, err = ssh.ParsePrivateKeyWithPassphrase([]byte(a.Identity), []byte(a.Passphrase))
		if err != nil {
			// A passphrase beside a key without one is no harm.
			if plain, plainErr := ssh.ParsePrivateKey([]byte(a.Identity)); plainErr == nil {
				return plain, nil
			}
			return nil, errors.New("identity is no private key, or password doesn't open it")
		}
		return key, nil
	}
	if key, err = ssh.ParsePrivateKey([]byte(a.Identity)); err != nil {
		var missing *ssh.PassphraseMissingError
		if errors.As(err, &missing) {
			return nil, errors.New("identity is encrypted; add its passphrase to the Secret as password")
		}
		return nil, errors.New("identity is no private key in OpenSSH's or PEM format")
	}
	return key, nil
}

// sshChannel is one run of a service on the server.
type sshChannel struct {
	*ssh.Session
	in     io.WriteCloser
	out    io.Reader
	errors lockedBuffer
}

// lockedBuffer keeps the first bytes that a server writes to its error stream.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	const kept = 4 << 10
	if room := kept - b.buf.Len(); room > 0 {
		b.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// String returns what was written.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// run starts the service and reads what it advertises.
func (s *sshSession) run() (*packp.AdvRefs, error) {
	session, err := s.client.NewSession()
	if err != nil {
		return nil, err
	}
	ch := &sshChannel{Session: session}
	session.Stderr = &ch.errors
	if ch.in, err = session.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := session.StdoutPipe()
	if err != nil {
		return nil, err
	}
	limit := advertisedBytes + s.remote.Limits.withDefaults().PackBytes
	ch.out = &boundedBody{ReadCloser: io.NopCloser(stdout), limit: limit, left: limit}
	if err := session.Start(s.service + " " + shellQuote(s.path)); err != nil {
		return nil, err
	}
	s.ch = ch
	adv := packp.NewAdvRefs()
	if err := adv.Decode(ch.out); err != nil {
		if errors.Is(err, packp.ErrEmptyAdvRefs) {
			if s.service == transport.ReceivePackServiceName {
				return adv, nil
			}
			return nil, transport.ErrEmptyRemoteRepository
		}
		return nil, ch.explain(err)
	}
	if adv.IsEmpty() && s.service == transport.UploadPackServiceName {
		return nil, transport.ErrEmptyRemoteRepository
	}
	transport.FilterUnsupportedCapabilities(adv.Capabilities)
	return adv, nil
}

// servicePath is an address's path as a server takes it: /~user/x is below a home.
func servicePath(s string) string {
	if strings.HasPrefix(s, "/~") {
		return s[1:]
	}
	return s
}

// shellQuote quotes a path for the server's shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// explain makes an error of what the server wrote to its error stream, which is
// all that forges say of a repository that isn't there or may not be seen.
func (c *sshChannel) explain(err error) error {
	// The stream may still be on its way; it is complete once the service ended.
	_ = c.in.Close()
	_ = c.Wait()
	said := strings.TrimSpace(c.errors.String())
	if said == "" {
		return err
	}
	lower := strings.ToLower(said)
	for _, sign := range []string{"not found", "does not appear to be a git repository", "does not exist", "no such"} {
		if strings.Contains(lower, sign) {
			return ErrNotFound
		}
	}
	for _, sign := range []string{"access denied", "permission", "not allowed", "unauthorized"} {
		if strings.Contains(lower, sign) {
			return ErrAuth
		}
	}
	return fmt.Errorf("the server said: %s", said)
}

// AdvertisedReferences implements transport.Session.
func (s *sshSession) AdvertisedReferences() (*packp.AdvRefs, error) {
	if s.adv != nil {
		return s.adv, nil
	}
	adv, err := s.run()
	if err != nil {
		return nil, err
	}
	s.adv = adv
	return adv, nil
}

// AdvertisedReferencesContext implements transport.Session. The connection is bound
// to the context that it was made in.
func (s *sshSession) AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error) {
	return s.AdvertisedReferences()
}

// UploadPack implements transport.UploadPackSession.
func (s *sshSession) UploadPack(_ context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if req.IsEmpty() {
		return nil, transport.ErrEmptyUploadPackRequest
	}
	if err := req.Validate(); err != nil {
		return nil, err
	}
	ch, err := s.channel()
	if err != nil {
		return nil, err
	}
	// The server may answer before it has read everything, and stop reading until
	// its answer is read.
	sent := make(chan error, 1)
	go func() {
		err := req.UploadRequest.Encode(ch.in)
		if err == nil {
			err = req.UploadHaves.Encode(ch.in, false)
		}
		if err == nil {
			err = pktline.NewEncoder(ch.in).EncodeString("done\n")
		}
		sent <- errors.Join(err, ch.in.Close())
	}()
	res := packp.NewUploadPackResponse(req)
	if err := res.Decode(&channelBody{sshChannel: ch, sent: sent}); err != nil {
		return nil, ch.explain(err)
	}
	return res, nil
}

// channelBody is an answer whose end is the channel's.
type channelBody struct {
	*sshChannel
	sent <-chan error
}

// Read implements io.Reader.
func (b *channelBody) Read(p []byte) (int, error) { return b.out.Read(p) }

// Close implements io.Closer.
func (b *channelBody) Close() error {
	err := b.sshChannel.Close()
	<-b.sent
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// channel returns a channel that has advertised and was asked nothing yet.
func (s *sshSession) channel() (*sshChannel, error) {
	if s.ch == nil {
		if _, err := s.run(); err != nil {
			return nil, err
		}
	}
	ch := s.ch
	s.ch = nil
	return ch, nil
}

// ReceivePack implements transport.ReceivePackSession.
func (s *sshSession) ReceivePack(_ context.Context, req *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error) {
	ch, err := s.channel()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ch.Close() }()
	if err := req.Encode(ch.in); err != nil {
		return nil, ch.explain(err)
	}
	if err := ch.in.Close(); err != nil {
		return nil, err
	}
	report := packp.NewReportStatus()
	if err := report.Decode(ch.out); err != nil {
		return nil, ch.explain(err)
	}
	return report, report.Error()
}

// Close implements io.Closer.
func (s *sshSession) Close() error {
	s.stop()
	return s.client.Close()
}
