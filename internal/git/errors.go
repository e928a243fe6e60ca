package git

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// The kinds of failure that callers tell apart with errors.Is. Whatever is none
// of them is worth another try.
var (
	// ErrURL: the address is not one that can be fetched from.
	ErrURL = errors.New("the address must be an http or https URL without a user or a password in it, or ssh://git@HOST/PATH")
	// ErrCA: the certificates to trust are none.
	ErrCA = errors.New("the CA bundle holds no PEM certificate")
	// ErrClientCert: the certificate to show can't be used.
	ErrClientCert = errors.New("the client certificate can't be used; tls.crt and tls.key must be PEM and belong together")
	// ErrProxy: the proxy's address can't be used.
	ErrProxy = errors.New("the proxy's address must be a URL with http, https or socks5, without a user or a password in it")
	// ErrPlain: a token or password would cross the network in the clear.
	ErrPlain = errors.New("credentials are sent over https only; change the address")
	// ErrRedirect: the server sends elsewhere, and credentials don't go along.
	ErrRedirect = errors.New("the server redirects to another address, where these credentials are not sent; write the address that is meant into the source")
	// ErrIdentity: the SSH key can't be used.
	ErrIdentity = errors.New("the SSH key can't be used")
	// ErrKnownHosts: nothing says which key the SSH server must show.
	ErrKnownHosts = errors.New("SSH needs known_hosts in the Secret, so that nobody can stand in for the server; take it from the forge's documentation, or from ssh-keyscan over a network that is trusted")
	// ErrHostKey: the SSH server showed another key.
	ErrHostKey = errors.New("the SSH server's host key is not one of known_hosts; somebody may be standing in for it. If it was changed on purpose, replace known_hosts in the Secret")
	// ErrSignature: nobody who is trusted signed the commit or the tag.
	ErrSignature = errors.New("the signature is not accepted")
	// ErrDigest: the artifact is not what was announced.
	ErrDigest = errors.New("the artifact does not have the digest that was announced; nothing of it is used")
	// ErrApp: GitHub doesn't give this app a token.
	ErrApp = errors.New("GitHub gives this app no token")
	// ErrKeyring: there is nothing to check signatures with.
	ErrKeyring = errors.New("the keys to verify with can't be used")
	// ErrAuth: the server wants other credentials.
	ErrAuth = errors.New("the server refused the credentials; check the secret that is referred to, and that it may read (and, for reports, write) the repository")
	// ErrNotFound: there is no such repository, or it may not be seen.
	ErrNotFound = errors.New("there is no such repository, or these credentials may not see it")
	// ErrRef: the repository has no such branch, tag or commit.
	ErrRef = errors.New("the repository has no such branch, tag or commit")
	// ErrTooLarge: the commit, or the list of refs, exceeds a limit.
	ErrTooLarge = errors.New("too large to read")
	// ErrTree: the tree holds what is refused.
	ErrTree = errors.New("the tree holds entries that are refused")
	// ErrRejected: the server took the commit and said no, as a protected
	// branch or a hook does.
	ErrRejected = errors.New("the server rejected the commit; check the branch's protection rules and hooks")
	// ErrConflict: others kept moving the branch.
	ErrConflict = errors.New("the branch kept moving while the commit was made")
)

// Error is a failed operation on a repository. Its text holds no credentials.
type Error struct {
	// Op is what was tried, as in "fetch".
	Op string
	// URL has no user and no password.
	URL string
	// Kind is one of this package's errors, a context's error, or nil.
	Kind error
	// Detail says more, or everything if Kind is nil.
	Detail string
}

// Error returns op, address, kind and detail on one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.URL != "" {
		b.WriteString(" " + e.URL)
	}
	if e.Kind != nil {
		b.WriteString(": " + e.Kind.Error())
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	return b.String()
}

// Unwrap returns Kind. The cause itself is not kept: its text may hold secrets.
func (e *Error) Unwrap() error { return e.Kind }

// Permanent reports whether the same call would fail again until a person
// changes the address, the credentials, the ref, or the repository.
func (e *Error) Permanent() bool {
	switch e.Kind {
	case ErrURL, ErrCA, ErrTooLarge, ErrTree, ErrClientCert, ErrPlain, ErrProxy, ErrRedirect,
		ErrIdentity, ErrKnownHosts, ErrHostKey, ErrSignature, ErrKeyring, ErrApp:
		return true
	}
	return false
}

// fail makes an *Error of a cause. An operation whose context has ended failed
// for that reason, whatever the libraries below made of it.
func (r Remote) fail(ctx context.Context, op string, cause error) error {
	var done *Error
	if errors.As(cause, &done) {
		return done
	}
	kind := classify(cause)
	if err := ctx.Err(); err != nil {
		kind = err
	}
	detail := explain(cause)
	if kind != nil {
		detail = strings.TrimPrefix(strings.TrimPrefix(detail, kind.Error()), ": ")
	}
	detail = r.redact(detail)
	switch kind {
	case context.DeadlineExceeded, context.Canceled, ErrAuth, ErrNotFound:
		// The cause repeats the kind, or is a page meant for a browser.
		detail = ""
	}
	return &Error{Op: op, URL: RedactURL(r.URL), Kind: kind, Detail: detail}
}

// failKind makes an *Error of a kind and a detail of our own wording.
func (r Remote) failKind(op string, kind error, detail string) error {
	return &Error{Op: op, URL: RedactURL(r.URL), Kind: kind, Detail: r.redact(detail)}
}

// explain returns what a cause says, without what an Error says itself (what was
// tried, and where) and without what changes from one try to the next.
func explain(cause error) string {
	if errors.Is(cause, errLimit) {
		_, detail, _ := strings.Cut(cause.Error(), errLimit.Error()+": ")
		return detail
	}
	var unexpected *plumbing.UnexpectedError
	if errors.As(cause, &unexpected) {
		cause = unexpected.Err
	}
	var answer *githttp.Err
	if errors.As(cause, &answer) {
		code := answer.StatusCode()
		return fmt.Sprintf("the server answered with status %d %s", code, http.StatusText(code))
	}
	var sending *url.Error
	if errors.As(cause, &sending) {
		cause = sending.Err
	}
	return connection.ReplaceAllString(cause.Error(), "$1 $2")
}

// connection matches the two ends of a connection, of which ours has another port
// each time.
var connection = regexp.MustCompile(`(read|write) (tcp|udp) \S+->\S+`)

func classify(cause error) error {
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		return context.DeadlineExceeded
	case errors.Is(cause, context.Canceled):
		return context.Canceled
	case errors.Is(cause, transport.ErrAuthenticationRequired), errors.Is(cause, transport.ErrAuthorizationFailed):
		return ErrAuth
	case errors.Is(cause, transport.ErrRepositoryNotFound):
		return ErrNotFound
	case errors.Is(cause, transport.ErrEmptyRemoteRepository):
		return ErrRef
	case errors.Is(cause, errLimit):
		return ErrTooLarge
	}
	for _, kind := range []error{ErrRedirect, ErrAuth, ErrNotFound} {
		if errors.Is(cause, kind) {
			return kind
		}
	}
	return nil
}

// maxDetail bounds a cause's text: a server may answer with a whole page.
const maxDetail = 300

var userinfo = regexp.MustCompile(`://[^/\s@"]*@`)

// redact removes every form of the credentials from s, and everything that
// looks like a user in an address, and makes one short line of it.
func (r Remote) redact(s string) string {
	for _, secret := range r.Auth.forms() {
		s = strings.ReplaceAll(s, secret, "***")
	}
	if r.Proxy.Password != "" {
		s = strings.ReplaceAll(s, r.Proxy.Password, "***")
	}
	s = userinfo.ReplaceAllString(s, "://***@")
	s = strings.Join(strings.FieldsFunc(s, func(c rune) bool {
		return unicode.IsSpace(c) || unicode.IsControl(c)
	}), " ")
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "") + "…"
	}
	return s
}

// forms returns the secrets as they may appear in a text, the longest first so
// that one is never cut by another that it contains.
func (a Auth) forms() []string {
	var out []string
	if a.Password != "" {
		out = append(out, base64.StdEncoding.EncodeToString([]byte(a.Username+":"+a.Password)))
	}
	for _, secret := range []string{a.Password, a.Token, a.Passphrase, a.Identity, a.ClientKey} {
		if secret == "" {
			continue
		}
		for _, form := range []string{url.QueryEscape(secret), url.PathEscape(secret), secret} {
			out = append(out, form)
		}
	}
	return out
}

// RedactURL returns an address without user, password, query and fragment,
// whatever else is wrong with it. What can't be told from a password goes too.
func RedactURL(raw string) string {
	u, err := url.Parse(raw)
	if err == nil && u.Host != "" && (u.Port() == "" || !strings.Contains(u.Path, "@")) {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		return u.String()
	}
	// The password may hold any character, an unescaped slash or question mark
	// included, so everything up to the last @ is suspect.
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		scheme, rest = "", raw
	} else {
		scheme += "://"
	}
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	return scheme + rest
}
