package disrupt

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/consolidate"
)

const (
	// calm is how long no pod may have come or gone before the fleet is searched, or a
	// part, one in pauses, of how long they had been coming and going, if that is longer:
	// a busy API server makes gaps. latest is after how long it is searched all the same:
	// each search before the last pod has gone moves pods that the next would have left.
	// The controller manager takes 15 s to delete 300 pods at its default 20 requests a
	// second.
	calm   = time.Second
	pauses = 5
	latest = 30 * time.Second
	// settle is how long no pod may have come or gone for the fleet to be settled: a
	// controller makes up for an evicted pod well within it.
	settle = 3 * time.Second
	// landing is how long the fleet isn't searched at most while nodes of the last search
	// are still going: their pods don't land where they were planned.
	landing = time.Minute
	// again is how long the fleet isn't searched after a search that found something. It
	// doubles with each that does in a row, up to refresh, as does what a moved pod has to
	// save: where pods keep landing elsewhere, moving them ever so often gains nothing.
	again = 2 * time.Second
	// share bounds the part of one core that searching may take, one in share.
	share = 10
)

// pace decides when the fleet is searched, and how much what is found then must save.
type pace struct {
	// pulse is the last one seen, since when, and when the first of a row of changes
	// was.
	pulse          uint64
	changed, first time.Time
	// population is that of pods, moved since when.
	population uint64
	moved      time.Time
	// seen and kept are of the last search, next is when there may be another.
	seen uint64
	kept map[string]consolidate.Keep
	next time.Time
	// searched is when the last search was, found how many found something, the last at
	// time last, without a rest of refresh in between and while there were as many pods,
	// which is size. One whose saving has come about, half of it at least, doesn't count.
	searched, last time.Time
	found, size    int
	// price is what the machines cost when something was found last, promised what that
	// was to save; 0 once it is known what came of it.
	price, promised int64
}

// look fills in what a decision at in.Now must know of what has been going on. Unbound
// counts the pods without a node.
func (p *pace) look(in *Input, unbound int) {
	now := in.Now
	in.Seen, in.Kept = p.seen, p.kept
	movable, population := residents(in.Nodes)
	if population != p.population {
		p.population, p.moved = population, now
	}
	still := !slices.ContainsFunc(in.Nodes, leaving) && now.Sub(p.moved) >= settle
	in.Settled = still && unbound == 0
	in.Landing = !p.last.IsZero() && p.last.Equal(p.searched) && now.Sub(p.searched) < landing
	// A pod that has no place for longer than others are expected for may never have one.
	landed := still && (unbound == 0 || now.Sub(p.moved) >= expected) && !slices.ContainsFunc(in.Nodes, moving)
	in.Quiet = p.quiet(pulse(in.Nodes), ending(in.Nodes, now), now) && !now.Before(p.next) && (landed || !in.Landing)
	// What is found after pods came or went for good is new, not found again. While
	// nodes drain there are fewer for moments.
	if size := unbound + movable; in.Quiet && (size != p.size || now.Sub(p.last) >= refresh) {
		p.size, p.found = size, 0
	}
	if in.Quiet && p.promised > 0 {
		if p.price-price(*in) >= p.promised/2 {
			p.found = max(0, p.found-1)
		}
		p.promised = 0
	}
	in.Found = p.found
}

// note takes over what a decision came to, which took so long.
func (p *pace) note(d Decision, now time.Time, took time.Duration) {
	if !d.Searched {
		return
	}
	p.searched, p.kept, p.seen = now, d.Kept, d.Mark
	wait := share * took
	var found bool
	var saves int64
	for _, c := range d.Start {
		if c.Reason == underutilized {
			found, saves = true, saves+c.Saves
		}
	}
	if found {
		p.seen, p.price, p.promised = 0, d.Price, saves
		wait = max(wait, min(again<<min(p.found, 10), refresh))
		p.found++
		p.last = p.searched
	}
	p.next = p.searched.Add(wait)
}

// price is what the machines that stay cost, in micro-dollars an hour, as far as it is
// known.
func price(in Input) (sum int64) {
	for _, n := range in.Nodes {
		if _, going := commandOf(n); n.Claim == nil || n.Deleting() || going {
			continue
		}
		if x, ok := in.Core.Node(n.Name()); ok {
			sum += x.MicroUSD
		}
	}
	return sum
}

// moving reports whether a search's command has yet to move pods from a machine. One
// that is empty and ends doesn't matter to the next search.
func moving(n cluster.Node) bool {
	c, ok := commandOf(n)
	return ok && c.Reason == underutilized && (!n.Deleting() || leaving(n))
}

// leaving reports whether pods have yet to move from a machine that is on its way out.
func leaving(n cluster.Node) bool { return n.Deleting() && !vacant(n) }

// ending reports whether pods that have been told to end still take room on machines that
// stay: a search that doesn't see that room moves pods elsewhere, and has to move others
// into it later. A pod that takes longer than its grace period isn't waited for.
func ending(nodes []cluster.Node, now time.Time) bool {
	return slices.ContainsFunc(nodes, func(n cluster.Node) bool {
		if _, going := commandOf(n); going || n.Deleting() {
			return false
		}
		return slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool {
			return p.DeletionTimestamp != nil && !cluster.Terminal(p) && now.Before(p.DeletionTimestamp.Time)
		})
	})
}

// quiet reports whether pods have stopped coming and going, or haven't for too long.
func (p *pace) quiet(pulse uint64, ending bool, now time.Time) bool {
	if pulse != p.pulse || ending {
		p.pulse = pulse
		if now.Sub(p.changed) >= p.calm() {
			p.first = now
		}
		p.changed = now
	}
	if now.Sub(p.first) >= latest {
		p.first = now
		return true
	}
	return now.Sub(p.changed) >= p.calm()
}

// calm is how long nothing may have changed by now.
func (p *pace) calm() time.Duration { return max(calm, p.changed.Sub(p.first)/pauses) }
