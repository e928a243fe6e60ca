package forge

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Bounds of one request.
const (
	// requestTimeout is for one attempt; GitHub itself ends requests after 10 s.
	requestTimeout = 30 * time.Second
	// maxAnswer is more than 100 comments of the largest size that GitHub has.
	maxAnswer = 32 << 20
	// maxPages ends a list that never does: 10,000 comments or pull requests.
	maxPages = 100
	// attempts is how often a request that may be repeated is sent.
	attempts = 4
)

// Client sends requests. The zero Client works.
type Client struct {
	// Transport sends them, http.DefaultTransport's like if nil. Roots are trusted
	// beside the system's, as PEM.
	Transport http.RoundTripper
	Roots     []byte
	// Patience is how long a rate limit is waited for inside of a call. A longer one
	// is a LimitedError. Without any, nothing is waited for, and what fails is not tried
	// again inside of the call.
	Patience time.Duration
	// Now tells the time, and Wait lets it pass; nil for the real one.
	Now  func() time.Time
	Wait func(ctx context.Context, d time.Duration) error

	secrets []string
	// key signs markers.
	key []byte
}

// Error is an answer that isn't success.
type Error struct {
	Method, Path string
	Status       int
	// Message is what the forge says, on one line.
	Message string
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s %s: %d %s", e.Method, e.Path, e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Denied reports whether an error is about rights: a token that is wrong, expired or
// may not do this. Forges answer 404 to who may not know.
func Denied(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden || e.Status == http.StatusNotFound)
}

// Forbidden reports whether an error says for certain that rights are missing: 401 and 403,
// and 404 of a change, which GitHub answers to tokens that may read alone. A read of what
// isn't there is no question of rights.
func Forbidden(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden || e.Status == http.StatusNotFound && e.Method != http.MethodGet)
}

func notFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Status == http.StatusNotFound || e.Status == http.StatusGone)
}

// LimitedError is a rate limit that is reached.
type LimitedError struct {
	// Until is when to ask again.
	Until time.Time
}

func (e *LimitedError) Error() string {
	return "the forge's rate limit is reached until " + e.Until.UTC().Format(time.RFC3339)
}

// caller calls one API.
type caller struct {
	http     *http.Client
	api      string
	patience time.Duration
	now      func() time.Time
	wait     func(ctx context.Context, d time.Duration) error
	secrets  []string
	key      []byte
	// authorize adds what says who asks.
	authorize func(ctx context.Context, h http.Header) error
}

func newCaller(c Client, api string) *caller {
	transport := c.Transport
	if transport == nil {
		t := &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true,
		}
		if len(c.Roots) > 0 {
			pool, err := x509.SystemCertPool()
			if err != nil {
				pool = x509.NewCertPool()
			}
			pool.AppendCertsFromPEM(c.Roots)
			t.TLSClientConfig = &tls.Config{RootCAs: pool}
		}
		transport = t
	}
	k := &caller{
		http: &http.Client{
			Transport: transport, Timeout: requestTimeout,
			CheckRedirect: func(req *http.Request, via []*http.Request) error {
				// A token is for one host. A renamed repository stays on it.
				if req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
					return fmt.Errorf("it redirects to another host, %s", req.URL.Host)
				}
				if len(via) > 5 {
					return errors.New("it redirects in circles")
				}
				return nil
			},
		},
		api: api, patience: c.Patience, now: c.Now, wait: c.Wait, secrets: c.secrets, key: c.key,
	}
	if k.now == nil {
		k.now = time.Now
	}
	if k.wait == nil {
		k.wait = func(ctx context.Context, d time.Duration) error {
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-timer.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return k
}

// Sign is an HMAC by the key that our token makes.
func (k *caller) Sign(text string) string {
	mac := hmac.New(sha256.New, k.key)
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// call sends a request and decodes the answer into out, unless that is nil. Only what
// changes nothing when it is done twice is repeated after a failure of the server.
func (k *caller) call(ctx context.Context, method, path string, in, out any) (http.Header, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	for attempt := 1; ; attempt++ {
		header, err := k.once(ctx, method, path, body, out)
		if err == nil {
			return header, nil
		}
		var pause time.Duration
		var limited *LimitedError
		var answer *Error
		switch {
		case attempt == attempts || ctx.Err() != nil || k.patience <= 0:
			return nil, err
		case errors.As(err, &limited):
			if pause = limited.Until.Sub(k.now()); pause > k.patience {
				return nil, err
			}
		case errors.As(err, &answer) && answer.Status < 500, method == http.MethodPost:
			return nil, err
		default:
			pause = time.Second << (attempt - 1)
		}
		if err := k.wait(ctx, pause); err != nil {
			return nil, err
		}
	}
}

func (k *caller) once(ctx context.Context, method, path string, body []byte, out any) (http.Header, error) {
	short, _, _ := strings.Cut(path, "?")
	req, err := http.NewRequestWithContext(ctx, method, k.api+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, short, err)
	}
	req.Header.Set("User-Agent", "coppice")
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if k.authorize != nil {
		if err := k.authorize(ctx, req.Header); err != nil {
			return nil, err
		}
	}
	res, err := k.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which is long
		}
		return nil, fmt.Errorf("%s %s%s: %w", method, k.host(), short, err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, short, err)
	}
	if until, limited := k.limited(res, data); limited {
		return nil, &LimitedError{Until: until}
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return nil, &Error{Method: method, Path: short, Status: res.StatusCode, Message: k.message(data)}
	}
	if len(data) > maxAnswer {
		return nil, fmt.Errorf("%s %s: the answer has more than %d bytes", method, short, maxAnswer)
	}
	if out != nil {
		if err := json.Unmarshal(data, out); err != nil {
			return nil, fmt.Errorf("%s %s: the answer isn't as documented: %w", method, short, err)
		}
	}
	return res.Header, nil
}

func (k *caller) host() string {
	if u, err := url.Parse(k.api); err == nil {
		return u.Host
	}
	return ""
}

// limited reports whether an answer is a rate limit, and until when. GitHub answers
// 403 too, and says so by Retry-After, by a remainder of 0, or in words alone, which
// want at least a minute.
func (k *caller) limited(res *http.Response, body []byte) (time.Time, bool) {
	h := res.Header
	spent := first(h, "X-RateLimit-Remaining", "RateLimit-Remaining") == "0"
	after, afterErr := strconv.Atoi(h.Get("Retry-After"))
	said := spent || afterErr == nil || bytes.Contains(body, []byte("secondary rate limit"))
	if res.StatusCode != http.StatusTooManyRequests && !(res.StatusCode == http.StatusForbidden && said) {
		return time.Time{}, false
	}
	now := k.now()
	if afterErr == nil {
		return now.Add(time.Duration(after) * time.Second), true
	}
	if reset, err := strconv.ParseInt(first(h, "X-RateLimit-Reset", "RateLimit-Reset"), 10, 64); err == nil && spent {
		if at := time.Unix(reset, 0); at.After(now) {
			return at.Add(time.Second), true
		}
		return now.Add(time.Second), true
	}
	return now.Add(time.Minute), true
}

func first(h http.Header, names ...string) string {
	for _, n := range names {
		if v := h.Get(n); v != "" {
			return v
		}
	}
	return ""
}

// message is what a forge says about a failure. All four answer in JSON, each in its
// own.
func (k *caller) message(data []byte) string {
	var body struct {
		Message any `json:"message"`
		Error   any `json:"error"`
		Errors  any `json:"errors"`
	}
	text := ""
	if json.Unmarshal(data, &body) == nil {
		for _, part := range []any{body.Message, body.Error, body.Errors} {
			switch p := part.(type) {
			case nil:
				continue
			case string:
				text += " " + p
			case map[string]any:
				if m, ok := p["message"].(string); ok {
					text += " " + m
					continue
				}
				more, _ := json.Marshal(p)
				text += " " + string(more)
			default:
				more, _ := json.Marshal(p)
				text += " " + string(more)
			}
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	for _, s := range k.secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "***")
		}
	}
	return cut(text, 300)
}

// pages calls a list page by page, as long as the forge says there is another one.
// each decodes a page and may end the list.
func (k *caller) pages(ctx context.Context, path string, each func(json.RawMessage) (more bool, err error)) error {
	for page := 1; page <= maxPages; page++ {
		var raw json.RawMessage
		header, err := k.call(ctx, http.MethodGet, path+"&page="+strconv.Itoa(page), nil, &raw)
		if err != nil {
			return err
		}
		more, err := each(raw)
		if err != nil {
			return fmt.Errorf("GET %s: the answer isn't as documented: %w", path, err)
		}
		// The link's address isn't followed: behind a proxy it may be another host's.
		if !more || !strings.Contains(header.Get("Link"), `rel="next"`) && header.Get("X-Next-Page") == "" {
			return nil
		}
	}
	return fmt.Errorf("GET %s: %w: more than %d", path, errPages, maxPages)
}

// errPages ends a list that is too long.
var errPages = errors.New("there are too many pages")

// list calls a list page by page and decodes all of it.
func list[T any](ctx context.Context, k *caller, path string) ([]T, error) {
	var all []T
	err := k.pages(ctx, path, func(raw json.RawMessage) (bool, error) {
		var some []T
		err := json.Unmarshal(raw, &some)
		all = append(all, some...)
		return true, err
	})
	return all, err
}
