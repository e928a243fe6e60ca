package forge

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Forge is one repository on a forge. Its errors are *Error, *LimitedError or those
// of the network.
type Forge interface {
	// Limits are what the forge takes.
	Limits() Limits
	// Self is our own name as comments' authors have it, or "" where the forge
	// doesn't tell.
	Self(ctx context.Context) (string, error)
	// Pulls lists pull requests, the latest changed first where they are closed. Their
	// commits may be named by the beginning of the hash.
	Pulls(ctx context.Context, q Query) ([]Pull, error)
	// Pull returns one, with whole hashes and its MergeBase.
	Pull(ctx context.Context, number int) (Pull, error)
	// Propose opens a pull request between two branches of the repository. Amend gives
	// one another title and text, ClosePull closes one without a merge.
	Propose(ctx context.Context, p Proposal) (Pull, error)
	Amend(ctx context.Context, number int, title, body string) error
	ClosePull(ctx context.Context, number int) error
	// Contains reports whether a commit is another one or an ancestor of it.
	Contains(ctx context.Context, ancestor, descendant string) (bool, error)
	// Comments are all comments of a pull request, the oldest first.
	Comments(ctx context.Context, number int) ([]Comment, error)
	// AddComment, EditComment and DeleteComment change one. Deleting one that isn't
	// there is no error.
	AddComment(ctx context.Context, number int, body string) (Comment, error)
	EditComment(ctx context.Context, number int, id int64, body string) error
	DeleteComment(ctx context.Context, number int, id int64) error
	// SetStatus makes a commit's status of that context what is given. It writes
	// nothing if it is so already.
	SetStatus(ctx context.Context, sha string, s Status) error
	// Sign is a signature of a text that only who has our token, or our App's key, can
	// make, for this repository.
	Sign(text string) string
}

// Limits are what a forge takes.
type Limits struct {
	// Comment is how many bytes a comment may have.
	Comment int
	// Description is how many bytes the description of a status may have.
	Description int
	// PlainText is set where comments show HTML as text: nothing can be folded, and
	// markers have to be hidden otherwise.
	PlainText bool
}

// Query says which pull requests to list.
type Query struct {
	// Base is the branch that they are to be merged into; "" for any.
	Base string
	// Head is the branch of the repository itself that they are to be merged from; ""
	// for any.
	Head string
	// Closed lists closed ones instead of open ones: the latest, and those alone that
	// were merged where the forge can tell, or with a Head all.
	Closed bool
}

// Pull is a pull request.
type Pull struct {
	Number int
	Title  string
	// Body is its text.
	Body   string
	Author string
	URL    string
	Draft  bool
	Labels []string
	// Head and Base are the commits, HeadRef and BaseRef the branches. MergeBase is
	// the last commit that both have; Forge.Pull alone gives it.
	Head, HeadRef, Base, BaseRef, MergeBase string
	// Ref is the reference, in the repository that it is to be merged into, that
	// names Head, or "" if the forge keeps none.
	Ref string
	// Fork is set when the head isn't a branch of the repository itself, or nobody
	// knows whose it is: its author may not have a right to see anything of ours.
	Fork bool
	// Open, or else Merged with the commit that came of it, or closed.
	Open, Merged bool
	MergeCommit  string
	Updated      time.Time
}

// SameCommit reports whether two hashes are of one commit, where either may be its beginning.
func SameCommit(a, b string) bool {
	return a != "" && b != "" && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}

// Comment is a comment of a pull request.
type Comment struct {
	ID     int64
	Author string
	Body   string
}

// State is what a status says.
type State string

// States of a commit.
const (
	Pending State = "pending"
	Success State = "success"
	Failure State = "failure"
)

// Status is what a commit is marked with.
type Status struct {
	// Context names what judged it, as in coppice/prod-eu/coppice/fleet.
	Context     string
	State       State
	Description string
	// URL leads to more; "" for nothing.
	URL string
	// Summary and Annotations are shown where the forge has room for them, which is a
	// check run of a GitHub App.
	Summary     string
	Annotations []Annotation
}

// Annotation is a remark at a line.
type Annotation struct {
	// File is relative to the repository's root.
	File string
	// Line counts from 1.
	Line int
	// Level is failure, warning or notice.
	Level          string
	Title, Message string
}

// Kinds are the forges that New knows.
func Kinds() []string { return []string{"github", "gitlab", "gitea", "forgejo", "bitbucket"} }

// Config says which repository to speak in, and as whom.
type Config struct {
	// URL is the repository's, over HTTP or HTTPS, as for cloning.
	URL string
	// Kind is one of Kinds; "" for what the host's name says.
	Kind string
	// API is the root of the forge's API, "" for where it usually is.
	API string
	// Token is sent with each request. With Username it is a password.
	Username, Token string
	// App is a GitHub App to be instead of a user.
	App *App
	// Self is what Forge.Self returns where GitHub or Gitea refuse to tell, as they do
	// for the token of a job.
	Self string
	// Client sends the requests.
	Client Client
}

// New returns a forge. Its errors are the user's.
func New(c Config) (Forge, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("%q is no URL of a repository over HTTPS; give one as in https://github.com/owner/name", redactURL(c.URL))
	}
	for _, address := range []string{c.URL, c.API} {
		if at, err := url.Parse(address); err != nil || at.Scheme == "http" && !loopback(at.Hostname()) {
			return nil, fmt.Errorf("%s would get a token that anybody on the way can read; give a URL with https", redactURL(address))
		}
	}
	name := strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")
	kind := c.Kind
	if kind == "" {
		if kind = kindOf(u.Hostname()); kind == "" {
			return nil, fmt.Errorf("which forge serves %s isn't known; say one of %s", u.Hostname(), strings.Join(Kinds(), ", "))
		}
	}
	if !slices.Contains(Kinds(), kind) {
		return nil, fmt.Errorf("there is no forge %q; give one of %s", kind, strings.Join(Kinds(), ", "))
	}
	parts := strings.Split(name, "/")
	if len(parts) < 2 || slices.Contains(parts, "") || slices.Contains(parts, "..") || len(parts) > 2 && kind == "bitbucket" {
		return nil, fmt.Errorf("%s doesn't lead to a repository; give its URL as for cloning", redactURL(c.URL))
	}
	if c.App != nil && kind != "github" {
		return nil, fmt.Errorf("a GitHub App has no place on %s; give a token", kind)
	}
	c.Client.secrets = []string{c.Token}
	c.Client.key = []byte(strings.Join([]string{"marker", u.Host, name, c.Token}, "\n"))
	if c.App != nil {
		c.Client.key = append(c.Client.key, x509.MarshalPKCS1PrivateKey(c.App.Key)...)
	}
	api := strings.TrimSuffix(c.API, "/")
	root := func(prefix []string) string {
		return u.Scheme + "://" + strings.Join(append([]string{u.Host}, prefix...), "/")
	}
	// A forge may be served below a path of its host; a repository's name is the last
	// two parts, but on GitLab groups have subgroups.
	n := len(parts)
	switch kind {
	case "gitlab":
		if api == "" {
			api = root(nil) + "/api/v4"
		}
		if at, below := strings.CutPrefix(api, root(nil)+"/"); below {
			name = strings.TrimPrefix(name, strings.TrimSuffix(at, "api/v4"))
		}
		return newGitLab(c, api, name), nil
	case "bitbucket":
		if api == "" {
			api = "https://api.bitbucket.org/2.0"
		}
		return newBitbucket(c, api, name), nil
	case "github":
		if api == "" {
			if api = root(parts[:n-2]) + "/api/v3"; u.Hostname() == "github.com" {
				api = "https://api.github.com"
			}
		}
	default:
		if api == "" {
			api = root(parts[:n-2]) + "/api/v1"
		}
	}
	return newHub(c, kind, api, strings.Join(parts[n-2:], "/")), nil
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// kindOf is the forge that a public host is known to run.
func kindOf(host string) string {
	switch strings.ToLower(host) {
	case "github.com":
		return "github"
	case "gitlab.com":
		return "gitlab"
	case "bitbucket.org":
		return "bitbucket"
	case "codeberg.org":
		return "forgejo"
	case "gitea.com":
		return "gitea"
	}
	return ""
}

// redactURL is a URL without what may be a password.
func redactURL(s string) string {
	if before, after, ok := strings.Cut(s, "://"); ok {
		host, path, _ := strings.Cut(after, "/")
		if i := strings.LastIndex(host, "@"); i >= 0 {
			return before + "://***@" + host[i+1:] + "/" + path
		}
	}
	return s
}

// cut shortens text to a number of bytes, at a rune's end, with an ellipsis.
func cut(s string, n int) string {
	const ellipsis = "…"
	if len(s) <= n {
		return s
	}
	n -= len(ellipsis)
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:max(n, 0)] + ellipsis
}
