package pack

import (
	"cmp"
	"slices"
)

// shortlist returns the entries worth trying for a pod that may be in some
// breeds: of each doubling of size those with the best rates.
func (v *solver) shortlist(breeds bitset) []int32 {
	var key [64]byte
	buf := key[:0]
	for _, w := range breeds {
		for i := range 8 {
			buf = append(buf, byte(w>>(8*i)))
		}
	}
	if list, ok := v.shortlists[string(buf)]; ok {
		return list
	}
	m := v.menu
	type rated struct {
		e      int32
		worth  int64
		octave int
	}
	var all []rated
	for b := breeds.next(0); b >= 0; b = breeds.next(b + 1) {
		br := &m.breeds[b]
		for e := br.first; e < br.last; e++ {
			if w := worthOf(m.at(e), v.rates); w > 0 {
				octave := 0
				for x := w; x > 1; x >>= 1 {
					octave++
				}
				all = append(all, rated{e, w, octave})
			}
		}
	}
	slices.SortFunc(all, func(a, b rated) int {
		switch {
		case less(m.entries[a.e].price, a.worth, m.entries[b.e].price, b.worth):
			return -1
		case less(m.entries[b.e].price, b.worth, m.entries[a.e].price, a.worth):
			return 1
		}
		return cmp.Compare(a.e, b.e)
	})
	taken := map[int]int{}
	list := []int32{}
	for _, r := range all {
		if taken[r.octave] < perOctave {
			taken[r.octave]++
			list = append(list, r.e)
		}
	}
	v.shortlists[string(buf)] = list
	return list
}

// perOctave is how many entries of each doubling of size are tried. Three leave
// room for one of each ratio of memory to cores at the prices of today's
// families.
const perOctave = 3
