package diag

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name      string        `xml:"name,attr"`
		Classname string        `xml:"classname,attr"`
		File      string        `xml:"file,attr,omitempty"`
		Line      int           `xml:"line,attr,omitempty"`
		Failure   *junitFailure `xml:"failure"`
		Out       string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit prints findings in the JUnit XML form that CI systems show as test
// results: a suite for each file, a case for each finding, and a failure for
// each error. Without findings there is one case that passes, since many
// systems take an empty report for a broken one.
func WriteJUnit(w io.Writer, l List) error {
	out := junitSuites{}
	if len(l) == 0 {
		out.Tests = 1
		out.Suites = []junitSuite{{Name: "coppice vet", Tests: 1, Cases: []junitCase{{Name: "no findings", Classname: "coppice vet"}}}}
	}
	for _, f := range l {
		name := f.Pos.File
		if name == "" {
			name = "coppice vet"
		}
		// Findings are sorted by file, so a suite's cases are neighbours.
		if n := len(out.Suites); n == 0 || out.Suites[n-1].Name != name {
			out.Suites = append(out.Suites, junitSuite{Name: name})
		}
		suite := &out.Suites[len(out.Suites)-1]
		c := junitCase{
			Name:      strings.TrimSpace(fmt.Sprintf("%s %s", f.Code, clean(f.Message))),
			Classname: strings.ReplaceAll(name, "/", "."),
			File:      f.Pos.File, Line: f.Pos.Line,
		}
		detail := clean(f.Pos.String()) + ": " + clean(sentence(f))
		for _, r := range f.Related {
			detail += fmt.Sprintf("\n%s: %s", clean(r.Pos.String()), clean(r.Message))
		}
		if f.Severity == Error {
			c.Failure = &junitFailure{Message: clean(f.Message), Type: f.Code, Text: detail}
			suite.Failures++
			out.Failures++
		} else {
			c.Out = f.Severity.String() + ": " + detail
		}
		suite.Cases = append(suite.Cases, c)
		suite.Tests++
		out.Tests++
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
