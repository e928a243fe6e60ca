package githubapp

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

var key = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

func TestParseKey(t *testing.T) {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key())
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := x509.MarshalPKCS8PrivateKey(curve)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	for name, tc := range map[string]struct {
		why  string
		text []byte
		ok   bool
	}{
		"pkcs1":   {"as GitHub gives it", text("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key())), true},
		"pkcs8":   {"as tools rewrite it", text("PRIVATE KEY", pkcs8), true},
		"curve":   {"GitHub takes RSA alone", text("PRIVATE KEY", other), false},
		"no pem":  {"a key without its frame", x509.MarshalPKCS1PrivateKey(key()), false},
		"cut off": {"a part of one", text("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key())[:40]), false},
		"empty":   {"none", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseKey(tc.text)
			if (err == nil) != tc.ok || tc.ok && !got.Equal(key()) {
				t.Errorf("%s: %v", tc.why, err)
			}
		})
	}
}

// TestToken: the claim is signed and lasts as long as GitHub takes it for.
func TestToken(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	a := App{ID: "17", Key: key()}
	var paths []string
	call := func(_ context.Context, claim, method, path string, in, out any) error {
		paths = append(paths, method+" "+path)
		parts := strings.Split(claim, ".")
		sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
		sig, err := base64.RawURLEncoding.DecodeString(parts[2])
		if err != nil {
			return err
		}
		if err := rsa.VerifyPKCS1v15(&key().PublicKey, crypto.SHA256, sum[:], sig); err != nil {
			return err
		}
		body, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil {
			return err
		}
		var c struct {
			Iss      string
			Iat, Exp int64
		}
		if err := json.Unmarshal(body, &c); err != nil {
			return err
		}
		if c.Iss != "17" || c.Exp-c.Iat != 600 || c.Iat >= now.Unix() {
			return fmt.Errorf("claims %+v", c)
		}
		if in != nil {
			if text, err := json.Marshal(in); err != nil || string(text) != `{"repositories":["fleet"]}` {
				return fmt.Errorf("asked with %s, %v", text, err)
			}
		}
		return json.Unmarshal([]byte(`{"id": 4711, "token": "t0k", "expires_at": "2026-11-30T13:00:00Z"}`), out)
	}
	id, err := a.Find(t.Context(), call, now, "/users/acme/installation")
	if err != nil || id != 4711 {
		t.Fatalf("installation %d, %v", id, err)
	}
	got, err := a.Token(t.Context(), call, now, id, "fleet")
	if err != nil || got != (Token{"t0k", now.Add(time.Hour)}) {
		t.Errorf("%+v, %v", got, err)
	}
	if want := "GET /users/acme/installation POST /app/installations/4711/access_tokens"; strings.Join(paths, " ") != want {
		t.Errorf("asked %v", paths)
	}
	empty := func(context.Context, string, string, string, any, any) error { return nil }
	if _, err := a.Token(t.Context(), empty, now, 1, "fleet"); err == nil {
		t.Error("an answer without a token was taken for one")
	}
	refused := errors.New("no")
	if _, err := a.Find(t.Context(), func(context.Context, string, string, string, any, any) error { return refused }, now, "/x"); !errors.Is(err, refused) {
		t.Error(err)
	}
	if s := fmt.Sprintf("%v %+v %#v", a, a, a); strings.Contains(s, key().D.String()) {
		t.Error("the key is shown")
	}
}
