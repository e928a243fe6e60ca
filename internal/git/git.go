// Package git reads a commit as a file system and writes single files back as
// commits. It never touches the disk and never runs a git binary.
//
// Reading is two steps, so that a poll that finds nothing new costs one
// request: Remote.Head asks where a ref points, Remote.Fetch gets that commit
// without its history, and Commit.FS shows a folder of it as an fs.FS. What a
// server sends is not trusted: packs are bounded before they are unpacked, and
// a tree that holds symbolic links or submodules is refused, because a reader
// that follows them can be led out of the repository.
//
// Writing is Remote.Push: it puts the wanted content of some files onto the tip
// of a branch, commits only if that changes the tree, and starts over from the
// new tip when somebody else was faster.
//
// A commit is trusted as far as its reader asks: Commit.Verify checks who signed
// it, and Remote.Ancestry whether it continues the history of another.
//
// Credentials are held by Auth alone and reach no error and no log: every error
// of this package is an *Error, whose text is cleaned when it is made.
package git

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// Remote is a repository that is reached over HTTP, HTTPS or SSH. It is a value
// and holds no connection; its methods may be called concurrently.
type Remote struct {
	// URL is absolute: http or https without a user, or ssh, where a user may be
	// named (git is meant otherwise). It carries no password.
	URL  string
	Auth Auth
	// Proxy is what HTTP and HTTPS go through; SSH doesn't.
	Proxy Proxy
	// CABundle holds PEM certificates to trust beside the system's.
	CABundle []byte
	// Limits bounds what is read; zero fields mean the defaults.
	Limits Limits
}

// Auth is how a request proves who sends it: over HTTP basic (Username and
// Password) or bearer (Token), not both, and a certificate beside either; over SSH
// by Identity. The zero value sends nothing.
type Auth struct {
	Username string
	Password string
	Token    string
	// ClientCert and ClientKey are PEM, for servers that want a certificate. Either
	// needs the other.
	ClientCert, ClientKey string
	// Identity is a private key for SSH, in OpenSSH's or PEM format; Passphrase
	// opens it if it is encrypted.
	Identity, Passphrase string
	// KnownHosts says which key an SSH server must show, in the format of OpenSSH's
	// file of that name. SSH is not spoken without it.
	KnownHosts string
}

// String hides the content, so that printing a Remote is harmless.
func (a Auth) String() string {
	if a == (Auth{}) {
		return "none"
	}
	return "***"
}

// GoString hides the content from %#v.
func (a Auth) GoString() string { return "git.Auth{" + a.String() + "}" }

// MarshalText hides the content from encoders.
func (a Auth) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Limits bounds what one operation reads from a server.
type Limits struct {
	// PackBytes is the size of a pack as it travels, DefaultPackBytes if zero.
	PackBytes int64
	// TreeBytes is the size of all objects of a commit once unpacked,
	// DefaultTreeBytes if zero.
	TreeBytes int64
	// Files is how many objects a commit may have and how many entries a folder
	// that is read may have, DefaultFiles if zero.
	Files int
}

// The defaults hold a configuration repository of a few thousand clusters with
// room to spare (1,000 NodePools are about 1 MB of CUE). A pack and what it
// unpacks to are in memory together, and the collector lets the heap grow to twice
// what is in use, so that a fetch at both limits stays below 200 MiB.
const (
	DefaultPackBytes = 32 << 20
	DefaultTreeBytes = 64 << 20
	DefaultFiles     = 100_000
)

func (l Limits) withDefaults() Limits {
	if l.PackBytes == 0 {
		l.PackBytes = DefaultPackBytes
	}
	if l.TreeBytes == 0 {
		l.TreeBytes = DefaultTreeBytes
	}
	if l.Files == 0 {
		l.Files = DefaultFiles
	}
	return l
}

// Ref says which commit is meant. If several fields are set, the later one in
// the order below wins; if none is, the repository's default branch is meant.
type Ref struct {
	Branch string
	Tag    string
	// SemVer is a range of versions, as in >=1.2.0 <2: the tag that names the
	// highest version in it is meant. Pre-releases count only if the range names one.
	SemVer string
	// Name is a full ref name, as in refs/pull/420/head.
	Name string
	// Commit is a full hash of 40 hexadecimal digits.
	Commit string
}

// branchPrefix and tagPrefix are where Git keeps branches and tags.
const (
	branchPrefix = "refs/heads/"
	tagPrefix    = "refs/tags/"
)

// target returns the full ref name and the short name that revisions begin
// with. Both are empty when nothing is named.
func (r Ref) target() (name, short string) {
	switch {
	case r.Name != "":
		return r.Name, r.Name
	case r.Tag != "":
		return tagPrefix + r.Tag, r.Tag
	case r.Branch != "":
		return branchPrefix + r.Branch, r.Branch
	}
	return "", ""
}

// Revision is a ref and the commit that it points to.
type Revision struct {
	// Ref is the branch's or tag's short name, a full ref name, or "".
	Ref string
	// Hash is the commit's, 40 hexadecimal digits. (An OCI artifact's revision is the
	// SHA-256 of its manifest, 64 digits; nothing is fetched by such a one.)
	Hash string
	// Tag is the hash of the annotated tag that led to the commit, "" if none did.
	// It is no part of the revision's text.
	Tag string
}

// String returns Flux's form: main@sha1:<hash>, or sha1:<hash> without a ref.
func (r Revision) String() string {
	text := "sha1:" + r.Hash
	if len(r.Hash) == 64 {
		text = "sha256:" + r.Hash
	}
	if r.Ref == "" {
		return text
	}
	return r.Ref + "@" + text
}

// Short returns the ref and the first twelve digits, for people.
func (r Revision) Short() string {
	text := r.String()
	return text[:len(text)-max(len(r.Hash)-12, 0)]
}

// ParseRevision reads what Revision.String returned.
func ParseRevision(s string) (Revision, error) {
	i := strings.LastIndex(s, ":")
	name, hash := s[:max(i, 0)], s[i+1:]
	ref, algorithm := "", name
	if at := strings.LastIndex(name, "@"); at >= 0 {
		ref, algorithm = name[:at], name[at+1:]
		if ref == "" {
			return Revision{}, fmt.Errorf("%q is no revision", s)
		}
	}
	if algorithm == "sha1" && isHash(hash) || algorithm == "sha256" && isHex(hash, 64) {
		return Revision{Ref: ref, Hash: hash}, nil
	}
	return Revision{}, fmt.Errorf("%q is no revision", s)
}

func isHash(s string) bool { return isHex(s, 40) }

func isHex(s string, digits int) bool {
	return len(s) == digits && strings.Trim(s, "0123456789abcdef") == ""
}

// Identity is who wrote a commit.
type Identity struct {
	Name  string
	Email string
}

// Commit is a commit whose tree is in memory. It never changes.
type Commit struct {
	Revision  Revision
	Author    Identity
	Committer Identity
	// When is the committer's time.
	When time.Time
	// Subject is the first line of the message.
	Subject string

	// parents are the hashes of the commits that it was made from.
	parents []plumbing.Hash
	tree    *object.Tree
	store   storer.EncodedObjectStorer
	limits  Limits
	remote  string
}
