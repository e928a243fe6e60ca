package health

import (
	"sync"
	"time"
)

// Stage is how far a claim has come.
type Stage int

// Stages in the order in which a claim reaches them.
const (
	Launched Stage = iota + 1
	Registered
	Initialized
)

const (
	// firstPause is how long a pool rests after its first failure: enough to see
	// whether the other claims of the same decision fail too.
	firstPause = time.Second
	// maxPause bounds the rest: capacity that comes back, or a mistake that was
	// mended, is noticed within this time. With it a pool that always fails tries
	// eleven times in ten minutes.
	maxPause = 5 * time.Minute
	// window is how many of the last launches NodeRegistrationHealthy looks at, and
	// unhealthy how many failures among them make it false: Karpenter's values.
	window    = 4
	unhealthy = 2
)

// Tracker holds the outcomes of all pools. Its zero value is ready; all methods
// may be called concurrently.
type Tracker struct {
	mu    sync.Mutex
	pools map[string]*pool
}

type pool struct {
	failures int // in a row
	stage    Stage
	why      string
	until    time.Time
	probe    string // the claim whose outcome is awaited
	// settled says that what a predecessor knew of the failures is of no more interest.
	settled bool

	recent []outcome // the last ones, the oldest first
}

type outcome struct {
	claim string
	good  bool
}

// Hold is what a pool's failures demand.
type Hold struct {
	// Failures counts the failures in a row; at 0 nothing is held back.
	Failures int
	// Stage is the furthest that one of them didn't reach.
	Stage Stage
	// Why is what the last failure said.
	Why string
	// Until is when a probe may be made; zero while one is under way.
	Until time.Time
	// Probing is the claim whose outcome is awaited.
	Probing string
}

// Closed reports whether nothing at all may be launched at now.
func (h Hold) Closed(now time.Time) bool {
	return h.Failures > 0 && (h.Probing != "" || now.Before(h.Until))
}

func (t *Tracker) of(name string) *pool {
	p := t.pools[name]
	if p == nil {
		p = &pool{}
		if t.pools == nil {
			t.pools = map[string]*pool{}
		}
		t.pools[name] = p
	}
	return p
}

// Failed records that a claim of the pool didn't reach the stage. What fails while
// the pool rests was begun before and counts as the same failure.
func (t *Tracker) Failed(name, claim string, stage Stage, why string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(name)
	p.settled = true
	if stage == Registered {
		p.note(outcome{claim, false})
	}
	p.why = why
	p.stage = max(p.stage, stage)
	if p.failures > 0 && now.Before(p.until) {
		return
	}
	if p.probe != "" && p.probe != claim {
		return // of an earlier decision: the probe is what counts
	}
	p.probe = ""
	p.failures++
	p.until = now.Add(pause(p.failures))
}

// pause is how long to rest after so many failures in a row.
func pause(failures int) time.Duration {
	d := firstPause
	for range failures - 1 {
		if d *= 2; d >= maxPause {
			return maxPause
		}
	}
	return d
}

// Reached records that a claim of the pool has reached the stage.
func (t *Tracker) Reached(name, claim string, stage Stage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(name)
	p.settled = true
	if stage == Registered {
		p.note(outcome{claim, true})
	}
	if stage >= p.stage {
		p.open()
	}
}

// Gone records that a claim has ended, whatever came of it.
func (t *Tracker) Gone(name, claim string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.pools[name]; p != nil && p.probe == claim {
		p.probe = ""
	}
}

// Probe records that a claim was created to find out whether the pool works again.
func (t *Tracker) Probe(name, claim string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(name).probe = claim
}

// Reset forgets what is known of a pool, as when it was changed.
func (t *Tracker) Reset(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*t.of(name) = pool{settled: true}
}

// Restore takes over failures that were known before a restart, unless something has
// become known of the pool since, and reports whether it did. A clock that was fast then
// holds back no longer than as many failures do.
func (t *Tracker) Restore(name string, h Hold, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(name)
	if p.settled || h.Failures <= 0 {
		return false
	}
	p.settled = true
	p.failures, p.stage, p.why, p.until = h.Failures, h.Stage, h.Why, h.Until
	if most := now.Add(pause(h.Failures)); p.until.After(most) {
		p.until = most
	}
	return true
}

// Recall makes an empty history look like one that leads to a verdict, as read from
// a pool's condition after a restart.
func (t *Tracker) Recall(name string, healthy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.of(name)
	if len(p.recent) > 0 {
		return
	}
	n := 1
	if !healthy {
		n = unhealthy
	}
	for range n {
		p.recent = append(p.recent, outcome{good: healthy})
	}
}

// Hold returns what the pool's failures demand.
func (t *Tracker) Hold(name string) Hold {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pools[name]
	if p == nil || p.failures == 0 {
		return Hold{}
	}
	return Hold{Failures: p.failures, Stage: p.stage, Why: p.why, Until: p.until, Probing: p.probe}
}

// Healthy says whether the pool's last launches became Nodes. It isn't known
// before the first.
func (t *Tracker) Healthy(name string) (healthy, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pools[name]
	if p == nil || len(p.recent) == 0 {
		return false, false
	}
	bad := 0
	for _, o := range p.recent {
		if !o.good {
			bad++
		}
	}
	return bad < unhealthy, true
}

func (p *pool) open() {
	p.failures, p.stage, p.why, p.until, p.probe = 0, 0, "", time.Time{}, ""
}

// note adds an outcome, once for each claim.
func (p *pool) note(o outcome) {
	for i := range p.recent {
		if p.recent[i].claim == o.claim {
			p.recent[i] = o
			return
		}
	}
	p.recent = append(p.recent, o)
	if len(p.recent) > window {
		p.recent = p.recent[1:]
	}
}
