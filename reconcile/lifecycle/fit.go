package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// noType says why no type would do for the claim now, and what is nearest: its
// requirements leave none, those that they leave are too small, or sold out.
func noType(all []cloud.InstanceType, claim *karpenter.NodeClaim) string {
	fits := cloud.Compatible(all, claim.Spec.Requirements)
	if len(fits) == 0 {
		return fmt.Sprintf("none of the %d instance types that the class offers meets the NodeClaim's requirements", len(all))
	}
	if large := roomy(slices.Clone(fits), claim.Spec.Resources.Requests); len(large) > 0 {
		return fmt.Sprintf("what is large enough of the instance types that meet the NodeClaim's requirements is sold out (%s)", typeNames(large))
	}
	// Of each resource, the most that any of them has.
	var short []string
	for _, name := range slices.Sorted(maps.Keys(claim.Spec.Resources.Requests)) {
		want := claim.Spec.Resources.Requests[name]
		most := fits[0].Allocatable[name]
		for _, t := range fits[1:] {
			if q := t.Allocatable[name]; q.Cmp(most) > 0 {
				most = q
			}
		}
		if most.Cmp(want) < 0 {
			short = append(short, fmt.Sprintf("%s of %s is asked for, and the most that one has allocatable is %s", want.String(), name, most.String()))
		}
	}
	if len(short) == 0 {
		short = []string{"none has all that is asked for together"}
	}
	return fmt.Sprintf("the instance types that meet the NodeClaim's requirements are too small (%s): %s", typeNames(fits), strings.Join(short, "; "))
}

// namedTypes is how many types a message names: an event has one line.
const namedTypes = 3

func typeNames(types []cloud.InstanceType) string {
	var names []string
	for _, t := range types {
		names = append(names, t.Name)
	}
	if more := len(names) - namedTypes; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedTypes], ", "), more)
	}
	return strings.Join(names, ", ")
}
