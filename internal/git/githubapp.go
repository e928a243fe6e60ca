package git

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

// App is a GitHub App that may act on repositories where it is installed.
type App struct {
	// ID is the app's, InstallationID that of its installation; without the latter
	// the installation of the account Owner is looked up.
	ID, InstallationID string
	Owner              string
	// PrivateKey is PEM.
	PrivateKey string
	// BaseURL of the API, DefaultGitHubAPI if empty; https://HOST/api/v3 for GitHub
	// Enterprise Server.
	BaseURL  string
	CABundle []byte
}

// DefaultGitHubAPI is where GitHub's own API is.
const DefaultGitHubAPI = "https://api.github.com"

// AppToken is what an installation of an app authenticates with.
type AppToken struct {
	Token   string
	Expires time.Time
}

// Auth returns the token as Git takes it.
func (t AppToken) Auth() Auth { return Auth{Username: "x-access-token", Password: t.Token} }

// String hides the content.
func (a App) String() string { return "***" }

// GoString hides the content from %#v.
func (a App) GoString() string { return "git.App{***}" }

// The times of a request for a token: clocks may differ by a minute, and GitHub
// takes nothing that lasts longer than ten
// (https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app).
const (
	appSkew     = time.Minute
	appLifetime = 9 * time.Minute
)

// answerBytes bounds an answer of the API, which is a few kilobytes long.
const answerBytes = 1 << 20

// Token asks for a token that is good for one repository alone, the one that an
// address names. now is for the request's signature.
func (a App) Token(ctx context.Context, now time.Time, repository string) (AppToken, error) {
	base := a.BaseURL
	if base == "" {
		base = DefaultGitHubAPI
	}
	api, err := url.Parse(strings.TrimRight(base, "/"))
	if err != nil || api.Host == "" || api.User != nil || api.Scheme != "https" && (api.Scheme != "http" || !loopback(api.Hostname())) {
		return AppToken{}, &Error{Op: "authenticate", Kind: ErrApp, Detail: "githubAppBaseURL must be an https URL"}
	}
	u, err := url.Parse(repository)
	if err != nil {
		return AppToken{}, &Error{Op: "authenticate", Kind: ErrURL}
	}
	// The API of GitHub itself and of its tenants is below their own host.
	if host := strings.TrimPrefix(strings.ToLower(api.Host), "api."); strings.ToLower(u.Host) != host {
		return AppToken{}, &Error{Op: "authenticate", URL: RedactURL(repository), Kind: ErrApp,
			Detail: fmt.Sprintf("its tokens are for %s and are sent nowhere else; change the address, or githubAppBaseURL", host)}
	}
	jwt, err := a.jwt(now)
	if err != nil {
		return AppToken{}, &Error{Op: "authenticate", URL: api.String(), Kind: ErrApp, Detail: err.Error()}
	}
	id := a.InstallationID
	if id == "" {
		var found struct{ ID int64 }
		if err := a.call(ctx, jwt, http.MethodGet, api.JoinPath("users", a.Owner, "installation"), nil, &found); err != nil {
			return AppToken{}, err
		}
		id = strconv.FormatInt(found.ID, 10)
	}
	ask := map[string]any{"repositories": []string{strings.TrimSuffix(path.Base(u.Path), ".git")}}
	var got struct {
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	if err := a.call(ctx, jwt, http.MethodPost, api.JoinPath("app", "installations", id, "access_tokens"), ask, &got); err != nil {
		return AppToken{}, err
	}
	if got.Token == "" {
		return AppToken{}, &Error{Op: "authenticate", URL: api.String(), Detail: "the answer holds no token"}
	}
	return AppToken{Token: got.Token, Expires: got.ExpiresAt}, nil
}

// jwt is what the app itself authenticates with (RFC 7519, signed by RS256).
func (a App) jwt(now time.Time) (string, error) {
	key, err := a.key()
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{
		"iss": a.ID, "iat": now.Add(-appSkew).Unix(), "exp": now.Add(appLifetime).Unix(),
	})
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + enc.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", errors.New("githubAppPrivateKey is too weak to sign with")
	}
	return text + "." + enc.EncodeToString(sig), nil
}

func (a App) key() (*rsa.PrivateKey, error) {
	wrong := errors.New("githubAppPrivateKey is no RSA key in PEM; download one from the app's settings")
	block, _ := pem.Decode([]byte(a.PrivateKey))
	if block == nil {
		return nil, wrong
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if any, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if key, ok := any.(*rsa.PrivateKey); ok {
			return key, nil
		}
	}
	return nil, wrong
}

// call makes one request of the API.
func (a App) call(ctx context.Context, jwt, method string, to *url.URL, body, into any) error {
	where := Remote{URL: to.String(), Auth: Auth{Token: jwt}}
	var payload io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, to.String(), payload)
	if err != nil {
		return where.fail(ctx, "authenticate", err)
	}
	req.Header.Set("Authorization", "Bearer "+jwt)
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	rt, err := Remote{CABundle: a.CABundle}.trip()
	if err != nil {
		return err
	}
	res, err := rt.RoundTrip(req) // which follows no redirects
	if err != nil {
		return where.fail(ctx, "authenticate", err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, answerBytes))
	if err != nil {
		return where.fail(ctx, "authenticate", err)
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		if err := json.Unmarshal(text, into); err != nil {
			return where.failKind("authenticate", nil, "the answer is no JSON")
		}
		return nil
	}
	var said struct{ Message string }
	_ = json.Unmarshal(text, &said)
	detail := fmt.Sprintf("status %d %s", res.StatusCode, said.Message)
	switch res.StatusCode {
	case http.StatusUnauthorized:
		return where.failKind("authenticate", ErrApp, detail+": check githubAppID and githubAppPrivateKey, and the cluster's clock")
	case http.StatusNotFound:
		return where.failKind("authenticate", ErrApp, detail+": the app is not installed there; check githubAppInstallationOwner or githubAppInstallationID, and githubAppBaseURL")
	case http.StatusUnprocessableEntity:
		return where.failKind("authenticate", ErrApp, detail+": the installation doesn't cover the repository")
	case http.StatusForbidden:
		if res.Header.Get("Retry-After") == "" && res.Header.Get("X-RateLimit-Remaining") != "0" {
			return where.failKind("authenticate", ErrApp, detail+": the installation may be suspended")
		}
	}
	return where.failKind("authenticate", nil, detail)
}
