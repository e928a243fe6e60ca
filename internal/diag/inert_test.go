package diag

import "testing"

func TestInert(t *testing.T) {
	for in, want := range map[string]string{
		"It rests on this: prices, as of 12:00:05, of 3 pools.": "It rests on this: prices, as of 12:00:05, of 3 pools.",
		"asks @team, see #12 and org/x#3":                       "asks @\u2060team, see \\#\u206012 and org/x\\#\u20603",
		"https://x.example and mailto:a@b.example":              "https:\u2060//x.example and mailto:\u2060a@\u2060b.example",
		":tada: and 5:tada: and :100:":                          ":\u2060tada: and 5:\u2060tada: and :\u2060100:",
		"www.example.com <b>":                                   "www\u2060.example.com &lt;b\\>",
		"cut \xff@\xffb @":                                      "cut \ufffd@\u2060\ufffdb @",
	} {
		if got := Inert(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
