package forge

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
)

// Marker is what a comment of ours says about itself, hidden from readers. Cluster and
// Source name whose it is: each has one comment in a pull request, and nobody touches
// another's.
type Marker struct {
	Cluster string `json:"cluster"`
	Source  string `json:"source"`
	// Head is the commit that it is about.
	Head string `json:"head"`
	// Phase is how far the change has come: planned, merged or done. What is done is
	// not followed any more.
	Phase Phase `json:"phase"`
	// Hash is that of the text; with Before and After of the text without its prices.
	Hash string `json:"hash"`
	// Before and After are what nodes cost an hour by what is said, in millionths of a
	// dollar. Prices of the spot market move all the time: as long as nothing else does, and
	// these stay within a tenth, what is said stands.
	Before int64 `json:"before,omitempty"`
	After  int64 `json:"after,omitempty"`
	// Sig is Forge.Sign of cluster, source and pull request: where the forge doesn't tell
	// who we are, that is how a comment is known for ours.
	Sig string `json:"sig,omitempty"`
}

// signature is what the marker's Sig has to be in a pull request.
func (m Marker) signature(f Forge, number int) string {
	return f.Sign(hashOf([]any{m.Cluster, m.Source, number}))
}

// says reports whether a comment with this marker says what one with another would.
func (m Marker) says(other Marker) bool {
	alike := near(m.Before, other.Before) && near(m.After, other.After)
	m.Before, m.After = other.Before, other.After
	return alike && m == other
}

func near(a, b int64) bool {
	d := max(a, b) - min(a, b)
	return d == 0 || d <= max(a, b)/10
}

// price matches what Markdown says of costs, and by how much they change.
var price = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[+-]?\$-?[0-9][0-9.,]*|[+-]?[0-9]+\.[0-9] %`) })

// Phase is how far a change has come.
type Phase string

// Phases.
const (
	Planned Phase = "planned"
	Merged  Phase = "merged"
	Done    Phase = "done"
)

const (
	markerStart, markerEnd           = "<!-- coppice: ", " -->"
	plainMarkerStart, plainMarkerEnd = `[coppice]: # "`, `"`
)

// Line is the marker as the first line of a comment. JSON escapes the angle that would
// end an HTML comment.
func (m Marker) Line(l Limits) string {
	return hiddenLine(l, m)
}

func hiddenLine(l Limits, v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("forge: %v", err)) // strings alone
	}
	if l.PlainText {
		return plainMarkerStart + url.QueryEscape(string(data)) + plainMarkerEnd
	}
	return markerStart + string(data) + markerEnd
}

// ReadMarker returns the marker of a comment that has one.
func ReadMarker(body string) (Marker, bool) {
	var m Marker
	return m, readHidden(body, &m) && m.Source != ""
}

// readHidden reads what hiddenLine wrote at the beginning of a text.
func readHidden(body string, v any) bool {
	first, _, _ := strings.Cut(strings.ReplaceAll(body, "\r\n", "\n"), "\n")
	first = strings.TrimSpace(first)
	text := ""
	if inner, ok := between(first, markerStart, markerEnd); ok {
		text = inner
	} else if inner, ok := between(first, plainMarkerStart, plainMarkerEnd); ok {
		text, _ = url.QueryUnescape(inner)
	}
	return text != "" && json.Unmarshal([]byte(text), v) == nil
}

func between(s, start, end string) (string, bool) {
	s, ok := strings.CutPrefix(s, start)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(s, end)
}

// hashOf is a hash of anything that JSON can say.
func hashOf(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("forge: %v", err)) // strings and numbers alone
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:12])
}

// Post is a comment to be.
type Post struct {
	// Marker says whose it is and about which head. Its Hash and Sig are set by Stick.
	Marker
	// Text makes the comment's text, of at most so many bytes.
	Text func(bytes int) string
	// Quiet changes a comment that is there but makes none.
	Quiet bool
}

// Memory is what a process remembers of the comment of one cluster and source in one
// pull request. Losing it costs a comment more at worst: one that somebody deleted
// twice.
type Memory struct {
	id     int64
	head   string
	remade bool
}

// Action is what Stick did.
type Action string

// Actions.
const (
	Made     Action = "made"
	Changed  Action = "changed"
	Same     Action = "same"     // it said so already
	Left     Action = "left"     // there is none, and none is to be made
	Outdated Action = "outdated" // the pull request has another head by now
)

// Stick makes the comment of one cluster and source say what is given, and nothing
// twice: it changes the comment that is there, if it says anything else, or makes one.
// A comment that somebody deleted is made again once for each head. What is about a
// head that isn't the pull request's any more is not said.
func Stick(ctx context.Context, f Forge, number int, p Post, m *Memory) (Action, error) {
	limits := f.Limits()
	p.Sig = p.signature(f, number)
	// The marker's size doesn't depend on the text.
	p.Hash = strings.Repeat("0", 24)
	text := p.Text(limits.Comment - len(p.Line(limits)) - 1)
	p.Hash = hashOf(text)
	if p.Before != 0 || p.After != 0 {
		p.Hash = hashOf(price().ReplaceAllString(text, "$$"))
	}
	body := p.Line(limits) + "\n" + text
	self, err := f.Self(ctx)
	if err != nil && !Denied(err) {
		return "", fmt.Errorf("ask the forge who we are: %w", err)
	}
	for try := 1; ; try++ {
		ours, err := find(ctx, f, number, self, p.Marker)
		if err != nil {
			return "", err
		}
		if len(ours) > 0 {
			is, _ := ReadMarker(ours[0].Body)
			if self != "" {
				is.Sig = p.Sig // a job's token is another each time
			}
			if is.says(p.Marker) {
				m.note(ours[0].ID, p.Head)
				return Same, tidy(ctx, f, number, ours[1:])
			}
		} else if p.Quiet || m.unwanted(p.Head) {
			return Left, nil
		}
		if now, err := f.Pull(ctx, number); err != nil {
			return "", fmt.Errorf("read pull request %d: %w", number, err)
		} else if now.Head != p.Head {
			return Outdated, nil
		}
		if len(ours) > 0 {
			err = f.EditComment(ctx, number, ours[0].ID, body)
			if err == nil {
				m.note(ours[0].ID, p.Head)
				return Changed, tidy(ctx, f, number, ours[1:])
			}
			if !notFound(err) || try == attempts {
				return "", fmt.Errorf("change the comment in pull request %d: %w", number, err)
			}
			continue // deleted since it was found
		}
		made, err := f.AddComment(ctx, number, body)
		if err != nil {
			// It may have been made all the same: look again before making another.
			if !uncertain(err) || try == attempts {
				return "", fmt.Errorf("comment in pull request %d: %w", number, err)
			}
			continue
		}
		m.note(made.ID, p.Head)
		// Somebody else of us may have been as quick.
		if ours, err = find(ctx, f, number, self, p.Marker); err != nil || len(ours) < 2 {
			return Made, nil
		}
		return Made, tidy(ctx, f, number, ours[1:])
	}
}

// find returns our comments, the oldest first. Whoever else writes a marker like ours
// is not us. If nobody tells who we are it is the oldest with our signature: others may
// have copied it.
func find(ctx context.Context, f Forge, number int, self string, m Marker) ([]Comment, error) {
	all, err := f.Comments(ctx, number)
	if err != nil {
		return nil, fmt.Errorf("read the comments of pull request %d: %w", number, err)
	}
	var ours []Comment
	for _, c := range all {
		is, ok := ReadMarker(c.Body)
		if !ok || is.Cluster != m.Cluster || is.Source != m.Source {
			continue
		}
		if self != "" && c.Author == self {
			ours = append(ours, c)
		} else if self == "" && hmac.Equal([]byte(is.Sig), []byte(m.signature(f, number))) {
			return []Comment{c}, nil
		}
	}
	return ours, nil
}

// Find returns what our comment in a pull request says about itself.
func Find(ctx context.Context, f Forge, number int, cluster, source string) (Marker, bool, error) {
	self, err := f.Self(ctx)
	if err != nil && !Denied(err) {
		return Marker{}, false, fmt.Errorf("ask the forge who we are: %w", err)
	}
	ours, err := find(ctx, f, number, self, Marker{Cluster: cluster, Source: source})
	if err != nil || len(ours) == 0 {
		return Marker{}, false, err
	}
	m, ok := ReadMarker(ours[0].Body)
	return m, ok, nil
}

// tidy deletes comments that we made twice.
func tidy(ctx context.Context, f Forge, number int, twice []Comment) error {
	for _, c := range twice {
		if err := f.DeleteComment(ctx, number, c.ID); err != nil {
			return fmt.Errorf("delete a second comment in pull request %d: %w", number, err)
		}
	}
	return nil
}

// uncertain reports whether a request may have been carried out in spite of an error.
func uncertain(err error) bool {
	var answer *Error
	var limited *LimitedError
	if errors.As(err, &limited) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return !errors.As(err, &answer) || answer.Status >= 500
}

func (m *Memory) note(id int64, head string) {
	if m.head != head {
		m.remade = false
	}
	m.id, m.head = id, head
}

// unwanted reports whether a comment is missing that was made again before.
func (m *Memory) unwanted(head string) bool {
	if m.id == 0 || m.head != head {
		return false
	}
	if m.remade {
		return true
	}
	m.remade = true
	return false
}
