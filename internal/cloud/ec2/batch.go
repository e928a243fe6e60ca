package ec2

import (
	"context"
	"sync"
	"time"
)

// batcher turns items that arrive within a short window into one call. The first
// item opens the window; a full batch goes out at once.
type batcher[T any] struct {
	window time.Duration
	max    int
	// do acts on all items and returns one error for each, in their order.
	do func(ctx context.Context, items []T) []error

	mu   sync.Mutex
	open *batch[T]
}

type batch[T any] struct {
	items []T
	errs  []error
	timer *time.Timer
	done  chan struct{}
}

// add puts item into the open batch and waits for its outcome. A caller whose
// context ends stops waiting; its item still goes out.
func (b *batcher[T]) add(ctx context.Context, item T) error {
	b.mu.Lock()
	cur := b.open
	if cur == nil {
		cur = &batch[T]{done: make(chan struct{})}
		b.open = cur
		cur.timer = time.AfterFunc(b.window, func() { b.close(context.WithoutCancel(ctx), cur) })
	}
	slot := len(cur.items)
	cur.items = append(cur.items, item)
	full := len(cur.items) == b.max
	if full {
		b.open = nil
	}
	b.mu.Unlock()
	if full && cur.timer.Stop() {
		go b.close(context.WithoutCancel(ctx), cur)
	}

	select {
	case <-cur.done:
		return cur.errs[slot]
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *batcher[T]) close(ctx context.Context, cur *batch[T]) {
	b.mu.Lock()
	if b.open == cur {
		b.open = nil
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	cur.errs = b.do(ctx, cur.items)
	close(cur.done)
}
