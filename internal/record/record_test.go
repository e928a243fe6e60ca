package record

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }

func TestBook(t *testing.T) {
	pod, node := Subject{"Pod", "web", "a"}, Subject{Kind: "Node", Name: "n"}
	noPlace := Decision{Topic: "Placement", Verdict: "NoPlace", Message: "too large", Reasons: []Reason{{Code: "TooLarge"}}}
	placed := Decision{Topic: "Placement", Verdict: "NewNode", Target: "general-x"}
	b := NewBook()
	b.Put(pod, at(0), noPlace)
	b.Put(pod, at(1), noPlace)
	b.Put(node, at(1), Decision{Topic: "Empty", Verdict: "Blocked"})
	b.Put(node, at(2), Decision{Topic: "Drifted", Verdict: "Blocked"})
	b.Put(node, at(3), Decision{Topic: "Empty", Verdict: "Blocked"})
	b.Put(pod, at(4), placed)
	b.Put(pod, at(5), noPlace)

	with := func(d Decision, since, last, times int) Decision {
		d.Since, d.Last, d.Times = at(since), at(last), times
		return d
	}
	want := []Entry{
		{node, []Decision{
			with(Decision{Topic: "Empty", Verdict: "Blocked"}, 1, 3, 2), // topics don't interrupt each other
			with(Decision{Topic: "Drifted", Verdict: "Blocked"}, 2, 2, 1),
		}},
		{pod, []Decision{with(noPlace, 0, 1, 2), with(placed, 4, 4, 1), with(noPlace, 5, 5, 1)}},
	}
	if diff := cmp.Diff(want, b.All()); diff != "" {
		t.Error(diff)
	}
}

func TestBookForgets(t *testing.T) {
	b := NewBook()
	b.limit = 3
	s := func(i int) Subject { return Subject{Kind: "Node", Name: fmt.Sprint(i)} }
	for i := range 3 {
		b.Put(s(i), at(i), Decision{Verdict: "Keep"})
	}
	b.Put(s(0), at(3), Decision{Verdict: "Keep"}) // 1 is the most silent now
	b.Put(s(3), at(4), Decision{Verdict: "Keep"})
	var kept []string
	for _, e := range b.All() {
		kept = append(kept, e.Subject.Name)
	}
	if diff := cmp.Diff([]string{"0", "2", "3"}, kept); diff != "" {
		t.Error(diff)
	}
	for i := range history + 5 {
		b.Put(s(0), at(5+i), Decision{Verdict: fmt.Sprint(i)})
	}
	got := b.All()[0].Decisions
	if len(got) != history || got[len(got)-1].Verdict != fmt.Sprint(history+4) {
		t.Errorf("%d decisions, the last %v", len(got), got[len(got)-1])
	}
}

func TestServeAndFetch(t *testing.T) {
	b := NewBook()
	pod := Subject{"Pod", "web", "a&b"}
	b.Put(pod, at(0), Decision{Topic: "Placement", Verdict: "NoPlace", Reasons: []Reason{{Scope: "NodePool x", Code: "TooLarge"}}})
	b.Put(Subject{Kind: "Node", Name: "n"}, at(0), Decision{Verdict: "Keep"})
	s := httptest.NewTLSServer(b)
	defer s.Close()
	if got, err := Fetch(s.Client(), s.URL); err != nil || cmp.Diff(b.All(), got) != "" {
		t.Errorf("all: %v %v", got, err)
	}
	for code, want := range map[int]string{401: "bearer token", 403: "ClusterRole", 500: "500"} {
		deny := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		if _, err := Fetch(deny.Client(), deny.URL); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", code, err)
		}
		deny.Close()
	}
	if _, err := Fetch(s.Client(), "localhost"); err == nil || !strings.Contains(err.Error(), "https://localhost:8443") {
		t.Errorf("no URL: %v", err)
	}
	if _, err := Fetch(s.Client(), "http"+strings.TrimPrefix(s.URL, "https")); err == nil || !strings.Contains(err.Error(), "https alone") {
		t.Errorf("over http: %v", err)
	}
	asked := false
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	redirect := httptest.NewTLSServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer redirect.Close()
	if _, err := Fetch(redirect.Client(), redirect.URL); err == nil || asked {
		t.Errorf("a redirect: %v, followed: %t", err, asked)
	}
	resp, err := s.Client().Post(s.URL+Path, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", resp.Status)
	}
}
