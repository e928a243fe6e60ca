package cloud

import (
	"fmt"

	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Fleet is a launch that several claims share. Which instance is whose follows from the
// claims' places in it, which are written on them before anything is launched.
type Fleet struct {
	// Token makes the launch repeatable, as a single claim's does.
	Token string
	// Index is the claim's place, counted from 0, of Count places.
	Index, Count int
	// Members are the claims by their places, nil where there is none that could take an
	// instance.
	Members []*karpenter.NodeClaim
}

// Complete reports whether every place has its claim.
func (f *Fleet) Complete() bool {
	for _, m := range f.Members {
		if m == nil {
			return false
		}
	}
	return len(f.Members) == f.Count
}

// FleetMark is the annotation of the claim at a place of a fleet.
func FleetMark(token string, index, count int) string {
	return fmt.Sprintf("%s %d/%d", token, index, count)
}

// FleetOf reads the claim's annotation. It reports false if the claim is to be launched
// alone, as it is where the annotation makes no sense. Members is left empty.
func FleetOf(claim *karpenter.NodeClaim) (Fleet, bool) {
	var f Fleet
	text := claim.Annotations[coppice.AnnotationFleet]
	if n, err := fmt.Sscanf(text, "%s %d/%d", &f.Token, &f.Index, &f.Count); n != 3 || err != nil || text != FleetMark(f.Token, f.Index, f.Count) {
		return Fleet{}, false
	}
	if f.Count < 2 || f.Count > MaxFleet || f.Index < 0 || f.Index >= f.Count || len(f.Token) > maxToken {
		return Fleet{}, false
	}
	return f, true
}

const (
	// MaxFleet bounds how many instances are launched at once: a call whose answer is
	// lost concerns no more. It takes 200 nodes to 10 calls, and EC2 lets 50 through
	// before it holds them back.
	MaxFleet = 20
	// maxToken is that of a UUID. EC2's client token may have 64 characters, of which
	// some count attempts.
	maxToken = 36
)
