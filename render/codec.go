package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/diag"
)

// A bundle crosses from one process to another as JSON, with everything that
// findings about it need. The form isn't for storing: both sides are the same binary.
type (
	bundleJSON struct {
		Cluster string       `json:"cluster"`
		Files   []string     `json:"files"`
		Objects []objectJSON `json:"objects"`
	}
	objectJSON struct {
		Group   string          `json:"group"`
		Version string          `json:"version"`
		Kind    string          `json:"kind"`
		Name    string          `json:"name"`
		Value   json.RawMessage `json:"value"`
		// Places maps a pathKey to the file, line and column of the field's name,
		// then of its value. Files count from 1 in Files; 0 is no place.
		Places map[string][6]int `json:"places"`
		Broken []string          `json:"broken,omitempty"`
		// Mended is left out for objects without faults.
		Mended  json.RawMessage `json:"mended,omitempty"`
		Excused map[string]bool `json:"excused,omitempty"`
	}
)

// MarshalJSON encodes the bundle with its positions.
func (b Bundle) MarshalJSON() ([]byte, error) {
	out := bundleJSON{Cluster: b.Cluster, Files: []string{}, Objects: []objectJSON{}}
	numbers := map[string]int{"": 0}
	number := func(file string) int {
		n, ok := numbers[file]
		if !ok {
			out.Files = append(out.Files, file)
			n = len(out.Files)
			numbers[file] = n
		}
		return n
	}
	for _, o := range b.Objects {
		value, err := json.Marshal(exact(o.Value))
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", o.ID(), err)
		}
		e := objectJSON{
			Group: o.GVK.Group, Version: o.GVK.Version, Kind: o.GVK.Kind, Name: o.Name,
			Value: value, Places: map[string][6]int{}, Broken: sortedKeys(o.broken),
			Excused: o.excused,
		}
		if o.mended != nil {
			if e.Mended, err = json.Marshal(exact(o.mended)); err != nil {
				return nil, fmt.Errorf("encode %s: %w", o.ID(), err)
			}
		}
		for _, key := range sortedKeys(o.places) {
			p := o.places[key]
			e.Places[key] = [6]int{
				number(p.key.File), p.key.Line, p.key.Col,
				number(p.value.File), p.value.Line, p.value.Col,
			}
		}
		out.Objects = append(out.Objects, e)
	}
	return json.Marshal(out)
}

// UnmarshalJSON decodes what MarshalJSON encoded.
func (b *Bundle) UnmarshalJSON(text []byte) error {
	var in bundleJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	position := func(file, line, col int) (diag.Position, error) {
		switch {
		case file == 0:
			return diag.Position{}, nil
		case file < 0 || file > len(in.Files):
			return diag.Position{}, fmt.Errorf("position in file %d of %d", file, len(in.Files))
		}
		return diag.Position{File: in.Files[file-1], Line: line, Col: col}, nil
	}
	*b = Bundle{Cluster: in.Cluster}
	for _, e := range in.Objects {
		value, err := decodeTree(e.Value)
		if err != nil {
			return fmt.Errorf("decode %s %s: %w", e.Kind, e.Name, err)
		}
		o := Object{
			GVK:  schema.GroupVersionKind{Group: e.Group, Version: e.Version, Kind: e.Kind},
			Name: e.Name, Value: value, places: make(map[string]place, len(e.Places)),
		}
		if e.Mended != nil {
			if o.mended, err = decodeTree(e.Mended); err != nil {
				return fmt.Errorf("decode %s %s: %w", e.Kind, e.Name, err)
			}
		}
		for key, n := range e.Places {
			var p place
			if p.key, err = position(n[0], n[1], n[2]); err != nil {
				return err
			}
			if p.value, err = position(n[3], n[4], n[5]); err != nil {
				return err
			}
			o.places[key] = p
		}
		o.excused = e.Excused
		for _, key := range e.Broken {
			if o.broken == nil {
				o.broken = map[string]bool{}
			}
			o.broken[key] = true
		}
		b.Objects = append(b.Objects, o)
	}
	return nil
}

func decodeTree(text []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value map[string]any
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	return value, numbersIn(value)
}

// exact copies a JSON tree so that a float stays one: encoding/json writes 1.0 as 1.
func exact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, x := range v {
			out[name] = exact(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = exact(x)
		}
		return out
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return json.Number(strconv.FormatFloat(v, 'f', 1, 64))
		}
		return json.Number(strconv.FormatFloat(v, 'e', -1, 64))
	}
	return v
}

// numbersIn replaces the json.Numbers of a tree by int64 or float64, in place.
func numbersIn(v any) error {
	number := func(n json.Number) (any, error) {
		if strings.ContainsAny(n.String(), ".eE") {
			return n.Float64()
		}
		return n.Int64()
	}
	var err error
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			if n, ok := x.(json.Number); ok {
				if v[name], err = number(n); err != nil {
					return err
				}
			} else if err := numbersIn(x); err != nil {
				return err
			}
		}
	case []any:
		for i, x := range v {
			if n, ok := x.(json.Number); ok {
				if v[i], err = number(n); err != nil {
					return err
				}
			} else if err := numbersIn(x); err != nil {
				return err
			}
		}
	}
	return nil
}
