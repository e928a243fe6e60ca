package admission

// Stored returns an object as the API server would store it: pruned, with defaults,
// without status where that is a subresource. It isn't validated. An object of an
// unknown kind comes back as it is, one that is too malformed to be stored as nil.
// The result shares nothing with obj.
func (j *Judge) Stored(obj map[string]any) map[string]any {
	tree, ok := normal(obj).(map[string]any)
	if !ok {
		return nil
	}
	k, e := j.kindOf(tree)
	if e != nil {
		return tree
	}
	if _, _, errs := k.admit(tree); len(errs) > 0 {
		return nil
	}
	return tree
}

// Atomic reports whether server-side apply replaces the map at a path as a whole
// instead of joining it with what is live. Lists have no part in it.
func (j *Judge) Atomic(obj map[string]any, path []any) bool {
	k, e := j.kindOf(obj)
	if e != nil {
		return false
	}
	s := k.structural
	for _, p := range path {
		name, isName := p.(string)
		if !isName {
			return false
		}
		next, ok := s.Properties[name]
		switch {
		case ok:
			s = &next
		case s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil:
			s = s.AdditionalProperties.Structural
		default:
			return false
		}
	}
	return s.XMapType != nil && *s.XMapType == "atomic"
}
