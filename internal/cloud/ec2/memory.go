package ec2

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/catalogue"
)

// memoryKey is what a node's memory depends on: the machine, and the kernel.
type memoryKey struct{ instanceType, image string }

// memoryLog holds the memory in bytes that nodes turned out to have.
type memoryLog struct {
	mu      sync.Mutex
	seen    map[memoryKey]int64
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
	p.memory.observe(memoryKey{instanceType, imageID}, bytes)
}

func (l *memoryLog) observe(k memoryKey, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[memoryKey]int64{}
	}
	if had, known := l.seen[k]; !known || bytes < had {
		l.seen[k] = bytes
		l.version++
	}
}

// all returns what was seen. The version changes whenever the answer does.
func (l *memoryLog) all() (map[memoryKey]int64, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.seen), l.version
}
