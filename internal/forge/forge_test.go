package forge_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/forge"
	"github.com/coppice-dev/coppice/internal/githubapp"
	"github.com/coppice-dev/coppice/internal/testkit/forgeserver"
)

func noWait(context.Context, time.Duration) error { return nil }

var kinds = []string{"github", "gitlab", "gitea", "bitbucket"}

type fake struct{ *forgeserver.Server }

func newFake(t *testing.T, kind string) fake {
	f := fake{forgeserver.Start(kind)}
	t.Cleanup(f.Close)
	return f
}

// hash is a commit's hash.
func hash(i int) string { return fmt.Sprintf("%012x%028x", 0xabc000+i, i) }

func (f fake) config() forge.Config {
	return forge.Config{
		URL: f.URL + "/acme/fleet.git", Kind: f.Kind, API: f.API(), Token: forgeserver.Token,
		Client: forge.Client{Wait: noWait, Patience: time.Minute},
	}
}

func (f fake) pull(n int) *forge.Pull {
	for _, p := range f.Pulls {
		if p.Number == n {
			return p
		}
	}
	return nil
}

func (f fake) add(n int, body string) {
	f.Comments[n] = append(f.Comments[n], forge.Comment{ID: int64(1000 + len(f.Comments[n])), Author: f.Me, Body: body})
}

func open(t *testing.T, f fake) forge.Forge {
	t.Helper()
	opened, err := forge.New(f.config())
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// line makes hashes of a branch: each the parent of the next.
func (f fake) line(from int, commits ...int) {
	for _, c := range commits {
		f.Parents[hash(c)] = ""
		if from >= 0 {
			f.Parents[hash(c)] = hash(from)
		}
		from = c
	}
}

// standard has main at 2 (0-1-2), a pull request from 1 with head 10, and a fork's.
func standard(t *testing.T, kind string) fake {
	f := newFake(t, kind)
	f.line(-1, 0, 1, 2)
	f.line(1, 10, 11)
	f.Branches["main"] = hash(2)
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	f.Pulls = []*forge.Pull{
		{Number: 7, Title: "spot `for` all", Author: "ada", URL: "https://forge/7", Head: hash(10), HeadRef: "spot", Base: hash(2), BaseRef: "main", Open: true, Updated: at},
		{Number: 8, Title: "mine", Author: "mallory", URL: "https://forge/8", Head: hash(11), HeadRef: "main", Base: hash(2), BaseRef: "main", Open: true, Fork: true, Updated: at},
		{Number: 9, Title: "other", Author: "ada", URL: "https://forge/9", Head: hash(11), HeadRef: "o", Base: hash(1), BaseRef: "release", Open: true, Updated: at},
		{Number: 3, Title: "was", Author: "ada", URL: "https://forge/3", Head: hash(1), HeadRef: "w", Base: hash(1), BaseRef: "main", Merged: true, MergeCommit: hash(2), Updated: at},
	}
	return f
}

func TestPulls(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			f := standard(t, kind)
			for i := range 120 {
				f.Pulls = append(f.Pulls, &forge.Pull{Number: 100 + i, Head: hash(10), HeadRef: "x", Base: hash(2), BaseRef: "main", Open: true})
			}
			api, ctx := open(t, f), t.Context()
			pulls, err := api.Pulls(ctx, forge.Query{Base: "main"})
			if err != nil {
				t.Fatal(err)
			}
			if len(f.Calls) > 3 {
				t.Errorf("three pages take %d requests", len(f.Calls))
			}
			if len(pulls) != 122 {
				t.Fatalf("%d open pull requests of main, want 122 of three pages", len(pulls))
			}
			if !pulls[0].Open || pulls[0].Fork || !pulls[1].Fork || !forge.SameCommit(pulls[0].Head, hash(10)) || pulls[0].MergeCommit != "" {
				t.Errorf("listed %+v and %+v", pulls[0], pulls[1])
			}
			one, err := api.Pull(ctx, 7)
			if err != nil {
				t.Fatal(err)
			}
			want := forge.Pull{Number: 7, Title: "spot `for` all", Author: "ada", URL: "https://forge/7", Head: hash(10), HeadRef: "spot", Base: hash(2), BaseRef: "main", MergeBase: hash(1), Open: true, Updated: one.Updated, Ref: one.Ref}
			if diff := cmp.Diff(want, one); diff != "" {
				t.Errorf("pull request 7 (-want +got):\n%s", diff)
			}
			merged, err := api.Pulls(ctx, forge.Query{Base: "main", Closed: true})
			if err != nil || len(merged) != 1 || !merged[0].Merged || merged[0].Open || !forge.SameCommit(merged[0].MergeCommit, hash(2)) {
				t.Errorf("merged: %+v, %v", merged, err)
			}
			for _, c := range []struct {
				a, b int
				want bool
			}{{1, 2, true}, {2, 2, true}, {2, 1, false}, {10, 2, false}, {0, 10, true}} {
				if got, err := api.Contains(ctx, hash(c.a), hash(c.b)); err != nil || got != c.want {
					t.Errorf("Contains(%d, %d) = %v, %v", c.a, c.b, got, err)
				}
			}
		})
	}
}

func TestStatus(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			f := standard(t, kind)
			api, ctx := open(t, f), t.Context()
			s := forge.Status{Context: "coppice/prod-eu/flux-system/fleet-of-the-whole-company", State: forge.Pending, Description: strings.Repeat("ä", 400), URL: "https://x.example"}
			for _, step := range []struct {
				state forge.State
				want  int
			}{{forge.Pending, 1}, {forge.Pending, 1}, {forge.Success, 2}, {forge.Success, 2}, {forge.Failure, 3}} {
				s.State = step.state
				if err := api.SetStatus(ctx, hash(10), s); err != nil {
					t.Fatal(err)
				}
				if got := len(f.Statuses[hash(10)]); got != step.want {
					t.Fatalf("after %s there are %d statuses, want %d", step.state, got, step.want)
				}
			}
			other := s
			other.Context = "coppice/prod-us/flux-system/fleet"
			if err := api.SetStatus(ctx, hash(10), other); err != nil {
				t.Fatal(err)
			}
			if got := len(f.Latest(hash(10))); got != 2 {
				t.Errorf("%d contexts, want one of each cluster", got)
			}
		})
	}
}

func post(head int, text string) forge.Post {
	return forge.Post{Marker: forge.Marker{Cluster: "prod", Source: "flux-system/fleet", Head: hash(head), Phase: forge.Planned}, Text: func(int) string { return text }}
}

func TestStick(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			f := standard(t, kind)
			api, ctx, mem := open(t, f), t.Context(), &forge.Memory{}
			for i := range 130 {
				f.add(7, fmt.Sprintf("chat %d", i))
			}
			stick := func(want forge.Action, p forge.Post) {
				t.Helper()
				got, err := forge.Stick(ctx, api, 7, p, mem)
				if err != nil || got != want {
					t.Fatalf("Stick did %q, %v; want %q", got, err, want)
				}
			}
			ours := func() (out []forge.Comment) {
				for _, c := range f.Comments[7] {
					if _, ok := forge.ReadMarker(c.Body); ok {
						out = append(out, c)
					}
				}
				return out
			}
			quiet := post(10, "a")
			quiet.Quiet = true
			stick(forge.Left, quiet)
			// Another's comment with our marker is not ours.
			forged := post(10, "forged").Marker
			f.Comments[7] = append(f.Comments[7], forge.Comment{ID: 5000, Author: "mallory", Body: forged.Line(api.Limits()) + "\nx"})
			stick(forge.Made, post(10, "a"))
			stick(forge.Same, post(10, "a"))
			stick(forge.Changed, post(10, "b"))
			stick(forge.Changed, quiet)
			if got := ours(); len(got) != 2 || !strings.HasSuffix(got[1].Body, "\na") {
				t.Fatalf("comments %+v", got)
			}
			// Prices move all the time: what is said stands until they have by a tenth, or
			// anything else changes.
			priced := func(text string, before, after int64) forge.Post {
				p := post(10, text)
				p.Before, p.After = before, after
				return p
			}
			stick(forge.Changed, priced("costs $1.00/h → $0.50/h (-$0.50/h, -50.0 %)", 1_000_000, 500_000))
			stick(forge.Same, priced("costs $1.05/h → $0.51/h (-$0.54/h, -51.4 %)", 1_050_000, 510_000))
			stick(forge.Changed, priced("costs $1.05/h → $0.51/h, of 3 nodes", 1_050_000, 510_000))
			stick(forge.Same, priced("costs $1.15/h → $0.51/h, of 3 nodes", 1_150_000, 510_000))
			stick(forge.Changed, priced("costs $1.20/h → $0.51/h, of 3 nodes", 1_200_000, 510_000))
			stick(forge.Changed, post(10, "a"))
			// Another cluster has its own.
			other := post(10, "other")
			other.Cluster = "prod-us"
			if got, err := forge.Stick(ctx, api, 7, other, &forge.Memory{}); err != nil || got != forge.Made {
				t.Fatalf("the other cluster: %q, %v", got, err)
			}
			// A newer head wins over who is late.
			f.pull(7).Head = hash(11)
			stick(forge.Changed, post(11, "c"))
			stick(forge.Outdated, post(10, "late"))
			if got := ours(); !strings.HasSuffix(got[1].Body, "\nc") {
				t.Fatalf("comments %+v", got)
			}
			// Deleted by hand: once it comes back.
			drop := func() {
				for i, c := range f.Comments[7] {
					if m, ok := forge.ReadMarker(c.Body); ok && m.Cluster == "prod" && c.Author == f.Me {
						f.Comments[7] = append(f.Comments[7][:i:i], f.Comments[7][i+1:]...)
						return
					}
				}
			}
			drop()
			stick(forge.Made, post(11, "c"))
			stick(forge.Same, post(11, "c"))
			drop()
			stick(forge.Left, post(11, "c"))
			f.pull(7).Head = hash(10)
			stick(forge.Made, post(10, "d"))
			// Two that were made at the same time become one.
			f.After = func() {
				f.After = nil
				twin := post(10, "twin").Marker
				twin.Hash = "x"
				f.Comments[7] = append([]forge.Comment{{ID: -1, Author: f.Me, Body: twin.Line(api.Limits()) + "\ntwin"}}, f.Comments[7]...)
			}
			drop()
			stick(forge.Made, post(10, "d"))
			stick(forge.Changed, post(10, "d"))
			if got := ours(); len(got) != 3 {
				t.Fatalf("%d comments with a marker, want the forged one, the other cluster's and ours: %+v", len(got), got)
			}
		})
	}
}

func TestSizes(t *testing.T) {
	for _, kind := range kinds {
		f := standard(t, kind)
		api := open(t, f)
		p := post(10, "")
		p.Text = func(n int) string { return strings.Repeat("x", n) }
		if _, err := forge.Stick(t.Context(), api, 7, p, &forge.Memory{}); err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if got := len(f.Comments[7][0].Body); got != api.Limits().Comment {
			t.Errorf("%s: a comment of %d bytes, want all %d", kind, got, api.Limits().Comment)
		}
	}
}

func TestFaults(t *testing.T) {
	times := func(n int, do func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			n--
			if n >= 0 {
				do(w, r)
			}
			return n >= 0
		}
	}
	status := func(code int, headers ...string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"message": "no: %s"}`, forgeserver.Token)
		}
	}
	drop := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	}
	reset := fmt.Sprint(time.Now().Add(30 * time.Second).Unix())
	for name, tt := range map[string]struct {
		why   string
		fault func(http.ResponseWriter, *http.Request) bool
		check func(err error) bool
	}{
		"5xx":           {"a forge that restarts is asked again", times(3, status(502)), func(err error) bool { return err == nil }},
		"dropped":       {"so is one that closes the connection", times(2, drop), func(err error) bool { return err == nil }},
		"5xx for long":  {"but not for ever", times(9, status(500)), func(err error) bool { var e *forge.Error; return errors.As(err, &e) && e.Status == 500 }},
		"429":           {"a short limit is waited for", times(1, status(429, "Retry-After", "2")), func(err error) bool { return err == nil }},
		"403 secondary": {"GitHub's secondary limit is a 403", times(1, status(403, "Retry-After", "60")), func(err error) bool { return err == nil }},
		"403 in words": {"without a time it is a minute", times(1, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(403)
			fmt.Fprint(w, `{"message": "You have exceeded a secondary rate limit."}`)
		}), func(err error) bool { return err == nil }},
		"403 spent": {"and its first one has a time", times(1, status(403, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", reset)), func(err error) bool { return err == nil }},
		"429 for long": {"a long one is told to who asks", times(9, status(429, "Retry-After", "3600")), func(err error) bool {
			var l *forge.LimitedError
			return errors.As(err, &l) && time.Until(l.Until) > 50*time.Minute
		}},
		"403": {"a refusal isn't asked again, and its text has no token", times(9, status(403)), func(err error) bool {
			return forge.Denied(err) && !strings.Contains(err.Error(), forgeserver.Token) && strings.Contains(err.Error(), "no: ***")
		}},
		"no JSON":   {"a proxy's page is no answer", times(9, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }), func(err error) bool { return err != nil }},
		"elsewhere": {"a token goes to no other host", times(9, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://localhost:1/", 301) }), func(err error) bool { return err != nil && strings.Contains(err.Error(), "redirects to another host") }},
	} {
		f := standard(t, "github")
		api := open(t, f)
		f.Fault = tt.fault
		if _, err := api.Pulls(t.Context(), forge.Query{}); !tt.check(err) {
			t.Errorf("%s (%s): %v", name, tt.why, err)
		}
	}
}

// TestUncertain loses the answer to a comment that was made: it isn't made twice.
func TestUncertain(t *testing.T) {
	for _, kind := range kinds {
		f := standard(t, kind)
		api := open(t, f)
		lost := false
		f.After = func() { lost = true; f.After = nil; panic(http.ErrAbortHandler) }
		got, err := forge.Stick(t.Context(), api, 7, post(10, "a"), &forge.Memory{})
		if err != nil || !lost || len(f.Comments[7]) != 1 {
			t.Errorf("%s: %q, %v, %d comments", kind, got, err, len(f.Comments[7]))
		}
	}
}

// TestMute speaks with a token that may not say whose it is.
func TestMute(t *testing.T) {
	for _, kind := range kinds {
		f := standard(t, kind)
		f.Mute = true
		api := open(t, f)
		// Somebody else has a marker without our signature, or with that of another pull
		// request.
		forged := post(10, "").Marker
		copied := forged
		if _, err := forge.Stick(t.Context(), api, 8, post(11, "x"), &forge.Memory{}); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if is, _ := forge.ReadMarker(f.Comments[8][0].Body); is.Sig == "" {
			t.Errorf("%s: the marker isn't signed", kind)
		} else {
			copied.Sig = is.Sig
		}
		for i, m := range []forge.Marker{forged, copied} {
			f.Comments[7] = append(f.Comments[7], forge.Comment{ID: int64(10 + i), Author: "mallory", Body: m.Line(api.Limits()) + "\nx"})
		}
		for i, want := range []forge.Action{forge.Made, forge.Same} {
			// Each is another job: nothing is remembered.
			if got, err := forge.Stick(t.Context(), open(t, f), 7, post(10, "a"), &forge.Memory{}); err != nil || got != want {
				t.Errorf("%s: %q, %v; want %q", kind, got, err, want)
			}
			if i == 0 { // a copy of ours is left alone
				f.Comments[7] = append(f.Comments[7], forge.Comment{ID: 9000, Author: "mallory", Body: f.Comments[7][2].Body})
			}
		}
		if len(f.Comments[7]) != 4 {
			t.Errorf("%s: %d comments, want mallory's three and ours", kind, len(f.Comments[7]))
		}
	}
	f := standard(t, "github")
	f.Mute = true
	api := open(t, f)
	if self, err := api.Self(t.Context()); err == nil || self != "" {
		t.Errorf("we are %q, %v", self, err)
	}
	c := f.config()
	c.Self = "coppice-bot"
	if named, err := forge.New(c); err != nil {
		t.Error(err)
	} else if self, err := named.Self(t.Context()); err != nil || self != "coppice-bot" {
		t.Errorf("we are %q, %v", self, err)
	}
	for _, want := range []forge.Action{forge.Made, forge.Same} {
		if got, err := forge.Stick(t.Context(), api, 7, post(10, "a"), &forge.Memory{}); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
}

func TestApp(t *testing.T) {
	f := standard(t, "github")
	f.Me = "coppice[bot]"
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	again, err := githubapp.ParseKey(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	if err != nil || !again.Equal(key) {
		t.Fatalf("read the key: %v", err)
	}
	c := f.config()
	c.Token, c.App = "", &forge.App{App: githubapp.App{ID: "12", Key: key}}
	api, err := forge.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if self, err := api.Self(t.Context()); err != nil || self != "coppice[bot]" {
		t.Fatalf("we are %q, %v", self, err)
	}
	s := forge.Status{Context: "coppice/prod/a/b", State: forge.Failure, Description: "120 errors", Summary: "long"}
	for i := range 120 {
		s.Annotations = append(s.Annotations, forge.Annotation{File: "clusters/prod/a.cue", Line: i + 1, Level: "failure", Message: "no"})
	}
	for range 2 {
		if err := api.SetStatus(t.Context(), hash(10), s); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.Checks) != 1 || len(f.Checks[0].Annotations) != 120 || f.Checks[0].Conclusion != "failure" {
		t.Fatalf("%d runs, %d annotations, %+v", len(f.Checks), len(f.Checks[0].Annotations), f.Checks[0])
	}
	s.Summary = "other figures"
	if err := api.SetStatus(t.Context(), hash(10), s); err != nil || len(f.Checks) != 1 {
		t.Fatalf("%d runs, %v: a summary alone makes no run", len(f.Checks), err)
	}
	if token, ok, err := forge.AppToken(t.Context(), api); err != nil || !ok || token == "" {
		t.Errorf("the app's token: %q, %v, %v", token, ok, err)
	}
	if token, ok, err := forge.AppToken(t.Context(), open(t, f)); err != nil || ok || token != "" {
		t.Errorf("a user's: %q, %v, %v", token, ok, err)
	}
	s.State, s.Annotations = forge.Success, nil
	if err := api.SetStatus(t.Context(), hash(10), s); err != nil {
		t.Fatal(err)
	}
	if len(f.Checks) != 2 || f.Checks[1].Conclusion != "success" {
		t.Fatalf("the verdict that changed isn't a run of its own: %d runs", len(f.Checks))
	}
}
