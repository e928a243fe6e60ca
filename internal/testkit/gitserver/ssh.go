package gitserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"golang.org/x/crypto/ssh"
)

// SSHConfig says whom a server lets in over SSH, and by which key it is known.
type SSHConfig struct {
	HostKeys []ssh.Signer
	// Authorized are the keys that may read and write; nobody else may do anything.
	Authorized []ssh.PublicKey
}

// ServeSSH serves the same repositories over SSH to the connections of a listener,
// as /NAME.git for any user name, until the listener is closed. stop closes it and
// every connection, and waits for their ends.
func (s *Server) ServeSSH(ln net.Listener, cfg SSHConfig) (stop func()) {
	conf := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		for _, known := range cfg.Authorized {
			if bytes.Equal(known.Marshal(), key.Marshal()) {
				return nil, nil
			}
		}
		return nil, errors.New("unknown key")
	}}
	for _, key := range cfg.HostKeys {
		conf.AddHostKey(key)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			wg.Go(func() {
				s.serveConn(conn, conf)
				_ = conn.Close()
				mu.Lock()
				delete(open, conn)
				mu.Unlock()
			})
		}
	})
	return func() {
		_ = ln.Close()
		mu.Lock()
		for conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	}
}

func (s *Server) serveConn(conn net.Conn, conf *ssh.ServerConfig) {
	c, chans, reqs, err := ssh.NewServerConn(conn, conf)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(reqs)
	var wg sync.WaitGroup
	for offered := range chans {
		if offered.ChannelType() != "session" {
			_ = offered.Reject(ssh.UnknownChannelType, "only sessions are served")
			continue
		}
		ch, reqs, err := offered.Accept()
		if err != nil {
			continue
		}
		wg.Go(func() { s.serveChannel(ch, reqs) })
	}
	_ = c.Close()
	wg.Wait()
}

// serveChannel waits for the command of a channel and runs it.
func (s *Server) serveChannel(ch ssh.Channel, reqs <-chan *ssh.Request) {
	defer func() { _ = ch.Close() }()
	for req := range reqs {
		if req.Type != "exec" {
			// Git's client offers environment variables, which nothing here reads.
			if req.WantReply {
				_ = req.Reply(req.Type == "env", nil)
			}
			continue
		}
		var cmd struct{ Line string }
		if err := ssh.Unmarshal(req.Payload, &cmd); err != nil {
			_ = req.Reply(false, nil)
			return
		}
		_ = req.Reply(true, nil)
		go ssh.DiscardRequests(reqs)
		status := uint32(0)
		if err := s.exec(ch, cmd.Line); err != nil {
			status = 128 // git's own, for what can't be served
			_, _ = fmt.Fprintf(ch.Stderr(), "fatal: %s\n", err)
		}
		_ = ch.CloseWrite()
		_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
		return
	}
}

// exec runs git-upload-pack 'PATH' or git-receive-pack 'PATH'.
func (s *Server) exec(ch io.ReadWriter, line string) error {
	service, arg, _ := strings.Cut(line, " ")
	if service != uploadPack && service != receivePack {
		return fmt.Errorf("%q is not served", service)
	}
	name := strings.TrimSuffix(strings.Trim(strings.Trim(arg, "'"), "/"), ".git")
	if !repoName.MatchString(name) {
		return fmt.Errorf("%s does not appear to be a git repository", arg)
	}
	repo, err := s.open(name, s.cfg.AutoCreate && service == receivePack)
	if err != nil {
		return fmt.Errorf("%s does not appear to be a git repository", arg)
	}
	refs, err := s.advertised(repo, service)
	if err != nil {
		return err
	}
	if err := refs.Encode(ch); err != nil {
		return err
	}
	if service == receivePack {
		err = s.receive(ch, ch, name, repo.Storer)
	} else {
		err = upload(ch, ch, repo.Storer)
	}
	if err != nil {
		_ = pktline.NewEncoder(ch).Encodef("ERR %s\n", err)
	}
	return err
}
