package forgeserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/forge"
)

func (f *Server) hubPull(p *forge.Pull, list bool) map[string]any {
	headRepo := any(map[string]any{"id": 1, "full_name": "acme/fleet"})
	if p.Fork {
		headRepo = map[string]any{"id": 2, "full_name": "mallory/fleet"}
		if p.Number%2 == 0 {
			headRepo = nil
		}
	}
	state := "closed"
	if p.Open {
		state = "open"
	}
	labels := []map[string]any{}
	for _, l := range p.Labels {
		labels = append(labels, map[string]any{"name": l})
	}
	// GitHub says where the base was when the head was pushed.
	base := p.Base
	if f.Kind == "github" && f.Branches[p.BaseRef] != "" {
		base = f.mergeBase(p.Base, p.Head)
	}
	m := map[string]any{
		"number": p.Number, "title": p.Title, "body": p.Body, "state": state, "draft": p.Draft, "html_url": p.URL, "updated_at": p.Updated,
		"user": map[string]any{"login": p.Author}, "labels": labels, "merge_commit_sha": p.MergeCommit, "merged_at": nil,
		"head": map[string]any{"ref": p.HeadRef, "sha": p.Head, "repo": headRepo},
		"base": map[string]any{"ref": p.BaseRef, "sha": base, "repo": map[string]any{"id": 1, "full_name": "acme/fleet"}},
	}
	if p.Merged {
		m["merged_at"] = p.Updated
	}
	if f.Kind == "gitea" {
		m["merge_base"], m["merged"] = f.mergeBase(p.Base, p.Head), p.Merged
	} else if !list {
		m["merged"] = p.Merged
	}
	return m
}

func (f *Server) serveHub(w http.ResponseWriter, r *http.Request, at string, in map[string]any) {
	parts := strings.Split(strings.TrimPrefix(at, "/"), "/")
	q := r.URL.Query()
	switch {
	case at == "/pulls" && r.Method == http.MethodPost:
		if p := f.propose(w, str(in, "title"), str(in, "body"), str(in, "head"), str(in, "base")); p != nil {
			answer(w, 201, f.hubPull(p, false))
		}
	case at == "/pulls":
		var out []map[string]any
		base := ""
		if f.Kind == "github" {
			base = q.Get("base")
		}
		for _, p := range f.matching(q.Get("state") == "open", base, false) {
			if head := q.Get("head"); head == "" || f.Kind == "gitea" || head == "acme:"+p.HeadRef && !p.Fork {
				out = append(out, f.hubPull(p, true))
			}
		}
		page(f, w, r, out)
	case parts[0] == "pulls":
		p := f.pull(number(parts[1]))
		if p == nil {
			answer(w, 404, map[string]any{"message": "Not Found"})
			return
		}
		if r.Method == http.MethodPatch {
			amend(p, str(in, "title"), str(in, "body"))
			p.Open = p.Open && str(in, "state") != "closed"
		}
		answer(w, 200, f.hubPull(p, false))
	case parts[0] == "compare":
		a, b, _ := strings.Cut(parts[1], "...")
		if at, ok := f.Branches[a]; ok {
			a = at
		}
		total, status := 0, "identical"
		for c := b; c != "" && !f.contains(c, a); c = f.Parents[c] {
			total++
		}
		switch {
		case a == b:
		case f.contains(a, b):
			status = "ahead"
		case f.contains(b, a):
			status = "behind"
		default:
			status = "diverged"
		}
		if f.Kind == "gitea" {
			answer(w, 200, map[string]any{"total_commits": total})
			return
		}
		answer(w, 200, map[string]any{"status": status, "total_commits": total, "base_commit": map[string]any{"sha": a}, "merge_base_commit": map[string]any{"sha": f.mergeBase(a, b)}})
	case parts[0] == "issues" && parts[1] == "comments":
		id, _ := strconv.ParseInt(parts[2], 10, 64)
		if r.Method == http.MethodDelete {
			if f.edit(w, id, nil) {
				answer(w, 204, nil)
			}
			return
		}
		body := str(in, "body")
		if f.edit(w, id, &body) {
			answer(w, 200, map[string]any{"id": id})
		}
	case parts[0] == "issues":
		n := number(parts[1])
		comment := func(c forge.Comment) map[string]any {
			return map[string]any{"id": c.ID, "body": c.Body, "user": map[string]any{"login": c.Author}}
		}
		if r.Method == http.MethodPost {
			if body := str(in, "body"); len(body) > 65536 {
				answer(w, 422, map[string]any{"message": "Validation Failed", "errors": []any{map[string]any{"message": "body is too long (maximum is 65536 characters)"}}})
				return
			}
			c := f.add(n, str(in, "body"))
			if f.After != nil {
				f.After()
			}
			answer(w, 201, comment(c))
			return
		}
		var out []map[string]any
		for _, c := range f.Comments[n] {
			out = append(out, comment(c))
		}
		if f.Kind == "gitea" {
			answer(w, 200, out) // all of them
			return
		}
		page(f, w, r, out)
	case parts[0] == "commits" && parts[2] == "status":
		answer(w, 200, map[string]any{"state": "pending", "statuses": f.latest(parts[1])})
	case parts[0] == "statuses":
		s := map[string]any{"context": in["context"], "description": in["description"], "target_url": in["target_url"]}
		if f.Kind == "gitea" {
			s["status"] = in["state"]
		} else {
			s["state"] = in["state"]
		}
		if len(str(in, "description")) > 140 && f.Kind == "github" {
			answer(w, 422, map[string]any{"message": "description is too long"})
			return
		}
		f.Statuses[parts[1]] = append(f.Statuses[parts[1]], s)
		answer(w, 201, s)
	default:
		answer(w, 404, map[string]any{"message": "Not Found"})
	}
}

// serveApp is what GitHub has for apps.
func (f *Server) serveApp(w http.ResponseWriter, r *http.Request, at string, in map[string]any) bool {
	asApp := strings.Count(r.Header.Get("Authorization"), ".") == 2
	switch {
	case at == "/app" && asApp:
		answer(w, 200, map[string]any{"slug": "coppice"})
	case at == "/repos/acme/fleet/installation" && asApp:
		answer(w, 200, map[string]any{"id": 77})
	case at == "/app/installations/77/access_tokens" && asApp:
		answer(w, 201, map[string]any{"token": "ghs_installed", "expires_at": time.Now().Add(time.Hour)})
	case strings.HasSuffix(at, "/check-runs") && r.Method == http.MethodGet:
		runs := []*Check{}
		for _, c := range slices.Backward(f.Checks) {
			if c.Name == r.URL.Query().Get("check_name") && strings.Contains(at, c.HeadSHA) {
				runs = append(runs, c)
				break
			}
		}
		answer(w, 200, map[string]any{"check_runs": runs})
	case strings.Contains(at, "/check-runs"):
		text, _ := json.Marshal(in)
		var run Check
		var more struct {
			Output struct {
				Annotations []map[string]any `json:"annotations"`
			} `json:"output"`
		}
		_, _ = json.Unmarshal(text, &run), json.Unmarshal(text, &more)
		if len(more.Output.Annotations) > 50 {
			answer(w, 422, map[string]any{"message": "Invalid request: more than 50 annotations"})
			return true
		}
		if r.Method == http.MethodPost {
			f.nextID++
			run.ID = f.nextID
			f.Checks = append(f.Checks, &run)
		}
		for _, c := range f.Checks {
			if strings.HasSuffix(at, "/check-runs/"+strconv.FormatInt(c.ID, 10)) || c.ID == run.ID {
				c.Status, c.Conclusion, c.ExternalID = run.Status, run.Conclusion, run.ExternalID
				c.Annotations = append(c.Annotations, more.Output.Annotations...)
				answer(w, 200, c)
			}
		}
	default:
		return false
	}
	return true
}

// latest are the newest statuses, one of each context.
func (f *Server) latest(sha string) []map[string]any {
	out := []map[string]any{}
	seen := map[any]bool{}
	for _, s := range slices.Backward(f.Statuses[sha]) {
		if !seen[s["context"]] {
			seen[s["context"]] = true
			out = append(out, s)
		}
	}
	return out
}
