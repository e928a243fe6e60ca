package plan

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for name, tc := range map[string]struct{ why, in, want string }{
		"URL":       {"the user part of a URL is a credential", "clone https://ci:s3cret@git.example.com/x.git failed", "clone https://***@git.example.com/x.git failed"},
		"token URL": {"a token alone is one too", `"https://ghs_x@github.com"`, `"https://***@github.com"`},
		"plain URL": {"a URL without one stays", "https://git.example.com/a@b", "https://git.example.com/a@b"},
		"GitHub":    {"tokens have their maker's mark", "token=ghp_0123456789abcdef0123456789abcdef0123.", "token=***."},
		"GitLab":    {"whichever maker", "glpat-abcdefghij0123456789", "***"},
		"AWS":       {"an access key's id", "AKIAIOSFODNN7EXAMPLE is used", "*** is used"},
		"PEM":       {"a key goes as a whole", "a\n-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\nb", "a\n***\nb"},
		"cut PEM":   {"also when its end is cut off", "-----BEGIN RSA PRIVATE KEY-----\nabc", "***"},
		"header":    {"a header keeps its name", "Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer ***"},
		"JWT":       {"a signed token", "t eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "t ***"},
		"image":     {"a digest is none", "sha256:0123456789abcdef@x ami-0123456789abcdef0", "sha256:0123456789abcdef@x ami-0123456789abcdef0"},
		"words":     {"a word after basic is none", "basic authentication for bearer authentication", "basic authentication for bearer authentication"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Redact(tc.in); got != tc.want {
				t.Errorf("%q became %q, want %q", tc.in, got, tc.want)
			}
			if got := Redact(Redact(tc.in)); got != tc.want {
				t.Errorf("twice it is %q", got)
			}
		})
	}
	if got := shown([]any{"metadata", "annotations", lastApplied}, `{"spec":{"userData":"hunter2"}}`).String(); strings.Contains(got, "hunter2") {
		t.Error(got)
	}
}
