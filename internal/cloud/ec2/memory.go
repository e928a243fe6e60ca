package ec2

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/catalogue"
)

// memoryKey is what a node's memory depends on: the machine, and the kernel.
type memoryKey struct{ instanceType, image string }

// measured is the least memory that nodes of a kind had, and when the last was seen.
type measured struct {
	bytes int64
	at    time.Time
}

// memoryLog holds the memory in bytes that nodes turned out to have.
type memoryLog struct {
	mu      sync.Mutex
	seen    map[memoryKey]measured
	version uint64
}

// Observe is as in cloud.Provider. Of several nodes the one with the least counts:
// the next may be like it. Only memory is taken over; everything else follows from
// the type exactly.
func (p *Provider) Observe(instanceType, imageID string, capacity corev1.ResourceList) {
	// Whole MiB, so that the few KiB by which instances differ change nothing.
	bytes := capacity.Memory().Value() / mebibyte * mebibyte
	if bytes <= 0 || imageID == "" {
		return
	}
	if t, ok := catalogue.Get().Type(instanceType); ok && bytes > t.MemoryMiB*mebibyte {
		return // a node can't have more than its machine: this isn't one
	}
	p.memory.observe(memoryKey{instanceType, imageID}, bytes, p.clock.Now())
}

func (l *memoryLog) observe(k memoryKey, bytes int64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[memoryKey]measured{}
	}
	had, known := l.seen[k]
	if !known || bytes < had.bytes {
		had.bytes = bytes
		l.version++
	}
	if at.After(had.at) {
		had.at = at
	}
	l.seen[k] = had
}

// all returns what was seen. The version changes whenever the answer does.
func (l *memoryLog) all() (map[memoryKey]int64, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[memoryKey]int64, len(l.seen))
	for k, m := range l.seen {
		out[k] = m.bytes
	}
	return out, l.version
}
