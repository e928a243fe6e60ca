package record

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Path is where the record is served.
const Path = "/decisions"

// ServeHTTP answers GET with all of the record, as a JSON list of entries. It gives
// access to nobody in particular: who may ask is decided before.
func (b *Book) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The client may be gone; nobody else is to be told.
	_ = json.NewEncoder(w).Encode(b.All())
}

// most is how many bytes of an answer are read: ten times a full book.
const most = 256 << 20

// Fetch asks a controller at base, as in https://localhost:8443, for its record.
func Fetch(c *http.Client, base string) ([]Entry, error) {
	var out []Entry
	if err := Ask(c, base, Path, &out); err != nil {
		return nil, err
	}
	return out, nil
}

// Ask asks a controller at base for what it serves at a path, as JSON.
func Ask(c *http.Client, base, path string, into any) error {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return fmt.Errorf("controller %q is no URL; give one such as https://localhost:8443", base)
	}
	if u.Scheme != "https" {
		return fmt.Errorf("controller %q: a token is sent over https alone; give a URL such as https://localhost:8443", base)
	}
	u = u.JoinPath(path)
	// A redirect would take the token to somebody else.
	straight := *c
	straight.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := straight.Get(u.String())
	if err != nil {
		return fmt.Errorf("ask the controller: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return fmt.Errorf("read the answer of the controller at %s: %w", u.Host, err)
	}
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
	// The filter in front answers a token that the API server refuses with 500.
	case code == http.StatusUnauthorized, code == http.StatusInternalServerError && strings.HasPrefix(string(body), "Authentication failed"):
		return fmt.Errorf("the controller at %s doesn't know who asks; give a bearer token, as from 'kubectl create token'", u.Host)
	case code == http.StatusForbidden:
		return fmt.Errorf("the controller at %s refuses; the user needs a ClusterRole with nonResourceURLs [%q] and verbs [\"get\"]", u.Host, path)
	default:
		return fmt.Errorf("ask the controller at %s: %s", u.Host, resp.Status)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read the answer of the controller at %s: %w", u.Host, err)
	}
	return nil
}
