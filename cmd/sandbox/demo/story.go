package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// story prints what happens, with the seconds since the start.
type story struct {
	out   io.Writer
	now   func() time.Time
	began time.Time

	step  time.Time
	rows  []row
	facts []string
}

// row is a line of the summary.
type row struct {
	number      int
	title       string
	took, limit time.Duration
	err         error
	facts       []string
}

func newStory(out io.Writer, now func() time.Time) *story {
	return &story{out: out, now: now, began: now()}
}

func (s *story) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

func (s *story) title(text string) { s.printf("%s\n%s\n", text, strings.Repeat("=", len(text))) }

func (s *story) begin(number int, title string, limit time.Duration) {
	s.step, s.facts = s.now(), nil
	s.rows = append(s.rows, row{number: number, title: title, limit: limit})
	s.printf("\n%d. %s\n", number, title)
}

// say prints a line with the time.
func (s *story) say(format string, args ...any) {
	lines := strings.Split(strings.TrimRight(fmt.Sprintf(format, args...), "\n"), "\n")
	s.printf("%7.1f s  %s\n", s.now().Sub(s.began).Seconds(), lines[0])
	for _, line := range lines[1:] {
		s.detail("%s", line)
	}
}

// detail prints lines that belong to the one before.
func (s *story) detail(format string, args ...any) {
	for _, line := range strings.Split(strings.TrimRight(fmt.Sprintf(format, args...), "\n"), "\n") {
		s.printf("           %s\n", line)
	}
}

// fact adds a measured result to the summary.
func (s *story) fact(format string, args ...any) {
	s.facts = append(s.facts, fmt.Sprintf(format, args...))
}

func (s *story) end(err error) {
	r := &s.rows[len(s.rows)-1]
	r.took, r.err, r.facts = s.now().Sub(s.step), err, s.facts
	if err != nil {
		s.say("FAILED: %v", err)
	}
}

// quote prints text that came from elsewhere.
func (s *story) quote(title, text string) {
	s.printf("\n--- %s ---\n%s\n---\n", title, strings.TrimRight(text, "\n"))
}

// total is the title of the table's last line.
const total = "in all"

// summary prints the table of all steps.
func (s *story) summary() {
	width := len(total)
	for _, r := range s.rows {
		width = max(width, len(r.title))
	}
	s.printf("\nSummary\n\n")
	s.printf("      %-*s   took   limit  what was seen\n", width, "step")
	for _, r := range s.rows {
		result := strings.Join(r.facts, "; ")
		if r.err != nil {
			result = "FAILED"
		}
		s.printf("  %2d  %-*s %5.1f s  %4.0f s  %s\n", r.number, width, r.title, r.took.Seconds(), r.limit.Seconds(), result)
	}
	s.printf("      %-*s %5.1f s\n", width, total, s.now().Sub(s.began).Seconds())
}
