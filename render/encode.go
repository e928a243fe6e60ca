package render

import (
	"bytes"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"
)

// YAML writes the objects as a stream of YAML documents, fields in alphabetical order.
func (b Bundle) YAML() ([]byte, error) {
	var out bytes.Buffer
	for i, o := range b.Objects {
		doc, err := yaml.Marshal(o.Value)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", o.ID(), err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(doc)
	}
	return out.Bytes(), nil
}

// JSON writes the objects as one List, which kubectl reads.
func (b Bundle) JSON() ([]byte, error) {
	items := make([]any, len(b.Objects))
	for i, o := range b.Objects {
		items[i] = o.Value
	}
	out, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": items}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode %d objects: %w", len(items), err)
	}
	return append(out, '\n'), nil
}
