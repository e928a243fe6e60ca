// Package githubapp is how a GitHub App authenticates: as itself by a signed claim, and in
// a repository by a token that its installation gets for it. Requests are sent by who
// calls, each in its own way.
//
// Source: docs.github.com/apps/creating-github-apps/authenticating-with-a-github-app.
package githubapp

import (
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
	"net/http"
	"strconv"
	"time"
)

// App is a GitHub App.
type App struct {
	// ID is the app's, or its client's, id.
	ID string
	// Key is the app's private key.
	Key *rsa.PrivateKey
}

// String hides the key.
func (a App) String() string { return "***" }

// GoString hides the key from %#v.
func (a App) GoString() string { return "githubapp.App{***}" }

// ParseKey reads a private key as GitHub gives it: PEM, PKCS#1 or PKCS#8. Its error has
// nothing of the text in it.
func ParseKey(text []byte) (*rsa.PrivateKey, error) {
	wrong := errors.New("the app's private key is no RSA key in PEM; take the file that GitHub gave as it is")
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, wrong
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if key, ok := parsed.(*rsa.PrivateKey); ok {
			return key, nil
		}
	}
	return nil, wrong
}

// The times of a claim: clocks may differ by a minute, and GitHub takes none that lasts
// longer than ten.
const (
	skew     = time.Minute
	lifetime = 9 * time.Minute
)

// Claim says who the app is (RFC 7519, signed by RS256).
func (a App) Claim(now time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{"iss": a.ID, "iat": now.Add(-skew).Unix(), "exp": now.Add(lifetime).Unix()})
	if err != nil {
		return "", fmt.Errorf("sign as the app %s: %w", a.ID, err)
	}
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + enc.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, a.Key, crypto.SHA256, sum[:])
	if err != nil {
		return "", errors.New("the app's private key is too weak to sign with")
	}
	return text + "." + enc.EncodeToString(sig), nil
}

// Call sends a request of the API with a claim and decodes the answer into out.
type Call func(ctx context.Context, claim, method, path string, in, out any) error

// Token is what an installation acts with.
type Token struct {
	Token string
	// Expires is an hour after it was made.
	Expires time.Time
}

// Find asks for the id of an installation by the path at which the API tells it:
// /repos/OWNER/NAME/installation or /users/OWNER/installation.
func (a App) Find(ctx context.Context, call Call, now time.Time, path string) (int64, error) {
	claim, err := a.Claim(now)
	if err != nil {
		return 0, err
	}
	var found struct {
		ID int64 `json:"id"`
	}
	err = call(ctx, claim, http.MethodGet, path, nil, &found)
	return found.ID, err
}

// Token asks for a token of an installation that is good for one repository alone, by its
// name without the owner's.
func (a App) Token(ctx context.Context, call Call, now time.Time, installation int64, repository string) (Token, error) {
	claim, err := a.Claim(now)
	if err != nil {
		return Token{}, err
	}
	var got struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expires_at"`
	}
	path := "/app/installations/" + strconv.FormatInt(installation, 10) + "/access_tokens"
	if err := call(ctx, claim, http.MethodPost, path, map[string]any{"repositories": []string{repository}}, &got); err != nil {
		return Token{}, err
	}
	if got.Token == "" {
		return Token{}, errors.New("the answer holds no token")
	}
	return Token{Token: got.Token, Expires: got.Expires}, nil
}
