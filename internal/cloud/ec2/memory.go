package ec2

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/catalogue"
)

// memoryKey is what a node's memory depends on: the machine, and the kernel.
type memoryKey struct{ instanceType, image string }

// measured is the least memory that nodes of a kind had, and when the last that had no
// more was seen.
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
	if imageID == "" || !plausible(instanceType, bytes) {
		return
	}
	p.memory.observe(memoryKey{instanceType, imageID}, bytes, p.clock.Now())
}

// plausible says whether a node of the type can have so many bytes of memory: no more
// than its machine, and no less than half of it, of which kernel and hypervisor take
// some percent. A node that says otherwise isn't of the type.
func plausible(instanceType string, bytes int64) bool {
	t, known := catalogue.Get().Type(instanceType)
	if !known {
		return instanceType != "" && bytes > 0
	}
	return bytes >= t.MemoryMiB*mebibyte/2 && bytes <= t.MemoryMiB*mebibyte
}

// observe takes a measurement over. One that is above the least doesn't keep that in
// force: it is dropped once nothing was as small for memoryKeptFor.
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
	if at.After(had.at) && bytes <= had.bytes {
		had.at = at
	}
	l.seen[k] = had
}

// all returns what was seen and still counts at now. The version changes whenever the
// answer does.
func (l *memoryLog) all(now time.Time) (map[memoryKey]int64, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[memoryKey]int64, len(l.seen))
	for k, m := range l.seen {
		if now.Sub(m.at) >= memoryKeptFor {
			delete(l.seen, k)
			l.version++
			continue
		}
		out[k] = m.bytes
	}
	return out, l.version
}
