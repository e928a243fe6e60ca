package forge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// bitbucket speaks to Bitbucket Cloud.
//
// Source: developer.atlassian.com/cloud/bitbucket/rest (pullrequests, commit
// statuses, commits).
type bitbucket struct {
	*caller
	repo string
	self string
	web  string
	// whole are commits' hashes by their beginnings.
	whole map[string]string
}

func newBitbucket(c Config, api, name string) *bitbucket {
	b := &bitbucket{caller: newCaller(c.Client, api), repo: "/repositories/" + name, web: "https://bitbucket.org/" + name, whole: map[string]string{}}
	b.authorize = bearer(c)
	return b
}

// Limits: 32,768 characters is what Bitbucket takes for a comment, and comments are
// Markdown without HTML.
func (b *bitbucket) Limits() Limits {
	return Limits{Comment: 32768, Description: 255, PlainText: true}
}

func (b *bitbucket) Self(ctx context.Context) (string, error) {
	if b.self != "" {
		return b.self, nil
	}
	var user struct {
		UUID string `json:"uuid"`
	}
	_, err := b.call(ctx, http.MethodGet, "/user", nil, &user)
	if err != nil {
		return "", err
	}
	b.self = user.UUID
	return b.self, nil
}

type bbPull struct {
	ID     int    `json:"id"`
	Title  string `json:"title"`
	Body   string `json:"description"`
	State  string `json:"state"`
	Draft  bool   `json:"draft"`
	Author struct {
		Name string `json:"display_name"`
	} `json:"author"`
	Source      bbEnd     `json:"source"`
	Destination bbEnd     `json:"destination"`
	MergeCommit *bbCommit `json:"merge_commit"`
	Updated     time.Time `json:"updated_on"`
	Links       struct {
		HTML struct {
			Href string `json:"href"`
		} `json:"html"`
	} `json:"links"`
}

type bbCommit struct {
	Hash string `json:"hash"`
}

type bbEnd struct {
	Branch struct {
		Name string `json:"name"`
	} `json:"branch"`
	Commit     *bbCommit `json:"commit"`
	Repository *struct {
		UUID string `json:"uuid"`
	} `json:"repository"`
}

// maxWhole bounds how many hashes are kept: pull requests that are looked at have a few
// hundred.
const maxWhole = 5000

// full is a commit's whole hash, which is asked for once: an hour has 1,000 requests.
func (b *bitbucket) full(ctx context.Context, hash string) (string, error) {
	if hash == "" || len(hash) >= 40 {
		return hash, nil
	}
	if whole := b.whole[hash]; whole != "" {
		return whole, nil
	}
	var whole bbCommit
	_, err := b.call(ctx, http.MethodGet, b.repo+"/commit/"+url.PathEscape(hash), nil, &whole)
	if err != nil {
		return "", err
	}
	if len(b.whole) >= maxWhole {
		clear(b.whole)
	}
	b.whole[hash] = whole.Hash
	return whole.Hash, nil
}

func (p bbPull) pull() Pull {
	out := Pull{
		Number: p.ID, Title: p.Title, Body: p.Body, Author: p.Author.Name, URL: p.Links.HTML.Href, Draft: p.Draft,
		HeadRef: p.Source.Branch.Name, BaseRef: p.Destination.Branch.Name,
		Fork: p.Source.Repository == nil || p.Destination.Repository == nil || p.Source.Repository.UUID != p.Destination.Repository.UUID,
		Open: p.State == "OPEN", Merged: p.State == "MERGED", Updated: p.Updated,
		Head: p.Source.Commit.hash(), Base: p.Destination.Commit.hash(), MergeCommit: p.MergeCommit.hash(),
	}
	if !out.Fork && out.Open {
		out.Ref = "refs/heads/" + out.HeadRef
	}
	return out
}

// hash is the first twelve digits of a commit's, which is all that pull requests have.
func (c *bbCommit) hash() string {
	if c == nil {
		return ""
	}
	return c.Hash
}

func (b *bitbucket) Pulls(ctx context.Context, q Query) ([]Pull, error) {
	path := b.repo + "/pullrequests?state=OPEN&pagelen=50"
	if q.Closed {
		path = b.repo + "/pullrequests?state=MERGED&pagelen=50&sort=-updated_on"
	}
	var terms []string
	for _, term := range []struct{ field, name string }{{"destination", q.Base}, {"source", q.Head}} {
		if term.name != "" {
			name, _ := json.Marshal(term.name)
			terms = append(terms, term.field+".branch.name="+string(name))
		}
	}
	if q.Closed && q.Head != "" {
		path = b.repo + "/pullrequests?state=MERGED&state=DECLINED&state=SUPERSEDED&pagelen=50"
	}
	if len(terms) > 0 {
		path += "&q=" + url.QueryEscape(strings.Join(terms, " AND "))
	}
	all, err := values[bbPull](ctx, b.caller, path, !q.Closed || q.Head != "")
	if err != nil {
		return nil, err
	}
	var out []Pull
	for _, p := range all {
		if q.Base != "" && p.Destination.Branch.Name != q.Base || q.Head != "" && p.Source.Branch.Name != q.Head {
			continue
		}
		if pull := p.pull(); q.has(pull) {
			out = append(out, pull)
		}
	}
	return out, nil
}

// values reads a list, whose pages say themselves whether there is a next one.
func values[T any](ctx context.Context, k *caller, path string, all bool) ([]T, error) {
	var out []T
	for page := 1; page <= maxPages; page++ {
		var some struct {
			Values []T    `json:"values"`
			Next   string `json:"next"`
		}
		if _, err := k.call(ctx, http.MethodGet, path+"&page="+strconv.Itoa(page), nil, &some); err != nil {
			return nil, err
		}
		if out = append(out, some.Values...); some.Next == "" || !all {
			break
		}
	}
	return out, nil
}

func (b *bitbucket) request(number int) string {
	return b.repo + "/pullrequests/" + strconv.Itoa(number)
}

func (b *bitbucket) Pull(ctx context.Context, number int) (Pull, error) {
	var p bbPull
	if _, err := b.call(ctx, http.MethodGet, b.request(number), nil, &p); err != nil {
		return Pull{}, err
	}
	out := p.pull()
	for _, hash := range []*string{&out.Head, &out.Base, &out.MergeCommit} {
		var err error
		// A declined one's commits may be gone.
		if *hash, err = b.full(ctx, *hash); err != nil && (out.Open || out.Merged || !notFound(err)) {
			return Pull{}, err
		}
	}
	if out.Head == "" || out.Base == "" {
		return out, nil
	}
	var err error
	out.MergeBase, err = b.mergeBase(ctx, out.Base, out.Head)
	return out, err
}

func (b *bitbucket) mergeBase(ctx context.Context, a, c string) (string, error) {
	var base bbCommit
	if _, err := b.call(ctx, http.MethodGet, b.repo+"/merge-base/"+url.PathEscape(a)+".."+url.PathEscape(c), nil, &base); err != nil {
		return "", err
	}
	return b.full(ctx, base.Hash)
}

func (b *bitbucket) Contains(ctx context.Context, ancestor, descendant string) (bool, error) {
	if ancestor == descendant {
		return true, nil
	}
	base, err := b.mergeBase(ctx, ancestor, descendant)
	return err == nil && base == ancestor, err
}

type bbComment struct {
	ID      int64 `json:"id"`
	Content struct {
		Raw string `json:"raw"`
	} `json:"content"`
	Deleted bool `json:"deleted"`
	User    struct {
		UUID string `json:"uuid"`
	} `json:"user"`
}

func (c bbComment) comment() Comment {
	return Comment{ID: c.ID, Author: c.User.UUID, Body: c.Content.Raw}
}

func (b *bitbucket) Comments(ctx context.Context, number int) ([]Comment, error) {
	all, err := values[bbComment](ctx, b.caller, b.request(number)+"/comments?pagelen=100", true)
	if err != nil {
		return nil, err
	}
	there := all[:0]
	for _, c := range all {
		if !c.Deleted {
			there = append(there, c)
		}
	}
	return distinct(there, bbComment.comment), nil
}

func raw(body string) any { return map[string]any{"content": map[string]string{"raw": body}} }

func (b *bitbucket) AddComment(ctx context.Context, number int, body string) (Comment, error) {
	var c bbComment
	_, err := b.call(ctx, http.MethodPost, b.request(number)+"/comments", raw(body), &c)
	return c.comment(), err
}

func (b *bitbucket) comment(number int, id int64) string {
	return b.request(number) + "/comments/" + strconv.FormatInt(id, 10)
}

func (b *bitbucket) EditComment(ctx context.Context, number int, id int64, body string) error {
	_, err := b.call(ctx, http.MethodPut, b.comment(number, id), raw(body), nil)
	return err
}

func (b *bitbucket) DeleteComment(ctx context.Context, number int, id int64) error {
	_, err := b.call(ctx, http.MethodDelete, b.comment(number, id), nil, nil)
	if notFound(err) {
		return nil
	}
	return err
}

// SetStatus writes a build status, which needs a URL.
func (b *bitbucket) SetStatus(ctx context.Context, sha string, s Status) error {
	type status struct {
		Key         string `json:"key"`
		State       string `json:"state"`
		Name        string `json:"name"`
		URL         string `json:"url"`
		Description string `json:"description"`
	}
	// Keys are part of a path, and have at most 40 characters.
	sum := sha256.Sum256([]byte(s.Context))
	want := status{
		Key:  hex.EncodeToString(sum[:20]),
		Name: s.Context, URL: s.URL, Description: cut(s.Description, b.Limits().Description),
		State: map[State]string{Pending: "INPROGRESS", Success: "SUCCESSFUL", Failure: "FAILED"}[s.State],
	}
	if want.URL == "" {
		want.URL = b.web + "/commits/" + sha
	}
	statuses := b.repo + "/commit/" + url.PathEscape(sha) + "/statuses/build"
	var now status
	_, err := b.call(ctx, http.MethodGet, statuses+"/"+url.PathEscape(want.Key), nil, &now)
	if err != nil && !notFound(err) {
		return err
	}
	if now == want {
		return nil
	}
	_, err = b.call(ctx, http.MethodPost, statuses, want, nil)
	return err
}
