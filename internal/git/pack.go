package git

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/storage/memory"
)

// unpack reads a pack into a store. It goes over the pack once without keeping
// anything, adding up what the objects claim to inflate to, and unpacks only
// what stays within the limits: a few kilobytes can claim gigabytes.
func unpack(ctx context.Context, r io.Reader, limits Limits, store *memory.Storage) error {
	var pack segments
	n, err := pack.fill(io.LimitReader(r, limits.PackBytes+1))
	if err != nil {
		return err
	}
	if n > limits.PackBytes {
		return fmt.Errorf("%w: the pack is larger than %d bytes", errLimit, limits.PackBytes)
	}
	if err := measure(ctx, pack.reader(), limits); err != nil {
		return err
	}
	parser, err := packfile.NewParserWithStorage(packfile.NewScanner(pack.reader()), store)
	if err != nil {
		return err
	}
	_, err = parser.Parse()
	return err
}

// segments holds bytes whose number isn't known beforehand. A single slice would
// be copied as it grows, and for a moment take three times the memory.
type segments struct {
	parts [][]byte
	size  int64
}

// segmentBytes is the size of a segment: small beside a pack that matters, large
// beside what one read returns.
const segmentBytes = 1 << 20

func (s *segments) fill(r io.Reader) (int64, error) {
	for {
		part := make([]byte, segmentBytes)
		n := 0
		for n < len(part) {
			k, err := r.Read(part[n:])
			n += k
			if err != nil {
				s.parts, s.size = append(s.parts, part[:n]), s.size+int64(n)
				if errors.Is(err, io.EOF) {
					err = nil
				}
				return s.size, err
			}
		}
		s.parts, s.size = append(s.parts, part), s.size+int64(n)
	}
}

func (s *segments) reader() *io.SectionReader { return io.NewSectionReader(s, 0, s.size) }

// ReadAt implements io.ReaderAt.
func (s *segments) ReadAt(p []byte, at int64) (int, error) {
	n := 0
	for n < len(p) && at < s.size {
		k := copy(p[n:], s.parts[at/segmentBytes][at%segmentBytes:])
		n, at = n+k, at+int64(k)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// measure fails if the pack's objects are too many or too large.
func measure(ctx context.Context, pack io.Reader, limits Limits) error {
	scanner := packfile.NewScanner(pack)
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
