package render

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/diag"
)

// Encoder writes objects for another process of the same binary, with everything that
// findings about them need. The form isn't for storing.
//
// Numbers are varints. A string is a number: that of an earlier one, counted from 1, or
// 0 before the length and the text of a new one. A fleet says few different things, so
// that most of what is read is known already.
//
// The zero Encoder is ready for use.
type Encoder struct {
	strings map[string]uint64
	buf     []byte
	err     error
}

// The first byte of a value says what it is.
const (
	tagNull = iota
	tagFalse
	tagTrue
	tagInt
	tagFloat
	tagString
	tagList
	tagMap
)

// Encode returns the object's form, which holds until the next call. Forms have to be
// decoded in the order in which they were made.
func (e *Encoder) Encode(o Object) ([]byte, error) {
	e.buf, e.err = e.buf[:0], nil
	for _, s := range []string{o.GVK.Group, o.GVK.Version, o.GVK.Kind, o.Name} {
		e.string(s)
	}
	e.value(o.Value)
	e.number(len(o.places))
	for _, key := range sortedKeys(o.places) {
		e.string(key)
		for _, p := range []diag.Position{o.places[key].key, o.places[key].value} {
			e.string(p.File)
			e.number(p.Line)
			e.number(p.Col)
		}
	}
	e.flags(o.broken)
	e.flags(o.excused)
	if o.mended == nil {
		e.buf = append(e.buf, tagNull)
	} else {
		e.value(o.mended)
	}
	if e.err != nil {
		return nil, fmt.Errorf("encode %s: %w", o.ID(), e.err)
	}
	return e.buf, nil
}

func (e *Encoder) number(n int) { e.buf = binary.AppendUvarint(e.buf, uint64(n)) }

func (e *Encoder) string(s string) {
	if n, ok := e.strings[s]; ok {
		e.buf = binary.AppendUvarint(e.buf, n)
		return
	}
	if e.strings == nil {
		e.strings = map[string]uint64{}
	}
	e.strings[s] = uint64(len(e.strings) + 1)
	e.number(0)
	e.number(len(s))
	e.buf = append(e.buf, s...)
}

func (e *Encoder) flags(m map[string]bool) {
	e.number(len(m))
	for _, key := range sortedKeys(m) {
		e.string(key)
		e.value(m[key])
	}
}

func (e *Encoder) value(v any) {
	switch v := v.(type) {
	case nil:
		e.buf = append(e.buf, tagNull)
	case bool:
		tag := byte(tagFalse)
		if v {
			tag = tagTrue
		}
		e.buf = append(e.buf, tag)
	case int64:
		e.buf = binary.AppendVarint(append(e.buf, tagInt), v)
	case float64:
		e.buf = binary.BigEndian.AppendUint64(append(e.buf, tagFloat), math.Float64bits(v))
	case string:
		e.buf = append(e.buf, tagString)
		e.string(v)
	case []any:
		e.buf = append(e.buf, tagList)
		e.number(len(v))
		for _, x := range v {
			e.value(x)
		}
	case map[string]any:
		e.buf = append(e.buf, tagMap)
		e.number(len(v))
		for _, name := range sortedKeys(v) {
			e.string(name)
			e.value(v[name])
		}
	default:
		e.err = fmt.Errorf("%T is no part of JSON", v)
	}
}

// Decoder reads what an Encoder wrote. It trusts nothing of it. The zero Decoder is
// ready for use.
type Decoder struct {
	strings []string
	buf     []byte
	err     error
}

// likely is for how many things at most there is room made before they are read. A
// number alone isn't to cost memory.
const likely = 64

var errForm = errors.New("not the form of an object")

// Decode reads one object.
func (d *Decoder) Decode(form []byte) (Object, error) {
	d.buf, d.err = form, nil
	o := Object{GVK: schema.GroupVersionKind{Group: d.string(), Version: d.string(), Kind: d.string()}, Name: d.string()}
	var ok bool
	if o.Value, ok = d.value(0).(map[string]any); !ok {
		d.fail()
	}
	n := d.count()
	o.places = make(map[string]place, min(n, likely))
	for i := 0; i < n && d.err == nil; i++ {
		key := d.string()
		o.places[key] = place{key: d.position(), value: d.position()}
	}
	o.broken, o.excused = d.flags(), d.flags()
	switch mended := d.value(0).(type) {
	case nil:
	case map[string]any:
		o.mended = mended
		if o.excused == nil {
			o.excused = map[string]bool{}
		}
	default:
		d.fail()
	}
	if len(d.buf) > 0 {
		d.fail()
	}
	if d.err != nil {
		return Object{}, d.err
	}
	return o, nil
}

// fail ends the reading: what is left is as if it was empty.
func (d *Decoder) fail() { d.buf, d.err = nil, errForm }

func (d *Decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.buf)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.buf = d.buf[size:]
	return n
}

// count reads how many things follow, each of which takes a byte at least.
func (d *Decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.buf)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *Decoder) string() string {
	switch n := d.uvarint(); {
	case d.err != nil:
		return ""
	case n > uint64(len(d.strings)):
		d.fail()
		return ""
	case n > 0:
		return d.strings[n-1]
	}
	n := d.count()
	s := string(d.buf[:n])
	d.buf = d.buf[n:]
	d.strings = append(d.strings, s)
	return s
}

func (d *Decoder) position() diag.Position {
	file, line, col := d.string(), d.uvarint(), d.uvarint()
	if line > math.MaxInt32 || col > math.MaxInt32 {
		d.fail()
		return diag.Position{}
	}
	return diag.Position{File: file, Line: int(line), Col: int(col)}
}

func (d *Decoder) flags() map[string]bool {
	n := d.count()
	if n == 0 {
		return nil
	}
	out := map[string]bool{}
	for i := 0; i < n && d.err == nil; i++ {
		key := d.string()
		set, ok := d.value(maxDepth).(bool)
		if !ok {
			d.fail()
		}
		out[key] = set
	}
	return out
}

func (d *Decoder) value(depth int) any {
	// What is mended may nest a little deeper than what is written.
	if len(d.buf) == 0 || depth > 2*maxDepth {
		d.fail()
		return nil
	}
	tag := d.buf[0]
	d.buf = d.buf[1:]
	switch tag {
	case tagNull:
		return nil
	case tagFalse, tagTrue:
		return tag == tagTrue
	case tagInt:
		n, size := binary.Varint(d.buf)
		if size <= 0 {
			d.fail()
			return nil
		}
		d.buf = d.buf[size:]
		return n
	case tagFloat:
		if len(d.buf) < 8 {
			d.fail()
			return nil
		}
		f := math.Float64frombits(binary.BigEndian.Uint64(d.buf))
		d.buf = d.buf[8:]
		return f
	case tagString:
		return d.string()
	case tagList:
		n := d.count()
		out := make([]any, 0, min(n, likely))
		for i := 0; i < n && d.err == nil; i++ {
			out = append(out, d.value(depth+1))
		}
		return out
	case tagMap:
		n := d.count()
		out := make(map[string]any, min(n, likely))
		for i := 0; i < n && d.err == nil; i++ {
			name := d.string()
			out[name] = d.value(depth + 1)
		}
		return out
	}
	d.fail()
	return nil
}
