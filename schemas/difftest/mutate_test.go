package difftest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// perObject is how many mutations are made of each object.
const perObject = 8

// mutations changes each accepted object in random places. The same corpus gives
// the same mutations.
func mutations(cases []testCase) []testCase {
	// Examples come from a map.
	cases = slices.DeleteFunc(slices.Clone(cases), func(c testCase) bool { return !*c.want })
	slices.SortFunc(cases, func(a, b testCase) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	rnd := rand.New(rand.NewPCG(3, 14))
	var out []testCase
	for _, c := range cases {
		for i := range perObject {
			obj := clone(c.obj)
			for range 1 + rnd.IntN(2) {
				mutate(rnd, obj, obj, "")
			}
			out = append(out, testCase{name: fmt.Sprintf("%s, mutation %d", c.name, i), obj: obj, old: c.old, status: c.status})
		}
	}
	return out
}

// mutate walks down from v at random and changes one thing. top isn't changed at
// its own level, where the kind is.
func mutate(rnd *rand.Rand, top map[string]any, v any, name string) {
	switch v := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		atTop := name == ""
		if atTop {
			keys = slices.DeleteFunc(keys, func(k string) bool { return k == "apiVersion" || k == "kind" })
		}
		if len(keys) == 0 {
			if !atTop {
				v["new"] = scalar(rnd)
			}
			return
		}
		k := keys[rnd.IntN(len(keys))]
		switch roll := rnd.IntN(10); {
		case roll == 0 && !atTop:
			delete(v, k)
		case roll == 1 && !atTop:
			v[k] = scalar(rnd)
		case roll == 2 && !atTop:
			v[k+"x"] = v[k]
		case roll == 3 && !atTop:
			v[[]string{"new", "a b", "karpenter.sh/x", ""}[rnd.IntN(4)]] = scalar(rnd)
		default:
			if child, ok := descend(v[k]); ok {
				mutate(rnd, top, child, name+" "+k)
				return
			}
			if !atTop {
				v[k] = vary(rnd, v[k])
			}
		}
	case []any:
		if len(v) == 0 {
			return
		}
		i := rnd.IntN(len(v))
		switch rnd.IntN(6) {
		case 0:
			v[i] = scalar(rnd)
		case 1:
			v[i] = v[rnd.IntN(len(v))]
		default:
			if child, ok := descend(v[i]); ok {
				mutate(rnd, top, child, fmt.Sprint(name, " ", i))
				return
			}
			v[i] = vary(rnd, v[i])
		}
	}
}

func descend(v any) (any, bool) {
	switch v.(type) {
	case map[string]any, []any:
		return v, true
	}
	return nil, false
}

// vary returns something like v.
func vary(rnd *rand.Rand, v any) any {
	switch v := v.(type) {
	case string:
		switch rnd.IntN(6) {
		case 0:
			return ""
		case 1:
			return v + v
		case 2:
			return v + "!"
		case 3:
			if len(v) > 1 {
				return v[:len(v)-1]
			}
		case 4:
			return "0" + v
		}
	case int64:
		return v + []int64{-1, 1, 1000, -1000, 1 << 40}[rnd.IntN(5)]
	case bool:
		return !v
	}
	return scalar(rnd)
}

func scalar(rnd *rand.Rand) any {
	return []any{nil, "", "x", "Never", "1h", "10%", "5", "*", int64(0), int64(-1), int64(70), 1.5, true, map[string]any{}, []any{}, map[string]any{"a": "b"}, []any{"a"}, []any{nil}}[rnd.IntN(18)]
}
