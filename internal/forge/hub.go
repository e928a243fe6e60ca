package forge

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// hub speaks to GitHub and to Gitea and Forgejo, whose API was made after it.
//
// Sources: docs.github.com/rest (pulls, issues/comments, commits/statuses,
// commits/compare), and a Gitea's /api/swagger.
type hub struct {
	*caller
	// repo is the path of the repository's own part of the API.
	repo   string
	name   string
	github bool
	app    *installation
	// self is who we are, once that is known, and fallback who we are if nobody tells.
	self, fallback string
}

func newHub(c Config, kind, api, name string) *hub {
	h := &hub{caller: newCaller(c.Client, api), repo: "/repos/" + name, name: name, github: kind == "github", fallback: c.Self}
	h.authorize = bearer(c)
	if c.App != nil {
		h.app = &installation{App: *c.App, caller: newCaller(c.Client, api), repo: name}
		h.authorize = h.app.authorize
	}
	return h
}

// bearer sends a token, or a name with a token as its password, or nothing.
func bearer(c Config) func(context.Context, http.Header) error {
	return func(_ context.Context, h http.Header) error {
		switch {
		case c.Token == "":
		case c.Username != "":
			h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Token)))
		default:
			h.Set("Authorization", "Bearer "+c.Token)
		}
		return nil
	}
}

// Limits are those of GitHub: 65,536 characters a comment, 140 a description. Gitea
// has none of its own, but neither do people read more.
func (h *hub) Limits() Limits { return Limits{Comment: 65536, Description: 140} }

func (h *hub) Self(ctx context.Context) (string, error) {
	switch {
	case h.self != "":
		return h.self, nil
	case h.app != nil:
		slug, err := h.app.slug(ctx)
		if err != nil {
			return "", err
		}
		h.self = slug + "[bot]"
		return h.self, nil
	}
	var user struct {
		Login string `json:"login"`
	}
	_, err := h.call(ctx, http.MethodGet, "/user", nil, &user)
	switch {
	case Denied(err) && h.fallback != "":
		user.Login = h.fallback
	case err != nil:
		return "", err
	}
	h.self = user.Login
	return h.self, nil
}

type hubPull struct {
	Number  int    `json:"number"`
	Title   string `json:"title"`
	Body    string `json:"body"`
	State   string `json:"state"`
	Draft   bool   `json:"draft"`
	HTMLURL string `json:"html_url"`
	User    struct {
		Login string `json:"login"`
	} `json:"user"`
	Labels []struct {
		Name string `json:"name"`
	} `json:"labels"`
	Head      hubEnd     `json:"head"`
	Base      hubEnd     `json:"base"`
	MergeBase string     `json:"merge_base"` // Gitea alone
	Merged    bool       `json:"merged"`     // GitHub: not in lists
	MergedAt  *time.Time `json:"merged_at"`
	MergeSHA  string     `json:"merge_commit_sha"`
	Updated   time.Time  `json:"updated_at"`
}

type hubCommit struct {
	SHA string `json:"sha"`
}

type hubEnd struct {
	Label string `json:"label"`
	Ref   string `json:"ref"`
	SHA   string `json:"sha"`
	Repo  *struct {
		ID       int64  `json:"id"`
		FullName string `json:"full_name"`
	} `json:"repo"`
}

func (p hubPull) pull() Pull {
	out := Pull{
		Number: p.Number, Title: p.Title, Body: p.Body, Author: p.User.Login, URL: p.HTMLURL, Draft: p.Draft,
		Head: p.Head.SHA, HeadRef: p.Head.Ref, Base: p.Base.SHA, BaseRef: p.Base.Ref, MergeBase: p.MergeBase,
		Ref: fmt.Sprintf("refs/pull/%d/head", p.Number),
		// A head without a repository is that of a deleted fork.
		Fork: p.Head.Repo == nil || p.Base.Repo == nil || p.Head.Repo.ID != p.Base.Repo.ID,
		Open: p.State == "open", Merged: p.Merged || p.MergedAt != nil, Updated: p.Updated,
	}
	if strings.HasPrefix(out.HeadRef, "refs/pull/") {
		out.HeadRef = p.Head.Label // Gitea's, when the branch is gone
	}
	if out.Merged {
		// While it is open this is GitHub's trial of a merge.
		out.MergeCommit = p.MergeSHA
	}
	for _, l := range p.Labels {
		out.Labels = append(out.Labels, l.Name)
	}
	return out
}

func (h *hub) Pulls(ctx context.Context, q Query) ([]Pull, error) {
	path := h.repo + "/pulls?state=open&per_page=100&limit=50"
	if q.Closed {
		path = h.repo + "/pulls?state=closed&per_page=50&limit=50&direction=desc&sort=updated"
		if !h.github {
			path = h.repo + "/pulls?state=closed&limit=50&sort=recentupdate"
		}
	}
	if q.Base != "" && h.github {
		path += "&base=" + url.QueryEscape(q.Base)
	}
	if q.Head != "" && h.github {
		owner, _, _ := strings.Cut(h.name, "/")
		path += "&head=" + url.QueryEscape(owner+":"+q.Head)
	}
	all, err := listPages[hubPull](ctx, h.caller, path, !q.Closed || q.Head != "")
	if q.Closed && errors.Is(err, errPages) {
		err = nil // Gitea can't look for a branch; of thousands, the latest will do
	}
	if err != nil {
		return nil, err
	}
	var out []Pull
	for _, p := range all {
		if pull := p.pull(); q.has(pull) {
			out = append(out, pull)
		}
	}
	return out, nil
}

// listPages is list, or its first page alone.
func listPages[T any](ctx context.Context, k *caller, path string, all bool) ([]T, error) {
	if all {
		return list[T](ctx, k, path)
	}
	var some []T
	_, err := k.call(ctx, http.MethodGet, path, nil, &some)
	return some, err
}

func (h *hub) Pull(ctx context.Context, number int) (Pull, error) {
	var p hubPull
	if _, err := h.call(ctx, http.MethodGet, h.pullPath(number), nil, &p); err != nil {
		return Pull{}, err
	}
	out := p.pull()
	if h.github {
		// What GitHub calls the base's commit is where the branch was when the head was
		// pushed.
		var c struct {
			Base      hubCommit `json:"base_commit"`
			MergeBase hubCommit `json:"merge_base_commit"`
		}
		from := out.BaseRef
		if !out.Open {
			from = out.Base // the branch may be gone, and holds the head by now
		}
		if _, err := h.call(ctx, http.MethodGet, h.compare(from, out.Head)+"?per_page=1", nil, &c); err != nil {
			return Pull{}, err
		}
		out.Base, out.MergeBase = c.Base.SHA, c.MergeBase.SHA
	}
	return out, nil
}

func (h *hub) pullPath(number int) string { return h.repo + "/pulls/" + strconv.Itoa(number) }

func (h *hub) compare(from, to string) string {
	return h.repo + "/compare/" + url.PathEscape(from) + "..." + url.PathEscape(to)
}

func (h *hub) Contains(ctx context.Context, ancestor, descendant string) (bool, error) {
	if ancestor == descendant {
		return true, nil
	}
	if h.github {
		var c struct {
			Status string `json:"status"`
		}
		_, err := h.call(ctx, http.MethodGet, h.compare(ancestor, descendant)+"?per_page=1", nil, &c)
		return c.Status == "ahead" || c.Status == "identical", err
	}
	var c struct {
		Total int `json:"total_commits"`
	}
	_, err := h.call(ctx, http.MethodGet, h.compare(descendant, ancestor)+"?verification=false&files=false", nil, &c)
	return err == nil && c.Total == 0, err
}

type hubComment struct {
	ID   int64  `json:"id"`
	Body string `json:"body"`
	User struct {
		Login string `json:"login"`
	} `json:"user"`
}

func (c hubComment) comment() Comment { return Comment{ID: c.ID, Author: c.User.Login, Body: c.Body} }

func (h *hub) issue(number int) string {
	return h.repo + "/issues/" + strconv.Itoa(number) + "/comments"
}

func (h *hub) Comments(ctx context.Context, number int) ([]Comment, error) {
	all, err := list[hubComment](ctx, h.caller, h.issue(number)+"?per_page=100&limit=50")
	if err != nil {
		return nil, err
	}
	// Gitea gives all of them, whichever page is asked for.
	return distinct(all, hubComment.comment), nil
}

// distinct converts comments, the oldest first and each once.
func distinct[T any](all []T, convert func(T) Comment) []Comment {
	out := make([]Comment, 0, len(all))
	for _, c := range all {
		out = append(out, convert(c))
	}
	slices.SortStableFunc(out, func(a, b Comment) int { return int(min(1, max(-1, a.ID-b.ID))) })
	return slices.CompactFunc(out, func(a, b Comment) bool { return a.ID == b.ID })
}

func (h *hub) AddComment(ctx context.Context, number int, body string) (Comment, error) {
	var c hubComment
	_, err := h.call(ctx, http.MethodPost, h.issue(number), map[string]string{"body": body}, &c)
	if err == nil && h.self == "" {
		h.self = c.User.Login // nobody else told
	}
	return c.comment(), err
}

func (h *hub) comment(id int64) string {
	return h.repo + "/issues/comments/" + strconv.FormatInt(id, 10)
}

func (h *hub) EditComment(ctx context.Context, _ int, id int64, body string) error {
	_, err := h.call(ctx, http.MethodPatch, h.comment(id), map[string]string{"body": body}, nil)
	return err
}

func (h *hub) DeleteComment(ctx context.Context, _ int, id int64) error {
	_, err := h.call(ctx, http.MethodDelete, h.comment(id), nil, nil)
	if notFound(err) {
		return nil
	}
	return err
}

type hubStatus struct {
	Context     string `json:"context"`
	State       string `json:"state"`
	Status      string `json:"status,omitempty"` // what Gitea calls the state when it answers
	Description string `json:"description"`
	TargetURL   string `json:"target_url"`
}

func (h *hub) SetStatus(ctx context.Context, sha string, s Status) error {
	if h.app != nil {
		return h.setCheck(ctx, sha, s)
	}
	want := hubStatus{Context: s.Context, State: string(s.State), Description: cut(s.Description, h.Limits().Description), TargetURL: s.URL}
	// GitHub keeps at most 1,000 statuses of a context, and refuses more.
	var now struct {
		Statuses []hubStatus `json:"statuses"`
	}
	if _, err := h.call(ctx, http.MethodGet, h.repo+"/commits/"+url.PathEscape(sha)+"/status?per_page=100&limit=50", nil, &now); err != nil {
		return err
	}
	for _, is := range now.Statuses {
		if !h.github {
			is.State, is.Status = is.Status, ""
		}
		if is == want {
			return nil
		}
		if is.Context == want.Context {
			break // the newest comes first
		}
	}
	_, err := h.call(ctx, http.MethodPost, h.repo+"/statuses/"+url.PathEscape(sha), want, nil)
	return err
}
