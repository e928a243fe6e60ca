package git

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"net/http"
	"path"
	"strings"
)

// Artifact is a tree that somebody else fetched, as Flux's source-controller offers
// it: a gzipped tar archive behind an address in the cluster.
type Artifact struct {
	URL string
	// Digest is the archive's, as in sha256:9f86d0...
	Digest string
	// Limits bounds what is read: PackBytes the archive, TreeBytes and Files what is
	// in it. Zero fields mean the defaults.
	Limits Limits
}

// Get downloads the archive, checks its digest before anything is made of it, and
// shows a folder of it as Commit.FS shows one of a commit.
func (a Artifact) Get(ctx context.Context, dir string) (fs.FS, error) {
	clean, err := cleanDir(dir)
	if err != nil {
		return nil, a.fail(ErrTree, err.Error())
	}
	sum, want, err := digester(a.Digest)
	if err != nil {
		return nil, a.fail(ErrDigest, err.Error())
	}
	limits := a.Limits.withDefaults()
	var archive segments
	if err := a.download(ctx, &archive, limits.PackBytes); err != nil {
		return nil, err
	}
	if _, err := io.Copy(sum, archive.reader()); err != nil {
		return nil, a.fail(nil, err.Error())
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return nil, a.fail(ErrDigest, fmt.Sprintf("it is %.12s… and should be %.12s…", got, want))
	}
	files, err := untar(ctx, archive.reader(), limits)
	var refused *refusedEntry
	switch {
	case errors.As(err, &refused):
		return nil, a.fail(ErrTree, refusedText([]string{refused.Error()}))
	case errors.Is(err, errLimit):
		_, detail, _ := strings.Cut(err.Error(), errLimit.Error()+": ")
		return nil, a.fail(ErrTooLarge, detail)
	case ctx.Err() != nil:
		return nil, a.fail(ctx.Err(), "")
	case err != nil:
		return nil, a.fail(ErrTree, "the archive can't be read: "+err.Error())
	}
	tree, err := files.in(clean)
	if err != nil {
		return nil, a.fail(ErrTree, err.Error())
	}
	return tree, nil
}

func (a Artifact) fail(kind error, detail string) error {
	return &Error{Op: "fetch", URL: RedactURL(a.URL), Kind: kind, Detail: Remote{}.redact(detail)}
}

func digester(digest string) (hash.Hash, string, error) {
	name, want, _ := strings.Cut(digest, ":")
	var sum hash.Hash
	switch name {
	case "sha256":
		sum = sha256.New()
	case "sha384":
		sum = sha512.New384()
	case "sha512":
		sum = sha512.New()
	default:
		return nil, "", fmt.Errorf("the artifact's digest %q is neither of SHA-256, SHA-384 and SHA-512", digest)
	}
	if raw, err := hex.DecodeString(want); err != nil || len(raw) != sum.Size() {
		return nil, "", fmt.Errorf("the artifact's digest %q is malformed", digest)
	}
	return sum, strings.ToLower(want), nil
}

func (a Artifact) download(ctx context.Context, into *segments, limit int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil || req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.User != nil {
		return a.fail(ErrURL, "")
	}
	res, err := http.DefaultTransport.RoundTrip(req) // which follows no redirects
	if err != nil {
		return Remote{URL: a.URL}.fail(ctx, "fetch", err)
	}
	defer func() { _ = res.Body.Close() }()
	switch {
	case res.StatusCode == http.StatusNotFound:
		// It was collected meanwhile; a newer one is about to be announced.
		return a.fail(nil, "the artifact is gone")
	case res.StatusCode != http.StatusOK:
		return a.fail(nil, fmt.Sprintf("the server answered with status %d %s", res.StatusCode, http.StatusText(res.StatusCode)))
	}
	n, err := into.fill(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return Remote{URL: a.URL}.fail(ctx, "fetch", err)
	}
	if n > limit {
		return a.fail(ErrTooLarge, fmt.Sprintf("the archive is larger than %d bytes; leave files out with spec.ignore of the source", limit))
	}
	return nil
}

// refusedEntry is an entry that an archive may not have.
type refusedEntry struct{ name, what string }

// Error returns the entry and what is wrong with it.
func (e *refusedEntry) Error() string { return fmt.Sprintf("%q (%s)", e.name, e.what) }

// untar reads an archive whose digest was checked.
func untar(ctx context.Context, r io.Reader, limits Limits) (*archived, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	out := newArchived(limits.Files)
	total, entries := int64(0), 0
	for in := tar.NewReader(zip); ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if entries++; entries > limits.Files {
			return nil, fmt.Errorf("%w: more than %d files and folders", errLimit, limits.Files)
		}
		switch head.Typeflag {
		case tar.TypeXGlobalHeader:
			continue
		case tar.TypeReg, tar.TypeDir:
		case tar.TypeSymlink, tar.TypeLink:
			return nil, &refusedEntry{head.Name, "link"}
		default:
			return nil, &refusedEntry{head.Name, "neither file nor folder"}
		}
		name := strings.TrimSuffix(strings.TrimPrefix(head.Name, "./"), "/")
		if name == "" || name == "." {
			continue
		}
		if !plainPath(name) {
			return nil, &refusedEntry{head.Name, "malformed name"}
		}
		if head.Typeflag == tar.TypeDir {
			if err := out.folder(name); err != nil {
				return nil, err
			}
			continue
		}
		if head.Size > limits.TreeBytes-total {
			return nil, fmt.Errorf("%w: more than %d bytes once unpacked", errLimit, limits.TreeBytes)
		}
		total += head.Size
		data := make([]byte, head.Size)
		if _, err := io.ReadFull(in, data); err != nil {
			return nil, err
		}
		if err := out.file(name, data, head.Mode&0o111 != 0); err != nil {
			return nil, err
		}
	}
}

// plainPath reports whether a path stays inside and has plain elements alone.
func plainPath(name string) bool {
	if !fs.ValidPath(name) || strings.Count(name, "/") > maxDepth {
		return false
	}
	for _, part := range strings.Split(name, "/") {
		if !plainName(part) {
			return false
		}
	}
	return true
}

// archived collects the files of an archive, limit at most with the folders that they
// are in, whether the archive names those or not.
type archived struct {
	nodes map[string]*node
	limit int
}

func newArchived(limit int) *archived {
	return &archived{nodes: map[string]*node{".": {name: ".", folder: true}}, limit: limit}
}

// add puts a file or folder into the folder that it is in.
func (a *archived) add(name string, n *node) error {
	if len(a.nodes) > a.limit {
		return fmt.Errorf("%w: more than %d files and folders", errLimit, a.limit)
	}
	above := a.nodes[path.Dir(name)]
	a.nodes[name] = n
	above.children = append(above.children, n)
	return nil
}

// folder makes a folder and those above it.
func (a *archived) folder(name string) error {
	if n, ok := a.nodes[name]; ok {
		if !n.folder {
			return &refusedEntry{name, "both file and folder"}
		}
		return nil
	}
	if err := a.folder(path.Dir(name)); err != nil {
		return err
	}
	return a.add(name, &node{name: path.Base(name), folder: true})
}

func (a *archived) file(name string, data []byte, exec bool) error {
	if _, ok := a.nodes[name]; ok {
		return &refusedEntry{name, "twice"}
	}
	if err := a.folder(path.Dir(name)); err != nil {
		return err
	}
	return a.add(name, &node{name: path.Base(name), size: int64(len(data)), data: data, exec: exec})
}

// in shows one folder.
func (a *archived) in(dir string) (fs.FS, error) {
	if n, ok := a.nodes[dir]; !ok || !n.folder {
		return nil, fmt.Errorf("there is no folder %q in the artifact", dir)
	}
	t := &treeFS{nodes: map[string]*node{}}
	prefix := dir + "/"
	if dir == "." {
		prefix = ""
	}
	for name, n := range a.nodes {
		n.sort()
		if name == dir {
			t.nodes["."] = &node{name: ".", folder: true, children: n.children}
		} else if rest, ok := strings.CutPrefix(name, prefix); ok {
			t.nodes[rest] = n
		}
	}
	return t, nil
}

// Files shows files, by their paths, as a file system like that of a commit.
func Files(files map[string][]byte) (fs.FS, error) {
	a := newArchived(math.MaxInt)
	for name, data := range files {
		if !plainPath(name) {
			return nil, &refusedEntry{name, "malformed name"}
		}
		if err := a.file(name, data, false); err != nil {
			return nil, err
		}
	}
	return a.in(".")
}
