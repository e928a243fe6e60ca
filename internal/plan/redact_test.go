package plan

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for name, tc := range map[string]struct{ why, in, want string }{
		"URL":                 {"the user part of a URL is a credential", "clone https://ci:s3cret@git.example.com/x.git failed", "clone https://***@git.example.com/x.git failed"},
		"token URL":           {"a token alone is one too", `"https://ghs_x@github.com"`, `"https://***@github.com"`},
		"plain URL":           {"a URL without one stays", "https://git.example.com/a@b", "https://git.example.com/a@b"},
		"GitHub":              {"tokens have their maker's mark", "token=ghp_0123456789abcdef0123456789abcdef0123.", "token=***."},
		"GitLab":              {"whichever maker", "glpat-abcdefghij0123456789", "***"},
		"AWS":                 {"an access key's id", "AKIAIOSFODNN7EXAMPLE is used", "*** is used"},
		"PEM":                 {"a key goes as a whole", "a\n-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\nb", "a\n***\nb"},
		"cut PEM":             {"also when its end is cut off", "-----BEGIN RSA PRIVATE KEY-----\nabc", "***"},
		"header":              {"a header keeps its name", "Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer ***"},
		"JWT":                 {"a signed token", "t eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "t ***"},
		"image":               {"a digest is none", "sha256:0123456789abcdef@x ami-0123456789abcdef0", "sha256:0123456789abcdef@x ami-0123456789abcdef0"},
		"variable":            {"an assignment says itself what it is of", "run with dbPassword=hunter2 and API_KEY='x y', --token=abcd", "run with dbPassword=*** and API_KEY='***', --token=***"},
		"query":               {"in a URL too", "https://x/y?access_token=abcdef&page=2", "https://x/y?access_token=***&page=2"},
		"JSON":                {"and in what is quoted", `{"client_secret": "s3cr3t", "page": "2"}`, `{"client_secret": "***", "page": "2"}`},
		"cut JSON":            {"also if its end is cut off", `"password": "s3cr`, `"password": "***"`},
		"YAML":                {"what is all of a line is a value", "a: b\npassword: hunter2\nc: d", "a: b\npassword: ***\nc: d"},
		"sentence":            {"what goes on is a sentence", "spec.token: Invalid value: must be set; the password: it is long", "spec.token: Invalid value: must be set; the password: it is long"},
		"switch":              {"a field of EC2NodeClass", `httpTokens: "required" httpTokens: "requird" httpTokens=optional`, `httpTokens: "required" httpTokens: "requird" httpTokens=optional`},
		"about":               {"what is about a secret isn't one", `secretName: "git" passwordPolicy=strict secretRef: {name: "x"} tokens: true key=abcdefgh bypass=lane1`, `secretName: "git" passwordPolicy=strict secretRef: {name: "x"} tokens: true key=abcdefgh bypass=lane1`},
		"compared":            {"a comparison isn't an assignment", `self.token == other && token != ""`, `self.token == other && token != ""`},
		"taint":               {"a switch with an effect", "example.com/secret=true:NoSchedule", "example.com/secret=true:NoSchedule"},
		"variable of a shell": {"it names the value only", `--token="$TOKEN" --token=$TOKEN token=<yours>`, `--token="$TOKEN" --token=$TOKEN token=<yours>`},
		"words":               {"a word after basic is none", "basic authentication for bearer authentication", "basic authentication for bearer authentication"},
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
	for name, want := range map[string]bool{
		"dbpass": true, "db-pass": true, "DB_PASSWORD": true, "example.com/token": true, "apiKey": true, "API_KEY_2": true, "password1": true, "awsSecretAccessKey": true, "secrets": true,
		"compass": false, "bypass": false, "key": false, "kmsKeyID": false, "httpTokens": false, "secretRef": false, "tokenAudience": false, "kubernetes.io/arch": false, "team": false, "": false, "2": false,
	} {
		if got := Confidential(name); got != want {
			t.Errorf("Confidential(%q) = %t", name, got)
		}
	}
	tags := map[string]any{"dbpass": "hunter2hunter2", "team": "hunter", "secret": "true"}
	if got := shown([]any{"spec", "tags"}, tags).String(); got != `{"dbpass":"***","secret":"true","team":"hunter"}` {
		t.Error(got)
	}
	if got := shown([]any{"metadata", "annotations", lastApplied}, `{"spec":{"userData":"hunter2"}}`).String(); strings.Contains(got, "hunter2") {
		t.Error(got)
	}
}

// TestHiddenChange has a secret change that is shown as it was.
func TestHiddenChange(t *testing.T) {
	object := func(secret string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": "x", "annotations": map[string]any{"example.com/token": secret}},
			"spec":     map[string]any{"tags": map[string]any{"dbpass": secret}, "userData": secret},
		}
	}
	for _, secret := range []string{"hunter3", "longerone"} {
		diff := unified(object("hunter2"), object(secret))
		for _, want := range []string{"+    dbpass: '*** (changed)'", "+    example.com/token: '*** (changed)'", "+  userData: '*** ("} {
			if !strings.Contains(diff, want) || strings.Contains(diff, secret) {
				t.Errorf("no %q in\n%s", want, diff)
			}
		}
	}
}
