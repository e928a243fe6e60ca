package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// parentPoll is how often the parent process is looked at. Nothing portable tells
// of its end.
const parentPoll = 250 * time.Millisecond

// errParentGone is why a sandbox ends whose parent ended.
var errParentGone = errors.New("the parent process has ended")

// untilStopped returns a context that ends with a signal to stop or with the
// parent process, so that a sandbox is never left behind by a test or a script
// that was killed. The cause says which it was.
func untilStopped(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	parent := os.Getppid()
	go func() {
		tick := time.NewTicker(parentPoll)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-signals:
				cancel(fmt.Errorf("received %s", s))
			case <-tick.C:
				if os.Getppid() != parent {
					cancel(errParentGone)
				}
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		signal.Stop(signals)
	}
}

// makeDataDir returns the folder for a sandbox's data and what removes it. Without
// a wish it is a temporary one; a folder that was asked for stays.
func makeDataDir(wish string) (dir string, remove func() error, err error) {
	if wish == "" {
		if dir, err = os.MkdirTemp("", "coppice-sandbox-"); err != nil {
			return "", nil, fmt.Errorf("make a folder for the data: %w", err)
		}
		return dir, func() error { return removeAll(dir) }, nil
	}
	if err := os.MkdirAll(wish, 0o700); err != nil {
		return "", nil, fmt.Errorf("make the data folder: %w", err)
	}
	entries, err := os.ReadDir(wish)
	if err != nil {
		return "", nil, fmt.Errorf("read the data folder: %w", err)
	}
	if len(entries) > 0 {
		return "", nil, usageError{fmt.Errorf("%s is not empty: a sandbox starts from nothing, so give it a new folder", wish)}
	}
	return wish, func() error { return nil }, nil
}

// removeTries is enough for a component that is slow to end to stop writing.
const removeTries = 20

// removeAll removes a folder in which a component may be writing its last file.
func removeAll(dir string) error {
	var err error
	for range removeTries {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("remove the data: %w", err)
}
