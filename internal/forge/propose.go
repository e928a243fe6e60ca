package forge

import (
	"context"
	"net/http"
	"strings"
)

// Proposal is a pull request to be opened, between two branches of the repository.
type Proposal struct {
	// Head is the branch that is to be merged, Base the one that it is merged into.
	Head, Base  string
	Title, Body string
}

// Label is what a proposal of ours says about itself at the beginning of its text,
// hidden from readers, so that what was proposed once is known without a memory.
type Label struct {
	Cluster string `json:"cluster"`
	Source  string `json:"source"`
	// Key identifies title and text.
	Key string `json:"key"`
	// Proposes identifies each thing that is proposed. It is empty when we have taken the
	// proposal back ourselves.
	Proposes []string `json:"proposes"`
}

// Line is the label as the first line of a text.
func (l Label) Line(limits Limits) string { return hiddenLine(limits, l) }

// ReadLabel returns the label of a text that has one, and the text below it.
func ReadLabel(body string) (l Label, rest string, ok bool) {
	_, rest, _ = strings.Cut(body, "\n")
	return l, rest, readHidden(body, &l) && l.Source != "" && l.Key != ""
}

// has reports whether a pull request is one that is asked for by its branches and its
// state.
func (q Query) has(p Pull) bool {
	return (q.Base == "" || p.BaseRef == q.Base) && (q.Head == "" || p.HeadRef == q.Head && !p.Fork && p.Open != q.Closed)
}

func (h *hub) Propose(ctx context.Context, p Proposal) (Pull, error) {
	var made hubPull
	_, err := h.call(ctx, http.MethodPost, h.repo+"/pulls", map[string]string{"title": p.Title, "body": p.Body, "head": p.Head, "base": p.Base}, &made)
	return made.pull(), err
}

func (h *hub) Amend(ctx context.Context, number int, title, body string) error {
	return h.patch(ctx, number, map[string]string{"title": title, "body": body})
}

func (h *hub) ClosePull(ctx context.Context, number int) error {
	return h.patch(ctx, number, map[string]string{"state": "closed"})
}

func (h *hub) patch(ctx context.Context, number int, change map[string]string) error {
	_, err := h.call(ctx, http.MethodPatch, h.pullPath(number), change, nil)
	return err
}

// Propose opens a merge request whose branch goes with the merge.
func (g *gitlab) Propose(ctx context.Context, p Proposal) (Pull, error) {
	var made mergeRequest
	_, err := g.call(ctx, http.MethodPost, g.project+"/merge_requests", map[string]any{
		"title": p.Title, "description": p.Body, "source_branch": p.Head, "target_branch": p.Base, "remove_source_branch": true,
	}, &made)
	return made.pull(), err
}

func (g *gitlab) Amend(ctx context.Context, number int, title, body string) error {
	_, err := g.call(ctx, http.MethodPut, g.request(number), map[string]string{"title": title, "description": body}, nil)
	return err
}

func (g *gitlab) ClosePull(ctx context.Context, number int) error {
	_, err := g.call(ctx, http.MethodPut, g.request(number), map[string]string{"state_event": "close"}, nil)
	return err
}

// Propose opens a pull request whose branch goes with the merge.
func (b *bitbucket) Propose(ctx context.Context, p Proposal) (Pull, error) {
	branch := func(name string) any { return map[string]any{"branch": map[string]string{"name": name}} }
	var made bbPull
	_, err := b.call(ctx, http.MethodPost, b.repo+"/pullrequests", map[string]any{
		"title": p.Title, "description": p.Body, "source": branch(p.Head), "destination": branch(p.Base), "close_source_branch": true,
	}, &made)
	return made.pull(), err
}

func (b *bitbucket) Amend(ctx context.Context, number int, title, body string) error {
	_, err := b.call(ctx, http.MethodPut, b.request(number), map[string]string{"title": title, "description": body}, nil)
	return err
}

// ClosePull declines it, which is Bitbucket's word.
func (b *bitbucket) ClosePull(ctx context.Context, number int) error {
	_, err := b.call(ctx, http.MethodPost, b.request(number)+"/decline", nil, nil)
	return err
}
