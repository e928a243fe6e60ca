package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Report is the config drift of one cluster and source, as it is committed.
type Report struct {
	// Cluster is the cluster's name, Source the source's namespace/name.
	Cluster string
	Source  string
	// Repository and Path are where the source reads, without credentials.
	Repository string
	Path       string
	// Differences are sorted, as Drift returns them.
	Differences []Difference
}

// Encode returns the report as YAML that opens with what a person needs to
// know. It is a function of the differences and names alone: neither the time
// nor the revision is in it, so that the same drift is the same file.
func (r Report) Encode() []byte {
	var b bytes.Buffer
	objects, _ := Count(r.Differences)
	fmt.Fprintf(&b, "# Config drift of cluster %s: %s.\n", quote(r.Cluster), Summary(r.Differences))
	b.WriteString("# To settle it, undo the change in the cluster or make it in Git. Either way this\n")
	b.WriteString("# file goes by itself.\n")
	fmt.Fprintf(&b, "cluster: %s\n", quote(r.Cluster))
	fmt.Fprintf(&b, "source: %s\n", quote(r.Source))
	fmt.Fprintf(&b, "repository: %s\n", quote(r.Repository))
	if r.Path != "" {
		fmt.Fprintf(&b, "path: %s\n", quote(r.Path))
	}
	fmt.Fprintf(&b, "objects: %d\n", objects)
	b.WriteString("drift:\n")
	for _, d := range r.Differences {
		fmt.Fprintf(&b, "- object: %s\n", quote(d.Object.String()))
		line := func(key, value string) {
			if value != "" {
				fmt.Fprintf(&b, "  %s: %s\n", key, value)
			}
		}
		if d.File != "" {
			line("declaredIn", quote(d.File))
		}
		if d.Field == "" {
			line("missing", "true")
			continue
		}
		line("field", quote(d.Field))
		line("git", d.Git.String())
		line("live", d.Live.String())
		if d.Live.IsAbsent() {
			line("removed", "true")
		}
		if d.Manager != "" {
			line("manager", quote(d.Manager))
			line("operation", quote(d.Operation))
		}
		if !d.When.IsZero() {
			line("when", quote(d.When.Format(time.RFC3339)))
		}
	}
	return b.Bytes()
}

// quote writes a string as JSON, which is YAML too, whatever is in it. Strings
// that YAML reads as they are stay bare.
func quote(s string) string {
	bare := s != ""
	for _, c := range s {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '/', c == '.', c == '-', c == '_':
		case c >= '0' && c <= '9', c == '[', c == ']':
		default:
			bare = false
		}
	}
	if bare && letter(s[0]) && !word(s) {
		return s
	}
	data, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("plan: a string is no JSON value: %v", err))
	}
	return string(data)
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// word reports whether YAML 1.1 readers take s for something else than a string.
func word(s string) bool {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return true
	}
	return false
}

// Count returns how many objects and fields differ. A missing object counts as
// one field.
func Count(diffs []Difference) (objects, fields int) {
	for i, d := range diffs {
		if i == 0 || d.Object != diffs[i-1].Object {
			objects++
		}
	}
	return objects, len(diffs)
}

// Summary says in one line of at most 200 bytes or so what differs, without
// times: "2 fields of 1 object differ from Git: NodePool/general spec.limits.cpu
// (by kubectl-edit) and 1 more".
func Summary(diffs []Difference) string {
	if len(diffs) == 0 {
		return "nothing differs from Git"
	}
	objects, fields := Count(diffs)
	verb := "differ"
	if fields == 1 {
		verb = "differs"
	}
	head := fmt.Sprintf("%s of %s %s from Git: ", plural(fields, "field"), plural(objects, "object"), verb)
	const room = 200
	text := head
	for i, d := range diffs {
		item := d.phrase()
		rest := fmt.Sprintf(" and %d more", fields-i)
		if i > 0 {
			item = ", " + item
			if len(text)+len(item)+len(rest) > room {
				return text + rest
			}
		}
		text += item
	}
	return text
}

func (d Difference) phrase() string {
	if d.Field == "" {
		return d.Object.String() + " is missing"
	}
	text := d.Object.String() + " " + d.Field
	if d.Live.IsAbsent() {
		return text + " (removed)"
	}
	if d.Manager != "" {
		text += " (by " + d.Manager + ")"
	}
	return text
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (r Report) body() string {
	name := r.Cluster
	if name == "" {
		name = r.Source
	}
	if len(r.Differences) == 0 {
		return fmt.Sprintf("drift: %s is settled\n\nThe cluster matches Git again.\n", name)
	}
	objects, fields := Count(r.Differences)
	return fmt.Sprintf("drift: %s differs in %s of %s\n\n%s", name, plural(fields, "field"), plural(objects, "object"), r.details())
}

// details lists the first of the differences, one a line.
func (r Report) details() string {
	var b strings.Builder
	const shown = 10
	for i, d := range r.Differences {
		if i == shown {
			fmt.Fprintf(&b, "and %d more\n", len(r.Differences)-shown)
			break
		}
		b.WriteString(d.phrase() + "\n")
	}
	return b.String()
}

// Trailers are the lines at the end of a commit message that name cluster, source and
// revision.
func (r Report) Trailers(revision string) string {
	var b strings.Builder
	trailer := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "Coppice-%s: %s\n", key, value)
		}
	}
	trailer("Cluster", r.Cluster)
	trailer("Source", r.Source)
	trailer("Revision", revision)
	return b.String()
}
