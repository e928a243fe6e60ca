package forgeserver

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/internal/forge"
)

func (f *Server) serveBitbucket(w http.ResponseWriter, r *http.Request, at string, in map[string]any) {
	parts := strings.Split(strings.TrimPrefix(at, "/"), "/")
	fail := func() {
		answer(w, 404, map[string]any{"type": "error", "error": map[string]any{"message": "not found"}})
	}
	commit := func(sha string) any {
		if sha == "" {
			return nil
		}
		return map[string]any{"hash": sha[:12]}
	}
	request := func(p *forge.Pull) map[string]any {
		state := map[bool]string{true: "OPEN", false: "DECLINED"}[p.Open]
		if p.Merged {
			state = "MERGED"
		}
		end := func(ref, sha string, repo any) map[string]any {
			return map[string]any{"branch": map[string]any{"name": ref}, "commit": commit(sha), "repository": repo}
		}
		repo := any(map[string]any{"uuid": "{1}"})
		if p.Fork {
			repo = map[string]any{"uuid": "{2}"}
		}
		return map[string]any{
			"id": p.Number, "title": p.Title, "description": p.Body, "state": state, "draft": p.Draft, "updated_on": p.Updated, "author": map[string]any{"display_name": p.Author},
			"source": end(p.HeadRef, p.Head, repo), "destination": end(p.BaseRef, p.Base, map[string]any{"uuid": "{1}"}),
			"merge_commit": commit(p.MergeCommit), "links": map[string]any{"html": map[string]any{"href": p.URL}},
		}
	}
	switch {
	case at == "/pullrequests" && r.Method == http.MethodPost:
		if p := f.propose(w, str(in, "title"), str(in, "description"), str(in, "source", "branch", "name"), str(in, "destination", "branch", "name")); p != nil {
			answer(w, 201, request(p))
		}
	case at == "/pullrequests":
		q := r.URL.Query()
		base, head := "", ""
		for _, term := range strings.Split(q.Get("q"), " AND ") {
			field, name, _ := strings.Cut(term, ".branch.name=")
			_ = json.Unmarshal([]byte(name), map[string]*string{"destination": &base, "source": &head}[field])
		}
		all := f.matching(q.Get("state") == "OPEN", base, !slices.Contains(q["state"], "DECLINED") && q.Get("state") == "MERGED")
		if head != "" {
			all = f.headed(q.Get("state") == "OPEN", base, head)
		}
		var out []map[string]any
		for _, p := range all {
			out = append(out, request(p))
		}
		page(f, w, r, out)
	case parts[0] == "pullrequests" && len(parts) == 2:
		if p := f.pull(number(parts[1])); p != nil {
			if r.Method == http.MethodPut {
				amend(p, str(in, "title"), str(in, "description"))
			}
			answer(w, 200, request(p))
			return
		}
		fail()
	case parts[0] == "pullrequests" && len(parts) == 3 && parts[2] == "decline":
		if p := f.pull(number(parts[1])); p != nil {
			p.Open = false
			answer(w, 200, request(p))
			return
		}
		fail()
	case parts[0] == "pullrequests" && len(parts) == 4:
		id, _ := strconv.ParseInt(parts[3], 10, 64)
		if r.Method == http.MethodDelete {
			if f.edit(w, id, nil) {
				answer(w, 204, nil)
			}
			return
		}
		body := str(in, "content", "raw")
		if f.edit(w, id, &body) {
			answer(w, 200, map[string]any{"id": id})
		}
	case parts[0] == "pullrequests":
		n := number(parts[1])
		comment := func(c forge.Comment) map[string]any {
			return map[string]any{"id": c.ID, "content": map[string]any{"raw": c.Body}, "deleted": false, "user": map[string]any{"uuid": c.Author}}
		}
		if r.Method == http.MethodPost {
			c := f.add(n, str(in, "content", "raw"))
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
		out = append(out, map[string]any{"id": 9999, "deleted": true, "content": map[string]any{"raw": ""}})
		page(f, w, r, out)
	case parts[0] == "merge-base":
		spec, _ := url.PathUnescape(parts[1])
		a, b, _ := strings.Cut(spec, "..")
		answer(w, 200, map[string]any{"hash": f.mergeBase(a, b)})
	case parts[0] == "commit" && len(parts) == 2:
		for whole := range f.Parents {
			if strings.HasPrefix(whole, parts[1]) {
				answer(w, 200, map[string]any{"hash": whole})
				return
			}
		}
		fail()
	case parts[0] == "commit" && len(parts) == 4 && r.Method == http.MethodPost:
		if len(str(in, "key")) > 40 || str(in, "url") == "" {
			answer(w, 400, map[string]any{"error": map[string]any{"message": "key or url"}})
			return
		}
		f.Statuses[parts[1]] = append(f.Statuses[parts[1]], map[string]any{"context": in["key"], "state": in["state"], "key": in["key"], "name": in["name"], "url": in["url"], "description": in["description"]})
		answer(w, 201, nil)
	case parts[0] == "commit" && len(parts) == 5:
		for _, s := range f.latest(parts[1]) {
			if s["context"] == parts[4] {
				answer(w, 200, s)
				return
			}
		}
		fail()
	default:
		fail()
	}
}
