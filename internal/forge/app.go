package forge

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coppice-dev/coppice/internal/githubapp"
)

// App is a GitHub App.
type App struct {
	githubapp.App
	// Installation is the id of the app's installation; 0 asks which one has the
	// repository.
	Installation int64
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

// asApp calls the API as the app itself.
func (a *installation) asApp(ctx context.Context, claim, method, path string, in, out any) error {
	a.caller.authorize = func(_ context.Context, h http.Header) error {
		h.Set("Authorization", "Bearer "+claim)
		return nil
	}
	_, err := a.caller.call(ctx, method, path, in, out)
	return err
}

func (a *installation) slug(ctx context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var app struct {
		Slug string `json:"slug"`
	}
	claim, err := a.Claim(a.caller.now())
	if err != nil {
		return "", err
	}
	err = a.asApp(ctx, claim, http.MethodGet, "/app", nil, &app)
	return app.Slug, err
}

// authorize adds a token for the repository alone, which lasts for an hour.
func (a *installation) authorize(ctx context.Context, h http.Header) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == "" || a.caller.now().Add(5*time.Minute).After(a.until) {
		if a.Installation == 0 {
			id, err := a.Find(ctx, a.asApp, a.caller.now(), "/repos/"+a.repo+"/installation")
			if err != nil {
				return fmt.Errorf("find the app's installation: %w", err)
			}
			a.Installation = id
		}
		_, name, _ := strings.Cut(a.repo, "/")
		got, err := a.Token(ctx, a.asApp, a.caller.now(), a.Installation, name)
		if err != nil {
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
