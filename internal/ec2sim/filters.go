package ec2sim

import (
	"encoding/base64"
	"slices"
	"strings"
)

// filter is one EC2 filter: an object passes if any of its values for the name
// matches any of the filter's. Filters are ANDed.
type filter struct {
	name   string
	values []string
}

func parseFilters(p *params) []filter {
	var filters []filter
	for _, f := range p.list("Filter") {
		filters = append(filters, filter{name: f.str("Name"), values: f.strs("Value")})
	}
	return filters
}

// lookup gives an object's values for a filter's name; ok is false for a name
// that the kind of object does not have.
type lookup func(name string) (values []string, ok bool)

// passes says whether the object behind look passes every filter. The tag
// filters are answered from tags.
func passes(filters []filter, tags map[string]string, look lookup) (bool, error) {
	all := true
	for _, f := range filters {
		values, ok := tagValues(f.name, tags)
		if !ok {
			values, ok = look(f.name)
		}
		if !ok {
			return false, invalidParameter("The filter '%s' is invalid", f.name)
		}
		if !slices.ContainsFunc(values, func(v string) bool {
			return slices.ContainsFunc(f.values, func(pattern string) bool { return wildcard(pattern, v) })
		}) {
			all = false
		}
	}
	return all, nil
}

func tagValues(name string, tags map[string]string) ([]string, bool) {
	if key, ok := strings.CutPrefix(name, "tag:"); ok {
		if v, has := tags[key]; has {
			return []string{v}, true
		}
		return nil, true
	}
	switch name {
	case "tag-key":
		return sortedKeys(tags), true
	case "tag-value":
		var values []string
		for _, k := range sortedKeys(tags) {
			values = append(values, tags[k])
		}
		return values, true
	}
	return nil, false
}

// wildcard matches * against any run and ? against any one byte; a backslash
// takes the next byte literally. Matching is case-sensitive, as in EC2.
func wildcard(pattern, s string) bool {
	if !strings.ContainsAny(pattern, `*?\`) {
		return pattern == s
	}
	for pattern != "" {
		switch pattern[0] {
		case '*':
			for i := 0; i <= len(s); i++ {
				if wildcard(pattern[1:], s[i:]) {
					return true
				}
			}
			return false
		case '?':
			if s == "" {
				return false
			}
		case '\\':
			if len(pattern) > 1 {
				pattern = pattern[1:]
			}
			fallthrough
		default:
			if s == "" || s[0] != pattern[0] {
				return false
			}
		}
		pattern, s = pattern[1:], s[1:]
	}
	return s == ""
}

// page cuts one page out of items, which are sorted by key. The token names the
// last key of the page before, so objects that come and go between two pages
// neither repeat nor hide others.
func page[T any](p *params, items []T, key func(T) string, least, most int) ([]T, string, error) {
	max, err := p.int("MaxResults", 0)
	if err != nil {
		return nil, "", err
	}
	if p.has("MaxResults") && (max < least || max > most) {
		return nil, "", invalidParameter("Value ( %d ) for parameter maxResults is invalid. Expecting a value between %d and %d.", max, least, most)
	}
	return cut(items, key, p.str("NextToken"), max)
}

// cut is page without the checks; a max of 0 is no limit.
func cut[T any](items []T, key func(T) string, token string, max int) ([]T, string, error) {
	if token != "" {
		after, err := lastKey(token)
		if err != nil {
			return nil, "", err
		}
		from := 0
		for from < len(items) && key(items[from]) <= after {
			from++
		}
		items = items[from:]
	}
	if max == 0 || len(items) <= max {
		return items, "", nil
	}
	items = items[:max]
	return items, base64.RawURLEncoding.EncodeToString([]byte("after:" + key(items[max-1]))), nil
}

// lastKey takes the key out of a page token, "" out of none.
func lastKey(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	last, err := base64.RawURLEncoding.DecodeString(token)
	key, ok := strings.CutPrefix(string(last), "after:")
	if err != nil || !ok {
		return "", fail("InvalidPaginationToken", "The pagination token is invalid.")
	}
	return key, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
