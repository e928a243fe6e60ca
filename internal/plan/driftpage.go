package plan

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Markdown returns the report for people who look at the branch in a browser. Like
// Encode it is a function of the differences and names alone.
func (r Report) Markdown() []byte {
	var b bytes.Buffer
	objects, fields := Count(r.Differences)
	fmt.Fprintf(&b, "# Config drift of %s\n\n", pageCell(r.heading()))
	fmt.Fprintf(&b, "%s of %s not as in Git. To settle it, undo the change in the\ncluster or make it in Git; either way this file goes by itself.\n", plural(fields, "field"), plural(objects, "object"))
	var last ID
	for i, d := range r.Differences {
		if i == 0 || d.Object != last {
			fmt.Fprintf(&b, "\n## %s\n\n", pageCell(d.Object.String()))
			if d.File != "" {
				fmt.Fprintf(&b, "Declared in %s.\n\n", pageCode(d.File))
			}
			last = d.Object
			if d.Field == "" {
				b.WriteString("The object is missing.\n")
				continue
			}
			b.WriteString("| field | Git | live | changed by | when |\n|---|---|---|---|---|\n")
		}
		live, when := pageCode(d.Live.String()), ""
		if d.Live.IsAbsent() {
			live = "removed"
		}
		if !d.When.IsZero() {
			when = d.When.Format(time.RFC3339)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", pageCode(d.Field), pageCode(d.Git.String()), live, pageCell(d.Manager), when)
	}
	fmt.Fprintf(&b, "\nCompared by NodeSource %s with %s", pageCode(r.Source), pageCode(r.Repository))
	if r.Path != "" {
		fmt.Fprintf(&b, ", folder %s", pageCode(r.Path))
	}
	b.WriteString(".\n")
	return b.Bytes()
}

// Proposal is the title and the text of a pull request that makes Git hold the live
// values, and the commit message without its trailers. left says line by line what isn't
// in it and why; room is about how many bytes the text may have.
func (r Report) Proposal(left []string, room int) (title, text, message string) {
	objects, fields := Count(r.Differences)
	title = fmt.Sprintf("Adopt %s of %s from %s", plural(fields, "field"), plural(objects, "object"), clean(r.heading()))
	if fields == 1 {
		title = fmt.Sprintf("Adopt %s %s from %s", r.Differences[0].Object, clean(clip(r.Differences[0].Field, 100)), clean(r.heading()))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Somebody changed %s in %s, and Git says otherwise. This makes Git say what is live; to merge it changes nothing in the cluster.\n\n", plural(fields, "field"), pageCell(r.heading()))
	b.WriteString("| object | field | Git | live | changed by |\n|---|---|---|---|---|\n")
	for i, d := range r.Differences {
		live := pageCode(d.Live.String())
		if d.Live.IsAbsent() {
			live = "removed"
		}
		row := fmt.Sprintf("| %s | %s | %s | %s | %s |\n", pageCell(d.Object.String()), pageCode(d.Field), pageCode(d.Git.String()), live, pageCell(d.Manager))
		if b.Len()+len(row) > room*2/3 {
			fmt.Fprintf(&b, "\nand %d more.\n", len(r.Differences)-i)
			break
		}
		b.WriteString(row)
	}
	b.WriteString("\nTo have Git's values instead, close this pull request and set them in the cluster. What is closed here, or reverted after the merge, isn't proposed again. A commit of somebody else on this branch is left alone.\n")
	for i, line := range left {
		if i == 0 {
			b.WriteString("\nNot in here:\n\n")
		}
		if b.Len()+len(line) > room*9/10 {
			fmt.Fprintf(&b, "- and %d more\n", len(left)-i)
			break
		}
		b.WriteString("- " + pageCell(line) + "\n")
	}
	fmt.Fprintf(&b, "\nCompared by NodeSource %s.\n", pageCode(r.Source))
	return title, b.String(), title + "\n\n" + r.details()
}

func (r Report) heading() string {
	if r.Cluster != "" {
		return "cluster " + r.Cluster
	}
	return r.Source
}

// pageBytes is where a value ends in a table; the file beside holds all of it.
const pageBytes = 300

// pageCell makes a text safe in Markdown: what the cluster holds shall not become
// links, mentions or HTML.
func pageCell(s string) string {
	if s == "" {
		return ""
	}
	s = strings.NewReplacer("\n", " ", "\r", " ", "\\", "\\\\", "|", "\\|", "<", "&lt;", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[", "@", "@\u200b", "#", "\\#").Replace(s)
	return s
}

// pageCode shows a text as it is, in a table too.
func pageCode(s string) string {
	if s == "" {
		return ""
	}
	if len(s) > pageBytes {
		s = strings.ToValidUTF8(s[:pageBytes], "") + "…"
	}
	s = strings.NewReplacer("\n", " ", "\r", " ", "|", "\\|").Replace(s)
	// As many backticks as the text doesn't hold in a row.
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		return fence + " " + s + " " + fence
	}
	return fence + s + fence
}

// placeholder is a field in a message's template.
var placeholder = regexp.MustCompile(`\{\{-?\s*\.([A-Za-z]+)\s*-?\}\}`)

// Message is the message of the commit that brings the report to a branch, or takes it
// away if nothing differs. revision is what the cluster was compared with. In a template
// {{.Cluster}}, {{.Source}}, {{.Revision}}, {{.Summary}}, {{.Objects}}, {{.Fields}} and
// {{.Details}} are replaced; an empty one means a text of our own. skipCI adds [skip ci] to the first
// line. The trailers follow in any case. Its error says what the template may hold.
func (r Report) Message(revision, template string, skipCI bool) (string, error) {
	body := r.body()
	if template != "" {
		objects, fields := Count(r.Differences)
		values := map[string]string{
			"Cluster": r.Cluster, "Source": r.Source, "Revision": revision, "Summary": Summary(r.Differences),
			"Objects": fmt.Sprint(objects), "Fields": fmt.Sprint(fields), "Details": r.details(),
		}
		var unknown string
		rest := placeholder.ReplaceAllString(template, "")
		body = placeholder.ReplaceAllStringFunc(template, func(m string) string {
			name := placeholder.FindStringSubmatch(m)[1]
			value, ok := values[name]
			if !ok {
				unknown = m
			}
			return value
		})
		if i := strings.Index(rest, "{{"); unknown == "" && i >= 0 {
			unknown = rest[i:min(i+20, len(rest))]
		}
		if unknown != "" {
			return "", fmt.Errorf("the message's template can't use %q; it may use {{.Cluster}}, {{.Source}}, {{.Revision}}, {{.Summary}}, {{.Objects}}, {{.Fields}} and {{.Details}}", unknown)
		}
	}
	body = strings.TrimSpace(body)
	if skipCI {
		first, rest, _ := strings.Cut(body, "\n")
		body = first + " [skip ci]"
		if rest != "" {
			body += "\n" + rest
		}
	}
	return body + "\n\n" + r.Trailers(revision), nil
}
