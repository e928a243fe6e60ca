package forge

import (
	"strings"
	"testing"
)

func TestNew(t *testing.T) {
	for name, tt := range map[string]struct {
		why   string
		c     Config
		wants string
	}{
		"GitHub":             {"", Config{URL: "https://github.com/acme/fleet.git"}, "https://api.github.com/repos/acme/fleet"},
		"Enterprise":         {"", Config{URL: "https://git.corp/acme/fleet", Kind: "github"}, "https://git.corp/api/v3/repos/acme/fleet"},
		"Gitea below a path": {"", Config{URL: "https://corp/git/acme/fleet", Kind: "gitea"}, "https://corp/git/api/v1/repos/acme/fleet"},
		"Codeberg":           {"", Config{URL: "https://codeberg.org/acme/fleet"}, "https://codeberg.org/api/v1/repos/acme/fleet"},
		"GitLab groups":      {"", Config{URL: "https://gitlab.com/a/b/fleet.git"}, "https://gitlab.com/api/v4/projects/a%2Fb%2Ffleet"},
		"GitLab below":       {"", Config{URL: "https://corp/git/a/fleet", Kind: "gitlab", API: "https://corp/git/api/v4"}, "https://corp/git/api/v4/projects/a%2Ffleet"},
		"Bitbucket":          {"", Config{URL: "https://bitbucket.org/a/b"}, "https://api.bitbucket.org/2.0/repositories/a/b"},
		"unknown host":       {"it says what to give", Config{URL: "https://git.corp/a/b"}, "which forge serves git.corp isn't known"},
		"no repository":      {"", Config{URL: "https://github.com/acme"}, "https://github.com/acme doesn't lead to a repository"},
		"plain HTTP":         {"a token would be read on the way", Config{URL: "http://u:pw@git.corp/a/b", Kind: "gitea"}, "http://***@git.corp/a/b would get a token"},
		"plain API":          {"", Config{URL: "https://git.corp/a/b", API: "http://git.corp/api/v1", Kind: "gitea"}, "http://git.corp/api/v1 would get a token"},
		"this machine":       {"", Config{URL: "http://127.0.0.1:3000/a/b", Kind: "gitea"}, "http://127.0.0.1:3000/api/v1/repos/a/b"},
		"credentials":        {"a password isn't repeated", Config{URL: "ssh://u:pw@github.com/a/b"}, `"ssh://***@github.com/a/b" is no URL`},
	} {
		got := ""
		f, err := New(tt.c)
		switch f := f.(type) {
		case *hub:
			got = f.api + f.repo
		case *gitlab:
			got = f.api + f.project
		case *bitbucket:
			got = f.api + f.repo
		default:
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.wants) {
			t.Errorf("%s: %s, want %s", name, got, tt.wants)
		}
	}
}

func TestMarker(t *testing.T) {
	m := Marker{Cluster: `a-->"b`, Source: "x/<y>", Head: "0123", Phase: Done, Hash: "h"}
	for _, l := range []Limits{{}, {PlainText: true}} {
		line := m.Line(l)
		if strings.Count(line, "-->") > 1 || strings.Contains(line, "\n") {
			t.Errorf("%s isn't one hidden line", line)
		}
		if got, ok := ReadMarker(line + "\r\ntext"); !ok || got != m {
			t.Errorf("%s reads as %+v", line, got)
		}
	}
	for _, s := range []string{"", "hello", "<!-- coppice: {} -->", "x\n" + m.Line(Limits{}), "<!-- coppice: {\"source\":1} -->"} {
		if got, ok := ReadMarker(s); ok {
			t.Errorf("%q reads as %+v", s, got)
		}
	}
}
