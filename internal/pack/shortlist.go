package pack

import (
	"cmp"
	"slices"
)

// shortlist is entries worth trying, the best rates first.
type shortlist struct {
	entries []int32
	// favourites are those that were the best so far at some point of the last search
	// through all, the best one last; age counts the searches through them alone.
	favourites []int32
	age        int
	// rate is what the best of that search gave for its price.
	rate float64
}

const (
	// mostFavourites is how many are tried in between full searches, and
	// favouritesLast how many times. Both were measured to change prices by less than
	// a thousandth and to save three quarters of the time.
	mostFavourites = 4
	favouritesLast = 12
	// favouritesFall is how much worse than at the last full search the favourites
	// may do before there is another.
	favouritesFall = 0.003
)

// favour notes an entry that is the best so far.
func (l *shortlist) favour(e int32) {
	if len(l.favourites) == mostFavourites {
		copy(l.favourites, l.favourites[1:])
		l.favourites = l.favourites[:mostFavourites-1]
	}
	l.favourites = append(l.favourites, e)
}

// shortlist returns the entries worth trying for a pod that may be in some
// breeds: of each doubling of size those with the best rates.
func (v *solver) shortlist(breeds bitset) *shortlist {
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
	list := &shortlist{}
	for _, r := range all {
		if taken[r.octave] < perOctave {
			taken[r.octave]++
			list.entries = append(list.entries, r.e)
		}
	}
	v.shortlists[string(buf)] = list
	return list
}

// perOctave is how many entries of each doubling of size are tried. Three leave
// room for one of each ratio of memory to cores at the prices of today's
// families.
const perOctave = 3
