package ec2sim

import (
	"encoding/xml"
	"strconv"
	"strings"
	"time"
)

// xmlWriter builds an answer element by element, in the order of the calls.
type xmlWriter struct{ b strings.Builder }

// str writes <name>value</name>.
func (x *xmlWriter) str(name, value string) {
	x.b.WriteByte('<')
	x.b.WriteString(name)
	x.b.WriteByte('>')
	x.escape(value)
	x.b.WriteString("</")
	x.b.WriteString(name)
	x.b.WriteByte('>')
}

// opt writes the element unless the value is empty.
func (x *xmlWriter) opt(name, value string) {
	if value != "" {
		x.str(name, value)
	}
}

func (x *xmlWriter) int(name string, n int64) { x.str(name, strconv.FormatInt(n, 10)) }

func (x *xmlWriter) bool(name string, v bool) { x.str(name, strconv.FormatBool(v)) }

func (x *xmlWriter) float(name string, f float64) {
	x.str(name, strconv.FormatFloat(f, 'f', -1, 64))
}

// time writes the form that EC2 uses: UTC with milliseconds. A zero time is left out.
func (x *xmlWriter) time(name string, t time.Time) {
	if !t.IsZero() {
		x.str(name, t.UTC().Format(timeLayout))
	}
}

const timeLayout = "2006-01-02T15:04:05.000Z"

// in wraps what body writes.
func (x *xmlWriter) in(name string, body func()) {
	x.b.WriteByte('<')
	x.b.WriteString(name)
	x.b.WriteByte('>')
	body()
	x.b.WriteString("</")
	x.b.WriteString(name)
	x.b.WriteByte('>')
}

// items writes <name><item>v</item>…</name>.
func (x *xmlWriter) items(name string, values ...string) {
	x.in(name, func() {
		for _, v := range values {
			x.str("item", v)
		}
	})
}

func (x *xmlWriter) escape(s string) {
	if !strings.ContainsAny(s, "&<>\"'\t\n\r") && isPlain(s) {
		x.b.WriteString(s)
		return
	}
	// A strings.Builder never fails to write.
	_ = xml.EscapeText(&x.b, []byte(s))
}

func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// each writes one element called name around every member of a list.
func each[T any](x *xmlWriter, name string, list []T, body func(T)) {
	for _, v := range list {
		x.in(name, func() { body(v) })
	}
}
