package forgeserver

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/internal/forge"
)

func (f *Server) serveGitLab(w http.ResponseWriter, r *http.Request, at string, in map[string]any) {
	parts := strings.Split(strings.TrimPrefix(at, "/"), "/")
	q := r.URL.Query()
	request := func(p *forge.Pull) map[string]any {
		state := map[bool]string{true: "opened", false: "closed"}[p.Open]
		if p.Merged {
			state = "merged"
		}
		m := map[string]any{
			"iid": p.Number, "title": p.Title, "description": p.Body, "state": state, "draft": p.Draft, "web_url": p.URL, "author": map[string]any{"username": p.Author},
			"labels": p.Labels, "sha": p.Head, "source_branch": p.HeadRef, "target_branch": p.BaseRef, "updated_at": p.Updated,
			"source_project_id": 1, "target_project_id": 1, "squash_commit_sha": nil, "merge_commit_sha": nil,
			"diff_refs": map[string]any{"base_sha": f.mergeBase(p.Base, p.Head), "start_sha": p.Base, "head_sha": p.Head},
		}
		if p.Fork {
			m["source_project_id"] = 2
		}
		if p.MergeCommit != "" {
			m["merge_commit_sha"] = p.MergeCommit
		}
		return m
	}
	switch {
	case at == "/merge_requests" && r.Method == http.MethodPost:
		if p := f.propose(w, str(in, "title"), str(in, "description"), str(in, "source_branch"), str(in, "target_branch")); p != nil {
			answer(w, 201, request(p))
		}
	case at == "/merge_requests":
		var out []map[string]any
		all := f.matching(q.Get("state") == "opened", q.Get("target_branch"), q.Get("state") == "merged")
		if head := q.Get("source_branch"); head != "" {
			all = f.headed(true, q.Get("target_branch"), head)
			if q.Get("state") == "all" {
				all = append(all, f.headed(false, q.Get("target_branch"), head)...)
			}
		}
		for _, p := range all {
			m := request(p)
			delete(m, "diff_refs")
			out = append(out, m)
		}
		page(f, w, r, out)
	case parts[0] == "merge_requests" && len(parts) == 2:
		if p := f.pull(number(parts[1])); p != nil {
			if r.Method == http.MethodPut {
				amend(p, str(in, "title"), str(in, "description"))
				p.Open = p.Open && str(in, "state_event") != "close"
			}
			answer(w, 200, request(p))
			return
		}
		answer(w, 404, map[string]any{"message": "404 Not found"})
	case parts[0] == "merge_requests" && len(parts) == 4:
		id, _ := strconv.ParseInt(parts[3], 10, 64)
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
	case parts[0] == "merge_requests":
		n := number(parts[1])
		note := func(c forge.Comment) map[string]any {
			return map[string]any{"id": c.ID, "body": c.Body, "system": c.Author == "system", "author": map[string]any{"username": c.Author}}
		}
		if r.Method == http.MethodPost {
			c := f.add(n, str(in, "body"))
			if f.After != nil {
				f.After()
			}
			answer(w, 201, note(c))
			return
		}
		var out []map[string]any
		for _, c := range f.Comments[n] {
			out = append(out, note(c))
		}
		page(f, w, r, out)
	case at == "/repository/merge_base":
		refs := q["refs[]"]
		answer(w, 200, map[string]any{"id": f.mergeBase(refs[0], refs[1])})
	case parts[0] == "repository":
		out := []map[string]any{}
		for _, s := range f.latest(parts[2]) {
			if q.Get("name") == "" || q.Get("name") == s["context"] {
				out = append(out, map[string]any{"name": s["context"], "status": s["state"], "target_url": s["target_url"], "description": s["description"]})
			}
		}
		page(f, w, r, out)
	case parts[0] == "statuses":
		for _, s := range f.latest(parts[1]) {
			if s["context"] == in["name"] && s["state"] == in["state"] {
				answer(w, 400, map[string]any{"message": "Cannot transition status via :enqueue from :pending"})
				return
			}
		}
		if !slices.Contains([]string{"pending", "running", "success", "failed", "canceled"}, str(in, "state")) {
			answer(w, 400, map[string]any{"error": "state does not have a valid value"})
			return
		}
		f.Statuses[parts[1]] = append(f.Statuses[parts[1]], map[string]any{"context": in["name"], "state": in["state"], "target_url": in["target_url"], "description": in["description"]})
		answer(w, 201, nil)
	default:
		answer(w, 404, map[string]any{"error": "404 Not Found"})
	}
}
