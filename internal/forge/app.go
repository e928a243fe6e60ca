package forge

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
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// App is a GitHub App.
type App struct {
	// ID is the app's, or its client's, id.
	ID string
	// Installation is the id of the app's installation; 0 asks which one has the
	// repository.
	Installation int64
	// Key is the app's private key.
	Key *rsa.PrivateKey
}

// ParseKey reads a private key as GitHub gives it: PEM, PKCS#1 or PKCS#8.
func ParseKey(text []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("the app's private key isn't PEM; take the file that GitHub gave as it is")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the app's private key can't be read; take the file that GitHub gave as it is")
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("the app's private key is no RSA key; take the file that GitHub gave as it is")
	}
	return key, nil
}

// installation is an App in one repository, with the token that it has for now.
type installation struct {
	App
	caller *caller
	repo   string

	mu    sync.Mutex
	token string
	until time.Time
}

// jwt says who the app is, for nine minutes from a minute ago: GitHub takes ten at
// most, and clocks differ.
func (a *installation) jwt(now time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{"iss": a.ID, "iat": now.Add(-time.Minute).Unix(), "exp": now.Add(9 * time.Minute).Unix()})
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + enc.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, a.Key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign as the app %s: %w", a.ID, err)
	}
	return text + "." + enc.EncodeToString(sig), nil
}

// asApp calls the API as the app itself.
func (a *installation) asApp(ctx context.Context, method, path string, in, out any) error {
	token, err := a.jwt(a.caller.now())
	if err != nil {
		return err
	}
	a.caller.authorize = func(_ context.Context, h http.Header) error {
		h.Set("Authorization", "Bearer "+token)
		return nil
	}
	_, err = a.caller.call(ctx, method, path, in, out)
	return err
}

func (a *installation) slug(ctx context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var app struct {
		Slug string `json:"slug"`
	}
	err := a.asApp(ctx, http.MethodGet, "/app", nil, &app)
	return app.Slug, err
}

// authorize adds a token for the repository alone, which lasts for an hour.
func (a *installation) authorize(ctx context.Context, h http.Header) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == "" || a.caller.now().Add(5*time.Minute).After(a.until) {
		if a.Installation == 0 {
			var in struct {
				ID int64 `json:"id"`
			}
			if err := a.asApp(ctx, http.MethodGet, "/repos/"+a.repo+"/installation", nil, &in); err != nil {
				return fmt.Errorf("find the app's installation: %w", err)
			}
			a.Installation = in.ID
		}
		var got struct {
			Token   string    `json:"token"`
			Expires time.Time `json:"expires_at"`
		}
		_, name, _ := strings.Cut(a.repo, "/")
		ask := map[string]any{"repositories": []string{name}}
		if err := a.asApp(ctx, http.MethodPost, "/app/installations/"+strconv.FormatInt(a.Installation, 10)+"/access_tokens", ask, &got); err != nil {
			return fmt.Errorf("get a token of the app's installation: %w", err)
		}
		a.token, a.until = got.Token, got.Expires
	}
	h.Set("Authorization", "Bearer "+a.token)
	return nil
}

// AppToken is the token that a forge's GitHub App has for now, with which the repository
// can be read over Git too; ok is false if it is spoken to by a user.
func AppToken(ctx context.Context, f Forge) (token string, ok bool, err error) {
	h, is := f.(*hub)
	if !is || h.app == nil {
		return "", false, nil
	}
	if err := h.app.authorize(ctx, http.Header{}); err != nil {
		return "", false, err
	}
	h.app.mu.Lock()
	defer h.app.mu.Unlock()
	return h.app.token, true, nil
}

// Limits of a check run (docs.github.com/rest/checks/runs).
const (
	// batch is how many annotations one request may have; the next adds to them.
	batch = 50
	// maxSummary is how many characters a summary may have.
	maxSummary = 65535
	// maxAnnotation is how many bytes an annotation's message may have.
	maxAnnotation = 64 << 10
	// maxTitle is how many characters an annotation's title may have.
	maxTitle = 255
)

type checkRun struct {
	ID         int64        `json:"id,omitempty"`
	Name       string       `json:"name,omitempty"`
	HeadSHA    string       `json:"head_sha,omitempty"`
	DetailsURL string       `json:"details_url,omitempty"`
	ExternalID string       `json:"external_id,omitempty"`
	Status     string       `json:"status"`
	Conclusion string       `json:"conclusion,omitempty"`
	Output     *checkOutput `json:"output,omitempty"`
}

type checkOutput struct {
	Title       string            `json:"title"`
	Summary     string            `json:"summary"`
	Annotations []checkAnnotation `json:"annotations,omitempty"`
}

type checkAnnotation struct {
	Path    string `json:"path"`
	Start   int    `json:"start_line"`
	End     int    `json:"end_line"`
	Level   string `json:"annotation_level"`
	Title   string `json:"title,omitempty"`
	Message string `json:"message"`
}

// setCheck makes the check run of a commit what s says. What it says, but for the
// summary, is remembered in the run's external id, so that the same isn't written twice.
func (h *hub) setCheck(ctx context.Context, sha string, s Status) error {
	// The summary has figures of what is live, which change all the time. The comment has
	// them as they are now.
	judged := s
	judged.Summary = ""
	run := checkRun{
		Name: s.Context, HeadSHA: sha, DetailsURL: s.URL, Status: "in_progress", ExternalID: hashOf(judged),
		Output: &checkOutput{Title: cut(s.Description, maxTitle), Summary: cut(s.Summary, maxSummary)},
	}
	if run.Output.Summary == "" {
		run.Output.Summary = s.Description
	}
	if s.State != Pending {
		run.Status, run.Conclusion = "completed", string(s.State)
	}
	var notes []checkAnnotation
	for _, a := range s.Annotations {
		notes = append(notes, checkAnnotation{
			Path: a.File, Start: max(a.Line, 1), End: max(a.Line, 1), Level: a.Level,
			Title: cut(a.Title, maxTitle), Message: cut(a.Message, maxAnnotation),
		})
	}
	var now struct {
		Runs []checkRun `json:"check_runs"`
	}
	path := h.repo + "/commits/" + url.PathEscape(sha) + "/check-runs?filter=latest&per_page=1&check_name=" + url.QueryEscape(s.Context)
	if _, err := h.call(ctx, http.MethodGet, path, nil, &now); err != nil {
		return err
	}
	// Annotations can only be added. A run that has been completed is left as it was,
	// and the next one takes its place.
	id := int64(0)
	if len(now.Runs) > 0 {
		if now.Runs[0].ExternalID == run.ExternalID {
			return nil
		}
		if now.Runs[0].Status != "completed" {
			id = now.Runs[0].ID
		}
	}
	final := run
	for at := 0; ; at += batch {
		end := min(at+batch, len(notes))
		part := run
		output := *final.Output
		output.Annotations = notes[at:end]
		part.Output = &output
		if end < len(notes) {
			// It is done, and known by its id, when the last batch is in.
			part.Status, part.Conclusion, part.ExternalID = "in_progress", "", ""
		}
		if id == 0 {
			var made checkRun
			if _, err := h.call(ctx, http.MethodPost, h.repo+"/check-runs", part, &made); err != nil {
				return err
			}
			id = made.ID
		} else {
			part.HeadSHA = ""
			if _, err := h.call(ctx, http.MethodPatch, h.repo+"/check-runs/"+strconv.FormatInt(id, 10), part, nil); err != nil {
				return err
			}
		}
		if end == len(notes) {
			return nil
		}
	}
}
