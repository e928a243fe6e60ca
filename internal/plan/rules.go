package plan

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/schemas/coppice"
)

// Rules makes a judge of those conflict rules that are about an object and hold now, nil
// if none is. own is the field manager of what Git holds, which contests nothing.
func Rules(all []coppice.ConflictRule, object ID, own string, now time.Time) Judge {
	var rules []coppice.ConflictRule
	for _, r := range all {
		switch {
		case r.Expires != nil && !now.Before(r.Expires.Time):
		case r.Kind != "" && r.Kind != object.Kind, r.Name != "" && !glob(r.Name, object.Name):
		default:
			rules = append(rules, r)
		}
	}
	if len(rules) == 0 {
		return nil
	}
	return func(at []any, manager string) Verdict {
		if manager == own || manager == "" {
			return Force // Git's own, or nobody's
		}
		for _, r := range rules {
			if len(r.Managers) > 0 && !slices.ContainsFunc(r.Managers, func(m string) bool { return glob(m, manager) }) ||
				len(r.Paths) > 0 && !slices.ContainsFunc(r.Paths, func(pointer string) bool { return covers(pointer, at) }) {
				continue
			}
			switch r.Policy {
			case coppice.ConflictYield:
				return Yield
			case coppice.ConflictFail:
				return Fail
			}
			return Force
		}
		return Force
	}
}

// glob matches a text with a pattern in which * stands for any characters.
func glob(pattern, text string) bool {
	// A slash ends what * matches in a path, and is part of managers' names.
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(text, "/", "\x00"))
	return err == nil && ok
}

// covers reports whether a JSON pointer names a field or something above it, or
// an element of a list that at is the whole of.
func covers(pointer string, at []any) bool {
	tokens := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, token := range tokens {
		if i == len(at) {
			// The pointer goes on below the difference. Lists have one owner, so a
			// rule about an element is about the list.
			_, err := strconv.Atoi(token)
			return err == nil
		}
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch e := at[i].(type) {
		case string:
			if e != token {
				return false
			}
		case int:
			if n, err := strconv.Atoi(token); err != nil || n != e {
				return false
			}
		}
	}
	return true
}

// DriftMode says what becomes of the drift of an object: what Git says on the object
// itself, or else what its source says.
func DriftMode(git map[string]any, source coppice.DriftMode) coppice.DriftMode {
	meta, _ := git["metadata"].(map[string]any)
	notes, _ := meta["annotations"].(map[string]any)
	text, _ := notes[coppice.DriftAnnotation].(string)
	switch mode := coppice.DriftMode(text); mode {
	case coppice.DriftWarn, coppice.DriftCorrect, coppice.DriftOff:
		return mode
	}
	return source
}
