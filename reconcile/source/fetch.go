package source

import (
	"context"
	"fmt"
	"io/fs"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// resolve asks where the ref points. It ends the part change if that is what
// the last attempt was about.
func (p *pass) resolve(ctx context.Context) error {
	ctx, cancel := p.timeout(ctx)
	defer cancel()
	var err error
	if p.src.Spec.SourceRef != nil {
		err = p.resolveArtifact(ctx)
	} else {
		err = p.resolveRef(ctx)
	}
	if err != nil {
		return err
	}
	p.try.revision = p.head.String()
	p.memory.nextPoll = p.clock.Now().Add(spread(p.interval(), p.jitter()))
	before := p.memory.done
	before.delivery = p.try.delivery
	if p.try == before && !p.reopened {
		p.memory.done = p.try
		return errNothingNew
	}
	return nil
}

func (p *pass) resolveRef(ctx context.Context) error {
	var ref git.Ref
	if r := p.src.Spec.Ref; r != nil {
		ref = git.Ref{Branch: r.Branch, Tag: r.Tag, SemVer: r.SemVer, Name: r.Name, Commit: r.Commit}
	}
	head, err := p.remote.Head(ctx, ref)
	if err != nil {
		return gitFailure(err)
	}
	p.head = head
	return nil
}

// origin is what is known of where a tree came from.
type origin struct {
	// signer says who signed it, "" if nobody asked.
	signer string
	// parents are the hashes of the commits that it was made from.
	parents []string
}

// tree gets a commit's files. With verify, it must be signed as the source wants
// before anything is made of it.
func (p *pass) tree(ctx context.Context, rev git.Revision, verify bool) (fs.FS, origin, error) {
	if p.src.Spec.SourceRef != nil {
		tree, err := p.artifactTree(ctx, rev)
		return tree, origin{}, err
	}
	commit, err := p.remote.FetchFolder(ctx, rev, p.src.Spec.Path)
	if err != nil {
		return nil, origin{}, gitFailure(err)
	}
	from := origin{parents: commit.Parents()}
	if want := p.src.Spec.Verify; verify && want != nil {
		if from.signer, err = commit.Verify(p.ring, mode(want), p.clock.Now()); err != nil {
			return nil, origin{}, gitFailure(err)
		}
	}
	tree, err := commit.FS(p.src.Spec.Path)
	if err != nil {
		return nil, origin{}, gitFailure(err)
	}
	return tree, from, nil
}

func mode(v *coppice.Verification) git.VerifyMode {
	if v.Mode == "" {
		return git.VerifyHead
	}
	return git.VerifyMode(v.Mode)
}

// fetchHead gets and evaluates what the ref names. What was found not to be signed
// isn't fetched again, unless somebody asked.
func (p *pass) fetchHead(ctx context.Context, asked bool) (evaluated, error) {
	id := identify(p.key(p.head), p.head.Tag, p.try.content)
	if p.memory.unsigned.id == id && !asked {
		return evaluated{}, p.memory.unsigned.err
	}
	e, err := p.fetch(ctx, p.head, true)
	if err != nil {
		if classified(err, "").reason == reasonVerification {
			p.memory.unsigned = unsigned{id, err}
		}
		return evaluated{}, err
	}
	e.content = p.try.content
	return e, nil
}

// unsigned is a commit or tag that nobody who counts signed, and what was said of it.
type unsigned struct {
	id  string
	err error
}

// verified keeps the condition SourceVerified in line with what came of the head.
func (p *pass) verified(signer string, err error) {
	c := conditions{list: p.src.Status.Conditions, generation: p.src.Generation, now: p.clock.Now()}
	switch {
	case p.src.Spec.Verify == nil:
		c.drop(coppice.ConditionVerified)
	case err != nil && classified(err, "").reason == reasonVerification:
		c.set(coppice.ConditionVerified, metav1.ConditionFalse, reasonVerification, clip(err.Error(), messageBytes))
	case err != nil:
		// Nothing was found out about the signature.
	default:
		c.set(coppice.ConditionVerified, metav1.ConditionTrue, reasonVerified, clip(capital(signer), messageBytes))
	}
	p.src.Status.Conditions = c.list
}

func capital(s string) string {
	if s != "" && s[0] >= 'a' && s[0] <= 'z' {
		return string(s[0]-'a'+'A') + s[1:]
	}
	return s
}

// descend refuses a commit that doesn't continue the one that is applied, unless
// somebody accepted it by name: a forced push may undo what others reviewed.
func (p *pass) descend(ctx context.Context) error {
	applied, err := git.ParseRevision(p.src.Status.LastAppliedRevision)
	ref := p.src.Spec.Ref
	switch {
	case err != nil, p.src.Spec.SourceRef != nil, ref != nil && ref.Commit != "":
		return nil
	case applied.Ref != p.head.Ref, applied.Hash == p.head.Hash, slices.Contains(p.memory.head.from.parents, applied.Hash):
		// Another branch or tag was asked for, or there is nothing to ask.
		return nil
	}
	if question := (lineage{p.src.Spec.URL, p.head.Hash, applied.Hash}); p.memory.asked != question {
		timed, cancel := p.timeout(ctx)
		defer cancel()
		answer, err := p.remote.Ancestry(timed, p.head.Hash, applied.Hash)
		if err != nil {
			return gitFailure(err)
		}
		p.memory.asked, p.memory.ancestry = question, answer
	}
	if p.memory.ancestry == git.Descends {
		return nil
	}
	what := fmt.Sprintf("%s does not descend from %.12s, which is applied: the history was rewritten, or the address is another repository's", p.head.Short(), applied.Hash)
	if p.memory.ancestry == git.TooFar {
		what = fmt.Sprintf("it can't be told whether %s descends from %.12s, which is applied: there is too much between them", p.head.Short(), applied.Hash)
	}
	key := p.head.Hash + " " + applied.Hash
	switch {
	case p.src.Spec.HistoryRewrite == coppice.RewriteFollow:
		p.warn(reasonRewritten, key, "%s; it is taken because spec.historyRewrite is follow", what)
		return nil
	case accepted(p.src) == p.head.Hash:
		p.warn(reasonRewritten, key, "%s; it is taken because the annotation %s names it", what, coppice.AcceptRewriteAnnotation)
		return nil
	}
	return terminally(reasonRewritten, fmt.Errorf("%s. What is live stays. To take the commit, set the annotation %s: %s on this NodeSource; or put the branch back", what, coppice.AcceptRewriteAnnotation, p.head.Hash))
}

// lineage is a question to Remote.Ancestry.
type lineage struct{ url, head, base string }

// accepted is the commit that is taken although it doesn't continue the applied one.
func accepted(o client.Object) string { return o.GetAnnotations()[coppice.AcceptRewriteAnnotation] }
