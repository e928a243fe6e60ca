package gitserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// flushOnly is the body of the probe by which git learns whether it is let in
// before it sends a large pack.
const flushOnly = "0000"

// receive answers a push.
func (s *Server) receive(w io.Writer, r io.Reader, name string, store storer.Storer) error {
	in := bufio.NewReader(r)
	if head, _ := in.Peek(len(flushOnly) + 1); string(head) == flushOnly {
		return nil
	}
	req := packp.NewReferenceUpdateRequest()
	if err := req.Decode(in); err != nil {
		return fmt.Errorf("read the push: %w", err)
	}
	defer func() { _, _ = io.Copy(io.Discard, in) }()

	lock := s.lock(name)
	lock.Lock()
	defer lock.Unlock()

	report := packp.NewReportStatus()
	report.UnpackStatus = "ok"
	if err := unpack(in, req.Commands, store); err != nil {
		report.UnpackStatus = err.Error()
	}
	for _, cmd := range req.Commands {
		status := "unpacker error"
		if report.UnpackStatus == "ok" {
			status = "ok"
			if err := update(store, cmd); err != nil {
				status = err.Error()
			} else {
				s.notify(Push{Repo: name, Ref: cmd.Name, Old: cmd.Old, New: cmd.New})
			}
		}
		report.CommandStatuses = append(report.CommandStatuses, &packp.CommandStatus{ReferenceName: cmd.Name, Status: status})
	}
	if !req.Capabilities.Supports(capability.ReportStatus) {
		return nil
	}
	return report.Encode(w)
}

// unpack stores the objects that follow the commands, if any do.
func unpack(in io.Reader, cmds []*packp.Command, store storer.Storer) error {
	deletes := true
	for _, cmd := range cmds {
		deletes = deletes && cmd.Action() == packp.Delete
	}
	if deletes {
		return nil
	}
	err := packfile.UpdateObjectStorage(store, in)
	if err != nil && !errors.Is(err, packfile.ErrEmptyPackfile) {
		return fmt.Errorf("unpack: %w", err)
	}
	return nil
}

// update moves one reference, if it still is what the client believes it to be.
func update(store storer.Storer, cmd *packp.Command) error {
	if err := cmd.Name.Validate(); err != nil {
		return err
	}
	current := plumbing.ZeroHash
	ref, err := store.Reference(cmd.Name)
	switch {
	case err == nil:
		current = ref.Hash()
	case !errors.Is(err, plumbing.ErrReferenceNotFound):
		return err
	}
	if current != cmd.Old {
		return errors.New("fetch first: the reference has moved")
	}
	if cmd.Action() == packp.Delete {
		return store.RemoveReference(cmd.Name)
	}
	if err := store.HasEncodedObject(cmd.New); err != nil {
		return errors.New("missing necessary objects")
	}
	return store.SetReference(plumbing.NewHashReference(cmd.Name, cmd.New))
}
