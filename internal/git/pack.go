package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/storage/memory"
)

// unpack reads a pack into memory. It goes over the pack once without keeping
// anything, adding up what the objects claim to inflate to, and unpacks only
// what stays within the limits: a few kilobytes can claim gigabytes.
func unpack(ctx context.Context, r io.Reader, limits Limits) (*memory.Storage, error) {
	var pack bytes.Buffer
	n, err := pack.ReadFrom(io.LimitReader(r, limits.PackBytes+1))
	if err != nil {
		return nil, err
	}
	if n > limits.PackBytes {
		return nil, fmt.Errorf("%w: the pack is larger than %d bytes", errLimit, limits.PackBytes)
	}
	if err := measure(ctx, pack.Bytes(), limits); err != nil {
		return nil, err
	}
	store := memory.NewStorage()
	parser, err := packfile.NewParserWithStorage(packfile.NewScanner(bytes.NewReader(pack.Bytes())), store)
	if err != nil {
		return nil, err
	}
	if _, err := parser.Parse(); err != nil {
		return nil, err
	}
	return store, nil
}

// measure fails if the pack's objects are too many or too large.
func measure(ctx context.Context, pack []byte, limits Limits) error {
	scanner := packfile.NewScanner(bytes.NewReader(pack))
	_, count, err := scanner.Header()
	if err != nil {
		return err
	}
	if int64(count) > int64(limits.Files) {
		return fmt.Errorf("%w: %d objects, and %d are read at most", errLimit, count, limits.Files)
	}
	var total int64
	add := func(size int64) error {
		if size < 0 || size > limits.TreeBytes-total {
			return fmt.Errorf("%w: more than %d bytes once unpacked", errLimit, limits.TreeBytes)
		}
		total += size
		return nil
	}
	for range count {
		if err := ctx.Err(); err != nil {
			return err
		}
		head, err := scanner.NextObjectHeader()
		if err != nil {
			return err
		}
		// The scanner refuses an object that inflates to more than it claims.
		if err := add(head.Length); err != nil {
			return err
		}
		var front headWriter
		if _, _, err := scanner.NextObject(&front); err != nil {
			return err
		}
		if head.Type == plumbing.OFSDeltaObject || head.Type == plumbing.REFDeltaObject {
			size, err := deltaTarget(front.kept())
			if err != nil {
				return err
			}
			if err := add(size); err != nil {
				return err
			}
		}
	}
	return nil
}

// headWriter keeps the first bytes that are written to it: enough for the two
// numbers, of ten bytes at most, that a delta begins with.
type headWriter struct {
	buf [20]byte
	n   int
}

// Write implements io.Writer.
func (w *headWriter) Write(p []byte) (int, error) {
	w.n += copy(w.buf[w.n:], p)
	return len(p), nil
}

func (w *headWriter) kept() []byte { return w.buf[:w.n] }

// deltaTarget returns the size of the object that a delta makes: the second of
// the two base-128 numbers that it begins with.
func deltaTarget(delta []byte) (int64, error) {
	var size uint64
	for range 2 {
		size = 0
		for shift := uint(0); ; shift += 7 {
			if len(delta) == 0 || shift > 56 {
				return 0, errors.New("the pack holds a malformed delta")
			}
			b := delta[0]
			delta = delta[1:]
			size |= uint64(b&0x7f) << shift
			if b&0x80 == 0 {
				break
			}
		}
	}
	return int64(size), nil
}
