package gitserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// packWindow is how many neighbours an object is compared with for a delta; it
// is git's own default.
const packWindow = 10

// uploadRequest is what a fetching client asks for, as
// https://git-scm.com/docs/pack-protocol describes it.
type uploadRequest struct {
	wants []plumbing.Hash
	// shallows are the client's commits without parents.
	shallows []plumbing.Hash
	// depth is how many commits deep the client wants history; 0 means all.
	depth int
	// omit is what a partial clone leaves out.
	omit omission

	multiAck, sideBand bool
}

// omission is what a filter leaves out.
type omission uint8

const (
	omitNothing omission = iota
	omitBlobs
	omitTrees
)

// upload answers a fetch. Over HTTP every request repeats what the server has to
// know and ends early; over SSH it is one conversation.
func upload(w io.Writer, r io.Reader, store storer.Storer) error {
	in := pktline.NewScanner(r)
	req, err := readWants(in)
	if err != nil {
		return err
	}
	if len(req.wants) == 0 {
		return nil
	}
	out := bufio.NewWriterSize(w, 64<<10)
	if err := answer(out, in, req, store); err != nil {
		return errors.Join(err, out.Flush())
	}
	return out.Flush()
}

func answer(out *bufio.Writer, in *pktline.Scanner, req uploadRequest, store storer.Storer) error {
	pkt := pktline.NewEncoder(out)
	g := &graph{store: store, wants: req.wants, clientShallow: setOf(req.shallows), depth: req.depth, omit: req.omit}
	if err := g.checkWants(); err != nil {
		return err
	}
	if req.depth > 0 {
		shallow, unshallow, err := g.boundary()
		if err != nil {
			return err
		}
		for _, h := range shallow {
			if err := pkt.Encodef("shallow %s\n", h); err != nil {
				return err
			}
		}
		for _, h := range unshallow {
			if err := pkt.Encodef("unshallow %s\n", h); err != nil {
				return err
			}
		}
		if err := pkt.Flush(); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	common, done, err := negotiate(out, in, req, store)
	if err != nil || !done {
		return err
	}
	objects, err := g.objects(common)
	if err != nil {
		return err
	}
	if !req.sideBand {
		_, err := packfile.NewEncoder(out, store, false).Encode(objects, packWindow)
		return err
	}
	if _, err := packfile.NewEncoder(sideband.NewMuxer(sideband.Sideband64k, out), store, false).Encode(objects, packWindow); err != nil {
		return err
	}
	return pkt.Flush()
}

// negotiate reads what the client has, block by block, and says what of it the
// server has too, until the client is done or gone.
func negotiate(out *bufio.Writer, in *pktline.Scanner, req uploadRequest, store storer.Storer) (common []plumbing.Hash, done bool, err error) {
	pkt := pktline.NewEncoder(out)
	for {
		haves, more, done, err := readHaves(in)
		if err != nil || !more {
			return common, false, err
		}
		for _, h := range haves {
			if store.HasEncodedObject(h) != nil {
				continue
			}
			common = append(common, h)
			switch {
			case req.multiAck:
				err = pkt.Encodef("ACK %s common\n", h)
			case len(common) == 1:
				err = pkt.Encodef("ACK %s\n", h)
			}
			if err != nil {
				return nil, false, err
			}
		}
		switch {
		case !done && (len(common) == 0 || req.multiAck), done && len(common) == 0:
			err = pkt.Encodef("NAK\n")
		case done && req.multiAck:
			err = pkt.Encodef("ACK %s\n", common[len(common)-1])
		}
		if err != nil || done {
			return common, done, err
		}
		if err := out.Flush(); err != nil {
			return nil, false, err
		}
	}
}

func readWants(in *pktline.Scanner) (uploadRequest, error) {
	var req uploadRequest
	for in.Scan() {
		line := strings.TrimSuffix(string(in.Bytes()), "\n")
		if line == "" {
			break
		}
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "want":
			id, caps, _ := strings.Cut(rest, " ")
			if !plumbing.IsHash(id) {
				return req, fmt.Errorf("want %q: not an object name", id)
			}
			req.wants = append(req.wants, plumbing.NewHash(id))
			for _, c := range strings.Fields(caps) {
				switch c {
				case "multi_ack_detailed":
					req.multiAck = true
				case "side-band-64k":
					req.sideBand = true
				}
			}
		case "shallow":
			req.shallows = append(req.shallows, plumbing.NewHash(rest))
		case "deepen":
			n, err := strconv.Atoi(rest)
			if err != nil || n < 0 {
				return req, fmt.Errorf("deepen %q: not a depth", rest)
			}
			req.depth = n
		case "filter":
			switch rest {
			case "blob:none":
				req.omit = omitBlobs
			case "tree:0":
				req.omit = omitTrees
			default:
				return req, fmt.Errorf("filter %q is not supported", rest)
			}
		default:
			return req, fmt.Errorf("%q is not supported", verb)
		}
	}
	return req, readError(in)
}

// readHaves reads up to the end of a block. more is false at the end of the
// request.
func readHaves(in *pktline.Scanner) (haves []plumbing.Hash, more, done bool, err error) {
	for in.Scan() {
		more = true
		line := strings.TrimSuffix(string(in.Bytes()), "\n")
		if line == "" {
			break
		}
		if line == "done" {
			done = true
			break
		}
		id, ok := strings.CutPrefix(line, "have ")
		if !ok {
			return nil, false, false, fmt.Errorf("%q is not supported", line)
		}
		haves = append(haves, plumbing.NewHash(id))
	}
	return haves, more, done, readError(in)
}

func readError(in *pktline.Scanner) error {
	if err := in.Err(); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	return nil
}

func setOf(hashes []plumbing.Hash) map[plumbing.Hash]bool {
	set := make(map[plumbing.Hash]bool, len(hashes))
	for _, h := range hashes {
		set[h] = true
	}
	return set
}

func sortedHashes(set map[plumbing.Hash]bool) []plumbing.Hash {
	out := make([]plumbing.Hash, 0, len(set))
	for h := range set {
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b plumbing.Hash) int { return slices.Compare(a[:], b[:]) })
	return out
}
