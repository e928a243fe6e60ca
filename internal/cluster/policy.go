package cluster

import (
	"fmt"

	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// AnnotationPreferencePolicy on a pod says what its preferences are worth, in place
// of the pool's and the controller's --preference-policy. Its values are those of
// PreferencePolicy.
const AnnotationPreferencePolicy = sugar.AnnotationPreferencePolicy

// PreferencePolicy reads a policy for preferences: Priced, or Karpenter's Respect or
// Ignore.
func PreferencePolicy(text string) (pack.Policy, error) {
	switch text {
	case "Priced":
		return pack.Priced, nil
	case "Respect":
		return pack.Respect, nil
	case "Ignore":
		return pack.Ignore, nil
	}
	return 0, fmt.Errorf("preference policy %q isn't known; give Priced, Respect or Ignore", text)
}

// MinValuesPolicy reads Karpenter's policy for minValues: Strict or BestEffort.
func MinValuesPolicy(text string) (pack.MinValuesPolicy, error) {
	switch text {
	case "Strict":
		return pack.Strict, nil
	case "BestEffort":
		return pack.BestEffort, nil
	}
	return 0, fmt.Errorf("minValues policy %q isn't known; give Strict or BestEffort", text)
}
