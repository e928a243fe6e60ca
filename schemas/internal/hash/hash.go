// Package hash turns API values into short fingerprints that tell whether two
// of them ask for the same thing.
//
// A fingerprint is taken of the meaning, not of the text: absent and empty are
// the same, and the order of a list doesn't count. It may not be used where an
// attacker gains from a collision.
package hash

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// Size is the length of a fingerprint in characters: 80 bits, in hexadecimal.
const Size = 20

// Of returns the fingerprint of v. It panics if v has no JSON form, which no
// API type of ours lacks.
func Of(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("hash: value without a JSON form: %v", err))
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		panic(fmt.Sprintf("hash: reading what was just written: %v", err))
	}
	sum := sha256.Sum256(canonical(tree))
	return hex.EncodeToString(sum[:])[:Size]
}

// canonical writes v with sorted keys, sorted lists and nothing empty in it.
// The empty value itself is written as no bytes.
func canonical(v any) []byte {
	switch v := v.(type) {
	case nil:
		return nil
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		var out []byte
		for _, k := range keys {
			if b := canonical(v[k]); len(b) > 0 {
				out = fmt.Appendf(out, "%q:%s,", k, b)
			}
		}
		return wrap('{', out, '}')
	case []any:
		var items [][]byte
		for _, e := range v {
			if b := canonical(e); len(b) > 0 {
				items = append(items, b)
			}
		}
		slices.SortFunc(items, bytes.Compare)
		return wrap('[', bytes.Join(items, []byte(",")), ']')
	case string:
		if v == "" {
			return nil
		}
		return fmt.Appendf(nil, "%q", v)
	case json.Number:
		return []byte(v)
	case bool:
		if !v {
			return []byte("false")
		}
		return []byte("true")
	}
	panic(fmt.Sprintf("hash: %T is not a JSON value", v))
}

func wrap(open byte, body []byte, end byte) []byte {
	if len(body) == 0 {
		return nil
	}
	return append(append([]byte{open}, body...), end)
}
