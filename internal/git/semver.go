package git

import (
	"strings"

	"github.com/Masterminds/semver/v3"
)

// highest returns the name of the tag, among full ref names, whose version is the
// highest one in a range. Of two names of the same version (v1.0.0 and 1.0.0) the
// first in the alphabet is taken.
func highest(span string, refs []string) (tag string, err error) {
	wanted, err := semver.NewConstraint(span)
	if err != nil {
		return "", err
	}
	var best *semver.Version
	for _, ref := range refs {
		name, ok := strings.CutPrefix(ref, tagPrefix)
		if !ok {
			continue
		}
		version, err := semver.NewVersion(name)
		if err != nil || !wanted.Check(version) {
			continue
		}
		if best == nil || version.GreaterThan(best) || version.Equal(best) && name < tag {
			best, tag = version, name
		}
	}
	return tag, nil
}
