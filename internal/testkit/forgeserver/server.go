// Package forgeserver is a forge's server with one repository, for tests: what the
// documentation of GitHub, GitLab, Gitea and Bitbucket says of the calls that
// internal/forge makes, with their pages, short hashes, names of states and refusals.
package forgeserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coppice-dev/coppice/internal/forge"
)

// Token is what requests have to carry.
const Token = "glpat-s3cr3t"

// Server is a forge with the repository acme/fleet. Its fields may be changed while
// nobody calls it, or under Lock.
type Server struct {
	*httptest.Server
	// Kind is github, gitlab, gitea or bitbucket.
	Kind string

	sync.Mutex
	// Me is who the token stands for. Mute doesn't tell.
	Me   string
	Mute bool
	// Pulls are the pull requests. Parents has the first parent of each commit,
	// Branches the commits that branches lead to.
	Pulls             []*forge.Pull
	Parents, Branches map[string]string
	// Comments are those of each pull request, Statuses those of each commit with the
	// oldest first.
	Comments map[int][]forge.Comment
	Statuses map[string][]map[string]any
	// Checks are the check runs of GitHub.
	Checks []*Check
	// Fault is asked first; true means that it has answered.
	Fault func(w http.ResponseWriter, r *http.Request) bool
	// Tip is asked where a branch leads that Branches doesn't have; "" for nowhere.
	Tip func(branch string) string
	// After is called when a comment was made, before the answer.
	After func()
	// Calls are all requests, as in "GET /path".
	Calls []string

	nextID int64
}

// Check is a check run.
type Check struct {
	ID          int64            `json:"id"`
	Name        string           `json:"name"`
	HeadSHA     string           `json:"head_sha"`
	Status      string           `json:"status"`
	Conclusion  string           `json:"conclusion"`
	ExternalID  string           `json:"external_id"`
	Annotations []map[string]any `json:"-"`
}

// Start starts a server, which Close ends.
func Start(kind string) *Server {
	f := &Server{
		Kind: kind, Me: "coppice-bot", Parents: map[string]string{}, Branches: map[string]string{},
		Comments: map[int][]forge.Comment{}, Statuses: map[string][]map[string]any{},
	}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	return f
}

// API is the root of the server's API.
func (f *Server) API() string {
	return f.URL + map[string]string{"github": "/api/v3", "gitlab": "/api/v4", "gitea": "/api/v1", "bitbucket": "/2.0"}[f.Kind]
}

// Latest are the newest statuses of a commit, one of each context.
func (f *Server) Latest(sha string) []map[string]any { return f.latest(sha) }

func (f *Server) pull(n int) *forge.Pull {
	for _, p := range f.Pulls {
		if p.Number == n {
			return p
		}
	}
	return nil
}

func (f *Server) serve(w http.ResponseWriter, r *http.Request) {
	f.Lock()
	defer f.Unlock()
	path := r.URL.EscapedPath()
	f.Calls = append(f.Calls, r.Method+" "+path)
	if f.Fault != nil && f.Fault(w, r) {
		return
	}
	auth := r.Header.Get("Authorization")
	if !strings.Contains(path, "/app") && !strings.HasSuffix(path, "/installation") && auth != "Bearer "+Token && auth != "Bearer ghs_installed" {
		answer(w, 401, map[string]any{"message": "Bad credentials for " + strings.TrimPrefix(auth, "Bearer ")})
		return
	}
	var in map[string]any
	_ = json.NewDecoder(r.Body).Decode(&in)
	_, rest, _ := strings.Cut(path, map[string]string{"github": "/api/v3", "gitea": "/api/v1", "gitlab": "/api/v4", "bitbucket": "/2.0"}[f.Kind])
	if rest == "/user" {
		if f.Mute {
			answer(w, 403, map[string]any{"message": "Resource not accessible by integration"})
			return
		}
		answer(w, 200, map[string]any{"login": f.Me, "username": f.Me, "uuid": f.Me})
		return
	}
	repo := map[string]string{"github": "/repos/acme/fleet", "gitea": "/repos/acme/fleet", "gitlab": "/projects/acme%2Ffleet", "bitbucket": "/repositories/acme/fleet"}[f.Kind]
	at, ok := strings.CutPrefix(rest, repo)
	if f.Kind == "github" && f.serveApp(w, r, rest, in) {
		return
	}
	if !ok {
		answer(w, 404, map[string]any{"message": "Not Found"})
		return
	}
	switch f.Kind {
	case "github", "gitea":
		f.serveHub(w, r, at, in)
	case "gitlab":
		f.serveGitLab(w, r, at, in)
	default:
		f.serveBitbucket(w, r, at, in)
	}
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if v != nil {
		_ = json.NewEncoder(w).Encode(v)
	}
}

// page answers with a page of a list, as long as the kind's maximum allows.
func page[T any](f *Server, w http.ResponseWriter, r *http.Request, all []T) {
	q := r.URL.Query()
	size, most := 30, 100
	for _, name := range map[string][]string{"github": {"per_page"}, "gitlab": {"per_page"}, "gitea": {"limit"}, "bitbucket": {"pagelen"}}[f.Kind] {
		if n, err := strconv.Atoi(q.Get(name)); err == nil {
			size = n
		}
	}
	if f.Kind == "gitea" {
		most = 50
	}
	size = min(size, most)
	n, _ := strconv.Atoi(q.Get("page"))
	n = max(n, 1)
	from, to := min((n-1)*size, len(all)), min(n*size, len(all))
	part := append([]T{}, all[from:to]...)
	if f.Kind == "bitbucket" {
		body := map[string]any{"values": part, "page": n, "pagelen": size}
		if to < len(all) {
			body["next"] = "https://elsewhere.example/never-followed"
		}
		answer(w, 200, body)
		return
	}
	if to < len(all) {
		w.Header().Set("Link", fmt.Sprintf(`<https://elsewhere.example%s?page=%d>; rel="next"`, r.URL.Path, n+1))
	}
	answer(w, 200, part)
}

// contains walks the parents.
func (f *Server) contains(ancestor, descendant string) bool {
	for c := descendant; c != ""; c = f.Parents[c] {
		if c == ancestor {
			return true
		}
	}
	return false
}

func (f *Server) mergeBase(a, b string) string {
	for c := a; c != ""; c = f.Parents[c] {
		if f.contains(c, b) {
			return c
		}
	}
	return ""
}

// matching are the pull requests of a state and a base, those changed last first.
func (f *Server) matching(open bool, base string, merged bool) []*forge.Pull {
	var out []*forge.Pull
	for _, p := range f.Pulls {
		if p.Open == open && (base == "" || p.BaseRef == base) && (!merged || p.Merged) {
			out = append(out, p)
		}
	}
	if !open {
		slices.SortFunc(out, func(a, b *forge.Pull) int { return b.Updated.Compare(a.Updated) })
	}
	return out
}

// headed are the pull requests of a state that are to be merged from a branch of the
// repository itself, those changed last first.
func (f *Server) headed(open bool, base, head string) []*forge.Pull {
	var out []*forge.Pull
	for _, p := range f.matching(open, base, false) {
		if p.HeadRef == head && !p.Fork {
			out = append(out, p)
		}
	}
	return out
}

// propose opens a pull request, unless it answers that it can't be done. Forges refuse a
// branch that isn't there, one that has nothing new, and a second pull request of the
// same branches.
func (f *Server) propose(w http.ResponseWriter, title, body, head, base string) *forge.Pull {
	tip := func(branch string) string {
		if at := f.Branches[branch]; at != "" || f.Tip == nil {
			return at
		}
		return f.Tip(branch)
	}
	from, to := tip(head), tip(base)
	status := 0
	switch {
	case title == "" || from == "" || to == "" || f.contains(from, to):
		status = map[string]int{"github": 422, "gitlab": 400, "gitea": 404, "bitbucket": 400}[f.Kind]
	case len(f.headed(true, base, head)) > 0:
		// Bitbucket would change the one that is there.
		status = map[string]int{"github": 422, "gitlab": 409, "gitea": 409, "bitbucket": 409}[f.Kind]
	}
	if status != 0 {
		answer(w, status, map[string]any{"message": "no pull request from " + head + " to " + base})
		return nil
	}
	n := 1
	for _, p := range f.Pulls {
		n = max(n, p.Number+1)
	}
	p := &forge.Pull{
		Number: n, Title: title, Body: body, Author: f.Me, URL: fmt.Sprintf("https://forge.example/acme/fleet/%d", n),
		Head: from, HeadRef: head, Base: to, BaseRef: base, Open: true, Updated: time.Date(2026, 11, 30, 12, n, 0, 0, time.UTC),
	}
	f.Pulls = append(f.Pulls, p)
	return p
}

// amend changes a pull request's title and text, what of them is given.
func amend(p *forge.Pull, title, body string) {
	if title != "" {
		p.Title = title
	}
	if body != "" {
		p.Body = body
	}
}

func (f *Server) add(n int, body string) forge.Comment {
	f.nextID++
	c := forge.Comment{ID: f.nextID, Author: f.Me, Body: body}
	f.Comments[n] = append(f.Comments[n], c)
	return c
}

// edit changes or deletes a comment; only its author may.
func (f *Server) edit(w http.ResponseWriter, id int64, body *string) bool {
	for n, all := range f.Comments {
		for i, c := range all {
			if c.ID != id {
				continue
			}
			if c.Author != f.Me {
				answer(w, 403, map[string]any{"message": "must be its author"})
				return false
			}
			if body == nil {
				f.Comments[n] = slices.Delete(slices.Clone(all), i, i+1)
			} else {
				all[i].Body = *body
			}
			return true
		}
	}
	answer(w, 404, map[string]any{"message": "Not Found"})
	return false
}

func str(m map[string]any, keys ...string) string {
	for _, k := range keys[:len(keys)-1] {
		m, _ = m[k].(map[string]any)
	}
	s, _ := m[keys[len(keys)-1]].(string)
	return s
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
