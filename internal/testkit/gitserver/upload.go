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
	haves []plumbing.Hash
	// done is set when the client will name no more commits.
	done bool
	// more is set when the client named commits, or ended to.
	more bool

	multiAck, sideBand bool
}

// upload answers one request of a fetch. The conversation is stateless: a client
// repeats in each request what the server has to know.
func upload(w io.Writer, r io.Reader, store storer.Storer) error {
	req, err := readUpload(pktline.NewScanner(r))
	if err != nil {
		return err
	}
	if len(req.wants) == 0 {
		return nil
	}
	out := bufio.NewWriterSize(w, 64<<10)
	if err := answer(out, req, store); err != nil {
		return errors.Join(err, out.Flush())
	}
	return out.Flush()
}

func answer(out io.Writer, req uploadRequest, store storer.Storer) error {
	pkt := pktline.NewEncoder(out)
	g := &graph{store: store, wants: req.wants, clientShallow: setOf(req.shallows), depth: req.depth}
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
	}
	if !req.more {
		return nil
	}

	var common []plumbing.Hash
	for _, h := range req.haves {
		if store.HasEncodedObject(h) != nil {
			continue
		}
		common = append(common, h)
		switch {
		case req.multiAck:
			if err := pkt.Encodef("ACK %s common\n", h); err != nil {
				return err
			}
		case len(common) == 1:
			if err := pkt.Encodef("ACK %s\n", h); err != nil {
				return err
			}
		}
	}
	switch {
	case !req.done && (len(common) == 0 || req.multiAck), req.done && len(common) == 0:
		if err := pkt.Encodef("NAK\n"); err != nil {
			return err
		}
	case req.done && req.multiAck:
		if err := pkt.Encodef("ACK %s\n", common[len(common)-1]); err != nil {
			return err
		}
	}
	if !req.done {
		return nil
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

func readUpload(in *pktline.Scanner) (uploadRequest, error) {
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
		default:
			return req, fmt.Errorf("%q is not supported", verb)
		}
	}
	for in.Scan() {
		req.more = true
		line := strings.TrimSuffix(string(in.Bytes()), "\n")
		if id, ok := strings.CutPrefix(line, "have "); ok {
			req.haves = append(req.haves, plumbing.NewHash(id))
		} else if line == "done" {
			req.done = true
			break
		} else if line != "" {
			return req, fmt.Errorf("%q is not supported", line)
		}
	}
	if err := in.Err(); err != nil {
		return req, fmt.Errorf("read the request: %w", err)
	}
	return req, nil
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
