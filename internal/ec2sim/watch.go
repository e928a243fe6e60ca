package ec2sim

import (
	"slices"
	"sync"
)

// watcher delivers states to one function, from one goroutine, in order.
type watcher struct {
	fn func(Instance)

	mu      sync.Mutex
	wake    *sync.Cond
	waiting []Instance
	stopped bool
}

// Watch calls fn with every later change of an instance's State or Rebooting, in order, from
// one goroutine and with nothing locked, so fn may call the simulator and may
// take its time. No call begins after stop has returned.
func (s *Server) Watch(fn func(Instance)) (stop func()) {
	w := &watcher{fn: fn}
	w.wake = sync.NewCond(&w.mu)
	s.mu.Lock()
	s.watchers = append(s.watchers, w)
	closed := s.closed
	s.mu.Unlock()
	if closed {
		w.stop()
	}
	go w.run()
	return func() {
		w.stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watchers = slices.DeleteFunc(s.watchers, func(x *watcher) bool { return x == w })
	}
}

func (w *watcher) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.wake.Signal()
}

func (w *watcher) send(i Instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, i)
	w.wake.Signal()
}

func (w *watcher) run() {
	for {
		w.mu.Lock()
		for len(w.waiting) == 0 && !w.stopped {
			w.wake.Wait()
		}
		if w.stopped {
			w.mu.Unlock()
			return
		}
		next := w.waiting[0]
		w.waiting = w.waiting[1:]
		w.mu.Unlock()
		w.fn(next)
	}
}
