package ec2sim

import (
	"net/url"
	"slices"
	"testing"
)

func TestParams(t *testing.T) {
	form, err := url.ParseQuery("Action=X&Filter.2.Name=b&Filter.1.Name=a&Filter.1.Value.10=z&Filter.1.Value.2=y&Tags.member.1.Key=k&Count=7&Bad=seven&DryRun=true&Empty=")
	if err != nil {
		t.Fatal(err)
	}
	p := parseParams(form)
	filters := parseFilters(p)
	if len(filters) != 2 || filters[0].name != "a" || !slices.Equal(filters[0].values, []string{"y", "z"}) || filters[1].name != "b" {
		t.Errorf("filters %+v: want them in order of their numbers", filters)
	}
	if tags := iamTags(p); tags["k"] != "" || len(tags) != 1 {
		t.Errorf("members %v", tags)
	}
	if n, err := p.int("Count", 1); n != 7 || err != nil {
		t.Errorf("Count = %d, %v", n, err)
	}
	if n, err := p.int("None", 3); n != 3 || err != nil {
		t.Errorf("None = %d, %v", n, err)
	}
	if _, err := p.int("Bad", 0); err == nil {
		t.Error("Bad is no number")
	}
	if !p.bool("DryRun") || !p.has("Empty") || p.has("Filter.3") || p.at("Filter.1.Name.Deeper") != nil || (*params)(nil).str("a.b") != "" {
		t.Error("look-ups")
	}
	other := parseParams(url.Values{"Count": {"7"}, "DryRun": {"true"}})
	same := parseParams(url.Values{"DryRun": {"true"}, "Count": {"7"}, "ClientToken": {"t"}})
	if other.canonical("ClientToken") != same.canonical("ClientToken") || other.canonical() == same.canonical() {
		t.Error("canonical forms")
	}
}

func TestWildcard(t *testing.T) {
	tests := map[string]struct {
		pattern, s string
		want       bool
	}{
		"equal":              {"m5.large", "m5.large", true},
		"star":               {"m5.*", "m5.large", true},
		"star for nothing":   {"m5*", "m5", true},
		"two stars":          {"*.large*", "m5.large", true},
		"star backs up":      {"*ab", "aab", true},
		"question mark":      {"m?.large", "m5.large", true},
		"too short for it":   {"m5.large?", "m5.large", false},
		"escaped star":       {`a\*`, "a*", true},
		"escaped star, else": {`a\*`, "ab", false},
		"a trailing escape":  {`a\`, `a\`, true},
		"not a prefix":       {"m5", "m5.large", false},
	}
	for name, test := range tests {
		if got := wildcard(test.pattern, test.s); got != test.want {
			t.Errorf("%s: wildcard(%q, %q) = %t", name, test.pattern, test.s, got)
		}
	}
}

func TestXMLEscapes(t *testing.T) {
	var x xmlWriter
	x.str("a", "<&>\"'é\x01")
	if got, want := x.b.String(), "<a>&lt;&amp;&gt;&#34;&#39;é\uFFFD</a>"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestCutVisitsEverything pages through a list that loses and gains members.
func TestCutVisitsEverything(t *testing.T) {
	list := []string{"b", "d", "f", "h", "j"}
	self := func(s string) string { return s }
	first, token, err := cut(list, self, "", 2)
	if err != nil || !slices.Equal(first, []string{"b", "d"}) {
		t.Fatalf("first page %q, %v", first, err)
	}
	list = []string{"a", "b", "e", "f", "h", "j"} // d is gone, a and e are new
	second, token, err := cut(list, self, token, 3)
	if err != nil || !slices.Equal(second, []string{"e", "f", "h"}) {
		t.Fatalf("second page %q, %v", second, err)
	}
	third, token, err := cut(list, self, token, 3)
	if err != nil || !slices.Equal(third, []string{"j"}) || token != "" {
		t.Fatalf("third page %q, token %q, %v", third, token, err)
	}
	for _, bad := range []string{"%", "bm9uc2Vuc2U"} {
		if _, _, err := cut(list, self, bad, 3); err == nil {
			t.Errorf("token %q was taken", bad)
		}
	}
}
