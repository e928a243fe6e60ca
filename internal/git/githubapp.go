package git

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/githubapp"
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
	// Proxy is what the API is reached through.
	Proxy Proxy
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
	refuse := func(err error) error {
		var known *Error
		if errors.As(err, &known) {
			return err
		}
		return &Error{Op: "authenticate", URL: api.String(), Kind: ErrApp, Detail: err.Error()}
	}
	key, err := githubapp.ParseKey([]byte(a.PrivateKey))
	if err != nil {
		return AppToken{}, refuse(fmt.Errorf("githubAppPrivateKey: %w", err))
	}
	app := githubapp.App{ID: a.ID, Key: key}
	call := func(ctx context.Context, claim, method, path string, in, out any) error {
		return a.call(ctx, claim, method, api.JoinPath(path), in, out)
	}
	var id int64
	if a.InstallationID == "" {
		if id, err = app.Find(ctx, call, now, "/users/"+url.PathEscape(a.Owner)+"/installation"); err != nil {
			return AppToken{}, refuse(err)
		}
	} else if id, err = strconv.ParseInt(a.InstallationID, 10, 64); err != nil {
		return AppToken{}, refuse(errors.New("githubAppInstallationID is no number; give the one in the installation's URL"))
	}
	got, err := app.Token(ctx, call, now, id, strings.TrimSuffix(path.Base(u.Path), ".git"))
	if err != nil {
		return AppToken{}, refuse(err)
	}
	return AppToken{Token: got.Token, Expires: got.Expires}, nil
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
	rt, err := Remote{CABundle: a.CABundle, Proxy: a.Proxy}.trip()
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
