package gitserver

import (
	"compress/gzip"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// DefaultBranch is what HEAD of a new repository points at.
const DefaultBranch = plumbing.ReferenceName("refs/heads/main")

// Config says what a server serves, and to whom.
type Config struct {
	// Dir holds the repositories, one folder NAME.git each. It must exist.
	Dir string
	// Username and Password are wanted from every client, as basic
	// authentication; the password alone is also taken as a bearer token. With
	// an empty Password nothing is wanted.
	Username, Password string
	// AutoCreate makes a repository when the first push to it arrives.
	AutoCreate bool
	// NoPartial hides that files can be left out of a fetch (filter), as servers do
	// that don't know it.
	NoPartial bool
}

// Push is one reference that a client changed.
type Push struct {
	Repo string
	Ref  plumbing.ReferenceName
	// Old and New are zero for a reference that was made or deleted.
	Old, New plumbing.Hash
}

// Server is an http.Handler that serves the repositories.
type Server struct {
	cfg Config

	mu sync.Mutex
	// locks hold one lock per repository, which a push takes.
	locks    map[string]*sync.Mutex
	watchers map[int]func(Push)
	nextID   int
}

// New returns a server.
func New(cfg Config) (*Server, error) {
	info, err := os.Stat(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("serve repositories: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("serve repositories: %s is not a folder", cfg.Dir)
	}
	return &Server{cfg: cfg, locks: map[string]*sync.Mutex{}, watchers: map[int]func(Push){}}, nil
}

// repoName is the form of a repository's name: one path element that no file
// system and no URL reads otherwise.
var repoName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`)

// Create makes an empty repository, served as /NAME.git.
func (s *Server) Create(name string) error {
	if !repoName.MatchString(name) || strings.HasSuffix(name, ".git") {
		return fmt.Errorf("create repository %q: a name is made of letters, digits, dots, dashes and underscores, without .git", name)
	}
	_, err := git.PlainInitWithOptions(s.path(name), &git.PlainInitOptions{
		Bare:        true,
		InitOptions: git.InitOptions{DefaultBranch: DefaultBranch},
	})
	if err != nil {
		return fmt.Errorf("create repository %q: %w", name, err)
	}
	return nil
}

// Open opens a repository as it is on disk.
func (s *Server) Open(name string) (*git.Repository, error) {
	repo, err := git.PlainOpen(s.path(name))
	if err != nil {
		return nil, fmt.Errorf("open repository %q: %w", name, err)
	}
	return repo, nil
}

func (s *Server) open(name string, create bool) (*git.Repository, error) {
	repo, err := s.Open(name)
	if !errors.Is(err, git.ErrRepositoryNotExists) || !create {
		return repo, err
	}
	lock := s.lock(name)
	lock.Lock()
	defer lock.Unlock()
	if err := s.Create(name); err != nil && !errors.Is(err, git.ErrRepositoryAlreadyExists) {
		return nil, err
	}
	return s.Open(name)
}

// Watch calls fn after every change that a push made, in the order of the
// changes of one repository, before the pushing client is answered.
func (s *Server) Watch(fn func(Push)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.nextID
	s.nextID++
	s.watchers[id] = fn
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, id)
	}
}

func (s *Server) notify(p Push) {
	s.mu.Lock()
	fns := make([]func(Push), 0, len(s.watchers))
	for _, id := range slices.Sorted(maps.Keys(s.watchers)) {
		fns = append(fns, s.watchers[id])
	}
	s.mu.Unlock()
	for _, fn := range fns {
		fn(p)
	}
}

func (s *Server) path(name string) string { return filepath.Join(s.cfg.Dir, name+".git") }

func (s *Server) lock(name string) *sync.Mutex {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks[name] == nil {
		s.locks[name] = &sync.Mutex{}
	}
	return s.locks[name]
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.allowed(r) {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "authentication is required", http.StatusUnauthorized)
		return
	}
	// /NAME.git/info/refs or /NAME.git/SERVICE
	first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	name := strings.TrimSuffix(first, ".git")
	if !repoName.MatchString(name) {
		http.NotFound(w, r)
		return
	}
	repo, err := s.open(name, s.cfg.AutoCreate && r.URL.Query().Get("service") == receivePack)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	switch service := r.URL.Query().Get("service"); {
	case r.Method == http.MethodGet && rest == "info/refs":
		s.advertise(w, repo, service)
	case r.Method == http.MethodPost && (rest == uploadPack || rest == receivePack):
		body, err := requestBody(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-"+rest+"-result")
		if rest == uploadPack {
			err = upload(w, body, repo.Storer)
		} else {
			err = s.receive(w, body, name, repo.Storer)
		}
		if err != nil {
			// The answer may have begun, so that only the protocol's own error
			// line can still tell the client.
			_ = pktline.NewEncoder(w).Encodef("ERR %s\n", err)
		}
	default:
		http.NotFound(w, r)
	}
}

const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// noThin asks clients for packs that are complete in themselves: go-git doesn't
// complete others.
const noThin = capability.Capability("no-thin")

func (s *Server) allowed(r *http.Request) bool {
	if s.cfg.Password == "" {
		return true
	}
	same := func(got, want string) bool { return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1 }
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(token, s.cfg.Password)
	}
	user, password, ok := r.BasicAuth()
	return ok && same(user, s.cfg.Username) && same(password, s.cfg.Password)
}

// requestBody unpacks a body that a client compressed, as git does with long
// negotiations.
func requestBody(r *http.Request) (io.Reader, error) {
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
		return r.Body, nil
	case "gzip", "x-gzip":
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, fmt.Errorf("unpack the request: %w", err)
		}
		return body, nil
	default:
		return nil, fmt.Errorf("content encoding %q is not supported", enc)
	}
}

// advertise answers info/refs: the references and what the service can do.
func (s *Server) advertise(w http.ResponseWriter, repo *git.Repository, service string) {
	if service != uploadPack && service != receivePack {
		http.Error(w, "only smart clients are served", http.StatusForbidden)
		return
	}
	refs, err := s.advertised(repo, service)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	refs.Prefix = [][]byte{[]byte("# service=" + service), pktline.Flush}
	w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
	_ = refs.Encode(w) // the client is gone if this fails
}

// advertised is what a service begins a conversation with.
func (s *Server) advertised(repo *git.Repository, service string) (*packp.AdvRefs, error) {
	caps := []capability.Capability{capability.ReportStatus, capability.DeleteRefs, capability.OFSDelta, noThin}
	if service == uploadPack {
		caps = []capability.Capability{capability.MultiACKDetailed, capability.Sideband64k, capability.OFSDelta, capability.Shallow}
		if !s.cfg.NoPartial {
			caps = append(caps, capability.Filter, capability.AllowReachableSHA1InWant)
		}
	}
	refs, err := references(repo)
	if err != nil {
		return nil, err
	}
	if service == receivePack {
		refs.Head = nil
	}
	for _, c := range caps {
		if err := refs.Capabilities.Set(c); err != nil {
			return nil, err
		}
	}
	return refs, refs.Capabilities.Set(capability.Agent, "coppice-testkit")
}

// references lists a repository's references, annotated tags with what they name.
func references(repo *git.Repository) (*packp.AdvRefs, error) {
	adv := packp.NewAdvRefs()
	iter, err := repo.References()
	if err != nil {
		return nil, fmt.Errorf("list references: %w", err)
	}
	err = iter.ForEach(func(ref *plumbing.Reference) error {
		if ref.Type() != plumbing.HashReference {
			return nil
		}
		adv.References[ref.Name().String()] = ref.Hash()
		tag, err := repo.TagObject(ref.Hash())
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		for tag.TargetType == plumbing.TagObject {
			if tag, err = object.GetTag(repo.Storer, tag.Target); err != nil {
				return err
			}
		}
		adv.Peeled[ref.Name().String()] = tag.Target
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list references: %w", err)
	}
	head, err := repo.Storer.Reference(plumbing.HEAD)
	if err != nil {
		return nil, fmt.Errorf("read HEAD: %w", err)
	}
	target, born := adv.References[head.Target().String()]
	if !born {
		return adv, nil
	}
	adv.Head = &target
	if err := adv.AddReference(head); err != nil {
		return nil, fmt.Errorf("read HEAD: %w", err)
	}
	return adv, nil
}
