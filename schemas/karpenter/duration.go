package karpenter

import (
	"encoding/json"
	"fmt"
	"time"
)

// Never is how a NillableDuration says that something doesn't happen.
const Never = "Never"

// NillableDuration is a length of time, or never. The zero value is neither: it
// is the field left out.
//
// A value that was read is written back with the bytes it was read from, so that
// 720h doesn't become 720h0m0s and an applier that compares texts sees no change.
// Code that wants another value makes a new one with After or NeverDuration.
//
// +kubebuilder:validation:Type=string
type NillableDuration struct {
	// Duration is nil for never and for the zero value.
	*time.Duration `json:"-"`
	// Raw is the JSON text that the value was read from. It wins over Duration.
	Raw []byte `json:"-"`
}

// After returns the duration d.
func After(d time.Duration) NillableDuration {
	return NillableDuration{Duration: &d}
}

// NeverDuration returns the value that is written as "Never".
func NeverDuration() NillableDuration {
	return NillableDuration{Raw: []byte(`"` + Never + `"`)}
}

// ParseNillableDuration reads "Never" or what time.ParseDuration reads, and keeps the text.
func ParseNillableDuration(text string) (NillableDuration, error) {
	raw, err := json.Marshal(text)
	if err != nil {
		return NillableDuration{}, err
	}
	var d NillableDuration
	return d, d.UnmarshalJSON(raw)
}

// IsZero reports whether the field was left out. It makes omitzero work.
func (d NillableDuration) IsZero() bool { return d.Duration == nil && len(d.Raw) == 0 }

// IsNever reports whether there is no such time: written as "Never" or left out.
func (d NillableDuration) IsNever() bool { return d.Duration == nil }

// String returns the text as it was written, or Go's form of the duration.
func (d NillableDuration) String() string {
	var text string
	if len(d.Raw) > 0 && json.Unmarshal(d.Raw, &text) == nil {
		return text
	}
	if d.Duration != nil {
		return d.Duration.String()
	}
	return Never
}

// MarshalJSON writes what was read, if the value was read.
func (d NillableDuration) MarshalJSON() ([]byte, error) {
	if len(d.Raw) > 0 {
		return d.Raw, nil
	}
	return json.Marshal(d.String())
}

// ToUnstructured lets a converter keep the text too.
func (d NillableDuration) ToUnstructured() any {
	if d.IsZero() {
		return nil
	}
	return d.String()
}

// UnmarshalJSON reads a JSON string; null leaves the zero value.
func (d *NillableDuration) UnmarshalJSON(b []byte) error {
	var text *string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("read duration: %w", err)
	}
	if text == nil {
		*d = NillableDuration{}
		return nil
	}
	raw := append([]byte(nil), b...)
	if *text == Never {
		*d = NillableDuration{Raw: raw}
		return nil
	}
	v, err := time.ParseDuration(*text)
	if err != nil {
		return fmt.Errorf("read duration: %w", err)
	}
	*d = NillableDuration{Duration: &v, Raw: raw}
	return nil
}
