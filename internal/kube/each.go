package kube

import "sync"

// parallel is how many requests Each has under way at a time: enough to hide the
// latency of an API server, few enough for its fair queues.
const parallel = 16

// Each calls fn with 0 to n-1, several at a time, and returns the error of each call.
func Each(n int, fn func(i int) error) []error {
	errs := make([]error, n)
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = fn(i)
		})
	}
	wg.Wait()
	return errs
}
