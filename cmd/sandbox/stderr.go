package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
)

// The API server's etcd client logs every cancelled request to the process's
// standard error, from a logger that is made before main and can't be reached.
// So that is given a file of its own, and what the sandbox has to say goes to a
// copy of the original.

// ownStderr returns a standard error that stays the terminal's.
func ownStderr() *os.File {
	out, err := duplicate(os.Stderr)
	if err != nil {
		return os.Stderr
	}
	return out
}

// divertStderr sends what the components write to standard error to a file.
// A crash is still told on own.
func divertStderr(path string, own *os.File) error {
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open a log: %w", err)
	}
	err = debug.SetCrashOutput(own, debug.CrashOptions{})
	if err == nil {
		err = replace(os.Stderr, log)
	}
	if err = errors.Join(err, log.Close()); err != nil {
		return fmt.Errorf("divert the components' log: %w", err)
	}
	return nil
}
