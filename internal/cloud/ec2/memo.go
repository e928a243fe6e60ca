package ec2

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// loadTimeout bounds a shared call, which outlives the caller that began it: the
// SDK makes three attempts of a few seconds each.
const loadTimeout = time.Minute

// memo keeps the answers to calls for a while. Callers that ask for the same key
// at the same time share one call; a failure is handed to those who waited for it
// and is not kept. Callers do not change what it returns.
type memo[K comparable, V any] struct {
	clock clock.PassiveClock
	ttl   time.Duration

	mu      sync.Mutex
	entries map[K]*answer[V]
}

type answer[V any] struct {
	done  chan struct{}
	at    time.Time // when the call began: the answer is at least as new
	value V
	err   error
}

func newMemo[K comparable, V any](c clock.PassiveClock, ttl time.Duration) *memo[K, V] {
	return &memo[K, V]{clock: c, ttl: ttl, entries: map[K]*answer[V]{}}
}

// get returns the kept answer, or calls load. A caller whose context ends stops
// waiting; the call goes on for the others.
func (m *memo[K, V]) get(ctx context.Context, key K, load func(context.Context) (V, error)) (V, error) {
	now := m.clock.Now()
	m.mu.Lock()
	a, ok := m.entries[key]
	if !ok || now.Sub(a.at) >= m.ttl && a.finished() {
		m.dropExpired(now)
		a = &answer[V]{done: make(chan struct{}), at: now}
		m.entries[key] = a
		go m.load(context.WithoutCancel(ctx), key, a, load)
	}
	m.mu.Unlock()

	select {
	case <-a.done:
		return a.value, a.err
	case <-ctx.Done():
		var zero V
		return zero, ctx.Err()
	}
}

func (m *memo[K, V]) load(ctx context.Context, key K, a *answer[V], load func(context.Context) (V, error)) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	a.value, a.err = load(ctx)
	if a.err != nil {
		m.mu.Lock()
		if m.entries[key] == a {
			delete(m.entries, key)
		}
		m.mu.Unlock()
	}
	close(a.done)
}

// peek returns the answer for key if there is one that is younger than age, which may
// be more than the time to live.
func (m *memo[K, V]) peek(key K, age time.Duration) (V, bool) {
	m.mu.Lock()
	a, ok := m.entries[key]
	m.mu.Unlock()
	if !ok || !a.finished() || a.err != nil || m.clock.Since(a.at) >= age {
		var zero V
		return zero, false
	}
	return a.value, true
}

// forget drops the answer for key, so that the next caller asks again.
func (m *memo[K, V]) forget(key K) {
	m.mu.Lock()
	delete(m.entries, key)
	m.mu.Unlock()
}

// clear drops all answers, so that the next callers ask again.
func (m *memo[K, V]) clear() {
	m.mu.Lock()
	clear(m.entries)
	m.mu.Unlock()
}

// dropExpired keeps the map from growing with keys that nobody asks for again.
// The caller holds the lock.
func (m *memo[K, V]) dropExpired(now time.Time) {
	for k, a := range m.entries {
		if now.Sub(a.at) >= m.ttl && a.finished() {
			delete(m.entries, k)
		}
	}
}

func (a *answer[V]) finished() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}
