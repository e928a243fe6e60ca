package forge

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// gitlab speaks to GitLab, of gitlab.com or one's own.
//
// Sources: docs.gitlab.com/api (merge_requests, notes, commits, repositories).
type gitlab struct {
	*caller
	project string
	self    string
}

func newGitLab(c Config, api, name string) *gitlab {
	g := &gitlab{caller: newCaller(c.Client, api), project: "/projects/" + url.PathEscape(name)}
	// Tokens of users, projects and groups are all taken as a bearer's.
	g.authorize = bearer(Config{Token: c.Token})
	return g
}

// Limits: a note has at most 1,000,000 characters, a description of a status 255.
func (g *gitlab) Limits() Limits { return Limits{Comment: 1_000_000, Description: 255} }

func (g *gitlab) Self(ctx context.Context) (string, error) {
	if g.self != "" {
		return g.self, nil
	}
	var user struct {
		Username string `json:"username"`
	}
	_, err := g.call(ctx, http.MethodGet, "/user", nil, &user)
	if err != nil {
		return "", err
	}
	g.self = user.Username
	return g.self, nil
}

type mergeRequest struct {
	IID    int    `json:"iid"`
	Title  string `json:"title"`
	Body   string `json:"description"`
	State  string `json:"state"`
	Draft  bool   `json:"draft"`
	WebURL string `json:"web_url"`
	Author struct {
		Username string `json:"username"`
	} `json:"author"`
	Labels        []string  `json:"labels"`
	SHA           string    `json:"sha"`
	SourceBranch  string    `json:"source_branch"`
	TargetBranch  string    `json:"target_branch"`
	SourceProject int64     `json:"source_project_id"`
	TargetProject int64     `json:"target_project_id"`
	MergeSHA      string    `json:"merge_commit_sha"`
	SquashSHA     string    `json:"squash_commit_sha"`
	Updated       time.Time `json:"updated_at"`
	DiffRefs      struct {
		// Base is the merge base, Start the target branch's head when it was computed.
		Base  string `json:"base_sha"`
		Start string `json:"start_sha"`
	} `json:"diff_refs"`
}

func (m mergeRequest) pull() Pull {
	p := Pull{
		Number: m.IID, Title: m.Title, Body: m.Body, Author: m.Author.Username, URL: m.WebURL, Draft: m.Draft, Labels: m.Labels,
		Head: m.SHA, HeadRef: m.SourceBranch, Base: m.DiffRefs.Start, BaseRef: m.TargetBranch, MergeBase: m.DiffRefs.Base,
		Ref:  fmt.Sprintf("refs/merge-requests/%d/head", m.IID),
		Fork: m.SourceProject == 0 || m.SourceProject != m.TargetProject,
		Open: m.State == "opened" || m.State == "locked", Merged: m.State == "merged", Updated: m.Updated,
	}
	if p.Merged {
		// Without a merge commit it was squashed, or the branch was moved forward.
		for _, sha := range []string{m.MergeSHA, m.SquashSHA, m.SHA} {
			if sha != "" {
				p.MergeCommit = sha
				break
			}
		}
	}
	return p
}

func (g *gitlab) Pulls(ctx context.Context, q Query) ([]Pull, error) {
	path := g.project + "/merge_requests?state=opened&per_page=100"
	if q.Closed {
		path = g.project + "/merge_requests?state=merged&per_page=50&order_by=updated_at&sort=desc"
	}
	if q.Head != "" {
		if q.Closed {
			path = g.project + "/merge_requests?state=all&per_page=100"
		}
		path += "&source_branch=" + url.QueryEscape(q.Head)
	}
	if q.Base != "" {
		path += "&target_branch=" + url.QueryEscape(q.Base)
	}
	all, err := listPages[mergeRequest](ctx, g.caller, path, !q.Closed || q.Head != "")
	if err != nil {
		return nil, err
	}
	var out []Pull
	for _, m := range all {
		if pull := m.pull(); q.has(pull) {
			out = append(out, pull)
		}
	}
	return out, nil
}

func (g *gitlab) request(number int) string {
	return g.project + "/merge_requests/" + strconv.Itoa(number)
}

func (g *gitlab) Pull(ctx context.Context, number int) (Pull, error) {
	var m mergeRequest
	if _, err := g.call(ctx, http.MethodGet, g.request(number), nil, &m); err != nil {
		return Pull{}, err
	}
	return m.pull(), nil
}

func (g *gitlab) Contains(ctx context.Context, ancestor, descendant string) (bool, error) {
	if ancestor == descendant {
		return true, nil
	}
	var base struct {
		ID string `json:"id"`
	}
	q := url.Values{"refs[]": {ancestor, descendant}}
	_, err := g.call(ctx, http.MethodGet, g.project+"/repository/merge_base?"+q.Encode(), nil, &base)
	return err == nil && base.ID == ancestor, err
}

type note struct {
	ID     int64  `json:"id"`
	Body   string `json:"body"`
	System bool   `json:"system"`
	Author struct {
		Username string `json:"username"`
	} `json:"author"`
}

func (n note) comment() Comment { return Comment{ID: n.ID, Author: n.Author.Username, Body: n.Body} }

func (g *gitlab) Comments(ctx context.Context, number int) ([]Comment, error) {
	all, err := list[note](ctx, g.caller, g.request(number)+"/notes?order_by=created_at&sort=asc&per_page=100")
	if err != nil {
		return nil, err
	}
	people := all[:0]
	for _, n := range all {
		if !n.System {
			people = append(people, n)
		}
	}
	return distinct(people, note.comment), nil
}

func (g *gitlab) AddComment(ctx context.Context, number int, body string) (Comment, error) {
	var n note
	_, err := g.call(ctx, http.MethodPost, g.request(number)+"/notes", map[string]string{"body": body}, &n)
	return n.comment(), err
}

func (g *gitlab) note(number int, id int64) string {
	return g.request(number) + "/notes/" + strconv.FormatInt(id, 10)
}

func (g *gitlab) EditComment(ctx context.Context, number int, id int64, body string) error {
	_, err := g.call(ctx, http.MethodPut, g.note(number, id), map[string]string{"body": body}, nil)
	return err
}

func (g *gitlab) DeleteComment(ctx context.Context, number int, id int64) error {
	_, err := g.call(ctx, http.MethodDelete, g.note(number, id), nil, nil)
	if notFound(err) {
		return nil
	}
	return err
}

func (g *gitlab) SetStatus(ctx context.Context, sha string, s Status) error {
	type status struct {
		Name        string `json:"name"`
		State       string `json:"state,omitempty"`
		Status      string `json:"status,omitempty"` // what the state is called when it answers
		TargetURL   string `json:"target_url,omitempty"`
		Description string `json:"description"`
	}
	state := map[State]string{Pending: "pending", Success: "success", Failure: "failed"}[s.State]
	want := status{Name: s.Context, Status: state, TargetURL: s.URL, Description: cut(s.Description, g.Limits().Description)}
	// GitLab refuses a transition to the state that a status has.
	var now []status
	commit := g.project + "/repository/commits/" + url.PathEscape(sha) + "/statuses"
	if _, err := g.call(ctx, http.MethodGet, commit+"?name="+url.QueryEscape(s.Context), nil, &now); err != nil {
		return err
	}
	for _, is := range now {
		if is == want {
			return nil
		}
	}
	want.State, want.Status = state, ""
	_, err := g.call(ctx, http.MethodPost, g.project+"/statuses/"+url.PathEscape(sha), want, nil)
	return err
}
