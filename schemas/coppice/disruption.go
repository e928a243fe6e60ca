package coppice

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// AnnotationFleet is on a NodeClaim that is launched together with others: the launch's
// token, and the claim's place among how many, as in "0f8fad5b-… 3/20".
const AnnotationFleet = Group + "/fleet"

// Annotations of NodeClaims by which a disruption survives a restart.
const (
	// AnnotationDisruption holds a Disruption on each claim that it takes away.
	AnnotationDisruption = Group + "/disruption"
	// AnnotationReplaces holds a Disruption's ID on each claim that it has brought in.
	AnnotationReplaces = Group + "/replaces"
	// AnnotationRebooted holds when the claim's instance was rebooted to repair it, in
	// RFC 3339. It is written before the cloud is asked.
	AnnotationRebooted = Group + "/rebooted"
)

// Disruption is a command under way: machines that go together, after others have come
// in their place. Each of its claims carries all of it, since any of them may be the
// last that is left.
//
// +kubebuilder:object:generate=false
type Disruption struct {
	ID     string                     `json:"id"`
	Reason karpenter.DisruptionReason `json:"reason"`
	// Claims are the NodeClaims that go, sorted.
	Claims []string `json:"claims"`
	// Replacements are the NodeClaims that must be initialized first.
	Replacements []string  `json:"replacements,omitempty"`
	Since        time.Time `json:"since"`
}

// DisruptionOf reads the disruption that a claim carries. One that can't be read, or
// doesn't name the claim, is none.
func DisruptionOf(claim *karpenter.NodeClaim) (Disruption, bool) {
	text, ok := claim.Annotations[AnnotationDisruption]
	if !ok {
		return Disruption{}, false
	}
	var d Disruption
	if err := json.Unmarshal([]byte(text), &d); err != nil || d.ID == "" || !slices.Contains(d.Claims, claim.Name) {
		return Disruption{}, false
	}
	return d, true
}

// Encode writes the disruption as its annotation's value.
func (d Disruption) Encode() string {
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings and a time have a JSON form
	}
	return string(text)
}
