package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// pushSpacing is the least time between two reports of a source: a branch is
// for people to read, and a fight over a field shall not fill it.
const pushSpacing = 30 * time.Second

// report brings the report on the branch in line with what drift found. It makes
// one commit when that changed, and none otherwise.
func (p *pass) report(ctx context.Context) error {
	back := p.src.Spec.WriteBack
	if back == nil || p.src.Status.LastAppliedRevision == "" || p.result.drift != nil {
		return nil
	}
	if rev, err := git.ParseRevision(p.src.Status.LastAttemptedRevision); err == nil && strings.TrimPrefix(rev.Ref, "refs/heads/") == back.Branch {
		return terminally(reasonReportBranch, fmt.Errorf("spec.writeBack.branch is the branch %q that is read; choose another", back.Branch))
	}
	report := plan.Report{
		Cluster: p.clusterName(), Source: p.src.Namespace + "/" + p.src.Name,
		Repository: git.RedactURL(p.src.Spec.URL), Path: p.src.Spec.Path,
		Differences: p.memory.diffs,
	}
	file := path.Join(back.Path, pathPart(report.Cluster), p.src.Namespace, p.src.Name)
	var content, page []byte
	if len(report.Differences) > 0 {
		content, page = report.Encode(), report.Markdown()
	}
	id := identify(p.src.Spec.URL, back.Branch, file, string(content))
	if id == p.memory.reported {
		return nil
	}
	if next := p.memory.pushed.Add(min(pushSpacing, p.interval())); p.clock.Now().Before(next) {
		p.wake(next)
		return nil
	}
	// The revision is in the message and not in the file: another commit in Git
	// doesn't make another drift.
	message, err := report.Message(p.src.Status.LastAppliedRevision, back.Message, back.SkipCI)
	if err != nil {
		return terminally(reasonReportFailed, fmt.Errorf("spec.writeBack.message: %w", err))
	}
	signer, err := p.signer(ctx, back.SigningKeyRef)
	if err != nil {
		return err
	}
	pushed, err := p.push(ctx, back, git.Write{
		Branch:  back.Branch,
		Files:   map[string][]byte{file + ".yaml": content, file + ".md": page},
		Seed:    map[string][]byte{"README.md": []byte(readme)},
		Author:  git.Identity{Name: back.Author.Name, Email: back.Author.Email},
		Message: message,
		Now:     p.clock.Now(),
		Signer:  signer,
	})
	if err != nil {
		return err
	}
	p.memory.reported = id
	if pushed.Changed {
		p.memory.pushed = p.clock.Now()
		p.src.Status.LastPushCommit = pushed.Hash
		p.info(reasonReportWritten, pushed.Hash, "commit %.12s on branch %s: %s", pushed.Hash, back.Branch, plan.Summary(report.Differences))
	}
	if d := p.src.Status.Drift; d != nil && (pushed.Changed || d.ReportCommit == "") {
		d.ReportCommit = pushed.Hash
	}
	return nil
}

// signer reads the key that signs reports, nil if none is asked for.
func (p *pass) signer(ctx context.Context, ref *coppice.SecretReference) (*git.Signer, error) {
	if ref == nil {
		return nil, nil
	}
	data, err := p.secret(ctx, ref.Name, "git.asc and passphrase, or identity and password")
	if err != nil {
		return nil, err
	}
	p.keep(data)
	var signer *git.Signer
	switch {
	case len(data["git.asc"]) > 0:
		signer, err = git.NewPGPSigner(data["git.asc"], data["passphrase"])
	case len(data["identity"]) > 0:
		signer, err = git.NewSSHSigner(data["identity"], data["password"])
	default:
		err = errors.New("it has neither git.asc nor identity")
	}
	if err != nil {
		return nil, terminally(reasonSecret, fmt.Errorf("sign with Secret %q: %w", ref.Name, err))
	}
	return signer, nil
}

// readme is the first commit's other file, for whoever comes upon the branch.
const readme = `# Reports

Coppice writes this branch. It holds a page and a YAML file for each source
whose cluster differs from Git, and nothing else; both go when its drift is
settled. Nothing is read from here.
`

func (p *pass) push(ctx context.Context, back *coppice.WriteBack, w git.Write) (git.Pushed, error) {
	remote, err := p.writer(ctx, back)
	if err != nil {
		return git.Pushed{}, err
	}
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	pushed, err := remote.Push(ctx, w, git.Retry{Jitter: p.jitter})
	return pushed, pushFailure(reasonReportFailed, w.Branch, err)
}

// writer is the repository with the credential that pushes.
func (p *pass) writer(ctx context.Context, back *coppice.WriteBack) (git.Remote, error) {
	ref := back.SecretRef
	if ref == nil {
		ref = p.src.Spec.SecretRef
	}
	return p.remoteWith(ctx, ref)
}

func pushFailure(reason, branch string, err error) error {
	switch {
	case errors.Is(err, git.ErrRejected):
		return terminally(reason, fmt.Errorf("%w; let the credential of spec.writeBack push to branch %s, or choose a branch that isn't protected", err, branch))
	case err != nil:
		return gitFailure(err)
	}
	return nil
}

// clusterName is what reports call this cluster: what the source says, or else
// what the controller was told.
func (p *pass) clusterName() string {
	if name := p.memory.applied.cluster; name != "" {
		return name
	}
	return p.cluster
}

// pathPart makes a name safe as one element of a path.
func pathPart(s string) string {
	clean := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
			return c
		}
		return '-'
	}, s)
	return strings.TrimLeft(clean, ".")
}

func identify(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// wake asks for a pass at a time, or earlier.
func (p *pass) wake(at time.Time) {
	if p.result.wake.IsZero() || at.Before(p.result.wake) {
		p.result.wake = at
	}
}
