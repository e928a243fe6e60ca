package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/adopt"
	"github.com/coppice-dev/coppice/internal/forge"
	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

const (
	// adoptRelook is how long a pull request is taken for what it was when it was last
	// looked at, if the drift is the same: somebody may have closed it.
	adoptRelook = 10 * time.Minute
	// adoptTimeout bounds one look: an evaluation of each cluster of the tree, twice.
	adoptTimeout = 5 * time.Minute
	// adoptTrailer identifies in a commit's message the edits that it makes.
	adoptTrailer = "Coppice-Adopts: "
)

// adoption is what earlier passes know of the pull request that adopts what is live.
// Losing it costs a few questions to the forge: what was proposed is written in the
// pull requests themselves.
type adoption struct {
	// key names all that the last look rested on, at is when it was.
	key string
	at  time.Time
	// url is that of the open one, "" if there is none.
	url string
	// limited is until when the forge wants to be left alone.
	limited time.Time
}

// adopt keeps one pull request that makes Git say what is live, as long as something
// differs, and takes it back when nothing does.
func (p *pass) adopt(ctx context.Context) error {
	back := p.src.Spec.WriteBack
	d := p.src.Status.Drift
	if back == nil || back.Adopt == nil || p.src.Spec.PullRequests == nil {
		if d != nil {
			d.PullRequest = ""
		}
		return nil
	}
	applied, err := git.ParseRevision(p.src.Status.LastAppliedRevision)
	if err != nil || p.result.drift != nil || p.memory.applied.key != p.key(applied) ||
		p.src.Status.LastAttemptedRevision != p.src.Status.LastAppliedRevision {
		// A commit that isn't applied yet may be about the same fields.
		return nil
	}
	m := &p.memory.adoption
	diffs := p.adoptable()
	now := p.clock.Now()
	key := identify(p.memory.applied.key, fmt.Sprint(p.src.Generation), request(p.src), string(plan.Report{Differences: diffs}.Encode()))
	next := m.at.Add(min(pushSpacing, p.interval()))
	same := key == m.key
	switch {
	case same && (len(diffs) == 0 || now.Before(m.at.Add(adoptRelook))):
		next = time.Time{}
	case m.limited.After(now):
		return waiting(reasonAdoptFailed, m.limited.Sub(now), errForgeLimited)
	case !now.Before(next):
		ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
		defer cancel()
		url, err := p.propose(ctx, applied, diffs, same)
		if err != nil {
			return p.forgeFailure(err)
		}
		*m, next = adoption{key: key, at: now, url: url}, time.Time{}
	}
	if !next.IsZero() {
		p.wake(next)
	}
	if d != nil {
		d.PullRequest = m.url
	}
	return nil
}

var errForgeLimited = errors.New("the forge's rate limit is reached")

// forgeFailure classifies an error of package forge.
func (p *pass) forgeFailure(err error) error {
	var known *failure
	var limited *forge.LimitedError
	var answer *forge.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &limited):
		p.memory.adoption.limited = limited.Until
		return waiting(reasonAdoptFailed, max(limited.Until.Sub(p.clock.Now()), soonest), errForgeLimited)
	case forge.Denied(err):
		return terminally(reasonAdoptFailed, fmt.Errorf("%w; let the token of spec.pullRequests open and close pull requests", err))
	case errors.As(err, &answer) && answer.Status < 500:
		return terminally(reasonAdoptFailed, err)
	}
	return retrying(reasonAdoptFailed, err)
}

// adoptable are the differences that Git could say: fields of objects that are there,
// and that aren't put back anyway.
func (p *pass) adoptable() []plan.Difference {
	corrected := map[plan.ID]bool{}
	for _, o := range p.memory.applied.objects {
		corrected[planID(o.Object)] = p.mode(o) == coppice.DriftCorrect
	}
	return slices.DeleteFunc(slices.Clone(p.memory.diffs), func(d plan.Difference) bool { return d.Field == "" || corrected[d.Object] })
}

// propose brings the pull request in line with differences, and returns the address of
// the one that is open then. same says that they are those of the last look, so that
// nothing is to be done about one that is as it was.
func (p *pass) propose(ctx context.Context, applied git.Revision, diffs []plan.Difference, same bool) (string, error) {
	f, err := p.openForge(ctx)
	if err != nil {
		return "", err
	}
	back := p.src.Spec.WriteBack
	who := forge.Label{Cluster: p.clusterName(), Source: p.src.Namespace + "/" + p.src.Name}
	q := forge.Query{Base: Branch(p.src), Head: path.Join(back.Adopt.Branch, pathPart(who.Cluster), p.src.Namespace, p.src.Name)}
	if q.Head == q.Base {
		return "", terminally(reasonAdoptFailed, fmt.Errorf("spec.writeBack.adopt would push to %s, which pull requests are merged into; choose another branch", q.Base))
	}
	all, err := f.Pulls(ctx, q)
	if err != nil {
		return "", fmt.Errorf("list pull requests: %w", err)
	}
	var open *forge.Pull
	for i := range all {
		if label, _, ok := forge.ReadLabel(all[i].Body); ok && label.Cluster == who.Cluster && label.Source == who.Source {
			open = &all[i]
			break
		}
	}
	switch {
	case open == nil && len(all) > 0:
		p.leaveOut(all[0].URL, "%s is of our branch %s, but not ours; it is left alone", all[0].URL, q.Head)
		return "", nil
	case open != nil && same && open.URL == p.memory.adoption.url:
		return open.URL, nil
	case len(diffs) == 0:
		return "", p.takeBack(ctx, f, open, "Nothing differs from Git any more.")
	}
	declined, err := p.declined(ctx, f, q)
	if err != nil {
		return "", err
	}
	e, err := p.edits(ctx, applied, diffs, declined)
	if err != nil {
		return "", err
	}
	if len(e.files) == 0 {
		if len(e.left) > 0 {
			p.leaveOut(strings.Join(e.left, " "), "%s", enumerate("nothing is proposed for adoption: ", e.left, "; ", noteBytes))
		}
		return "", p.takeBack(ctx, f, open, "Nothing of it is left to be adopted.")
	}
	who.Proposes = e.ids
	return p.write(ctx, f, applied, q, open, who, e)
}

// leaveOut tells that something isn't proposed, once: a process that starts anew finds
// what the last one told.
func (p *pass) leaveOut(key, format string, args ...any) {
	if p.memory.adoption.key != "" || changedDrift(p.read.Status.Drift, p.src.Status.Drift) {
		p.info(reasonAdoptLeft, key, format, args...)
	}
}

// openForge opens the forge of spec.pullRequests.
func (p *pass) openForge(ctx context.Context) (forge.Forge, error) {
	data, err := p.secret(ctx, p.src.Spec.PullRequests.SecretRef.Name, "token, or githubAppID and githubAppPrivateKey")
	if err != nil {
		return nil, err
	}
	p.keep(data)
	f, err := Forge(p.src, data, p.forge)
	if err != nil {
		return nil, terminally(reasonSecret, err)
	}
	return f, nil
}

// declined identifies what pull requests that aren't open any more have proposed: people
// said no to it, or said yes and took it back.
func (p *pass) declined(ctx context.Context, f forge.Forge, q forge.Query) (map[string]bool, error) {
	q.Closed = true
	closed, err := f.Pulls(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list closed pull requests: %w", err)
	}
	out := map[string]bool{}
	for _, c := range closed {
		label, _, _ := forge.ReadLabel(c.Body)
		for _, id := range label.Proposes {
			out[id] = true
		}
	}
	return out, nil
}

// edits are what makes a tree hold what is live.
type edits struct {
	// files are the edited ones, by their paths in the repository.
	files map[string][]byte
	// done are the differences that they settle, ids identifies the fields.
	done []plan.Difference
	ids  []string
	// left says what can't be adopted.
	left []string
}

func (p *pass) edits(ctx context.Context, applied git.Revision, diffs []plan.Difference, declined map[string]bool) (edits, error) {
	var out edits
	changes, err := p.changes(ctx, diffs)
	if err != nil {
		return out, kubeFailure(reasonAdoptFailed, err)
	}
	ids := map[string]string{}
	secrets := p.known()
	changes = slices.DeleteFunc(changes, func(c adopt.Change) bool {
		text, id := valueOf(c)
		ids[named(c)] = id
		if plan.Hide(text, secrets) != text {
			out.left = append(out.left, named(c)+": it holds a secret")
			return true
		}
		return declined[id]
	})
	if len(changes) == 0 {
		return out, nil
	}
	if err := p.connect(ctx); err != nil {
		return out, err
	}
	timed, cancel := p.timeout(ctx)
	defer cancel()
	tree, _, err := p.tree(timed, applied, false)
	if err != nil {
		return out, err
	}
	clusters := []string{""}
	if p.memory.applied.cluster != "" {
		if clusters, err = render.Clusters(tree); err != nil {
			return out, terminally(reasonAdoptFailed, err)
		}
	}
	made, err := adopt.Adopt(ctx, tree, clusters, changes, adopt.Evaluate(p.evaluate))
	if err != nil {
		return out, retrying(reasonEvaluation, err)
	}
	for _, f := range made.Refused {
		out.left = append(out.left, plan.Hide(p.line(f), secrets))
	}
	out.files = map[string][]byte{}
	for name, text := range made.Files {
		if was, err := fs.ReadFile(tree, name); err != nil || string(was) != string(text) {
			out.files[path.Join(p.src.Spec.Path, name)] = text
		}
	}
	for _, c := range made.Done {
		out.ids = append(out.ids, ids[named(c)])
		field := plan.PathString(c.Path)
		for _, d := range diffs {
			if d.Object == planID(c.Object) && (d.Field == field || strings.HasPrefix(d.Field, field+".") || strings.HasPrefix(d.Field, field+"[")) {
				out.done = append(out.done, d)
			}
		}
	}
	slices.Sort(out.ids)
	return out, nil
}

// changes are the fields that differ with their live values.
func (p *pass) changes(ctx context.Context, diffs []plan.Difference) ([]adopt.Change, error) {
	differs := map[plan.ID]bool{}
	for _, d := range diffs {
		differs[d.Object] = true
	}
	var out []adopt.Change
	for _, o := range p.memory.applied.objects {
		if !differs[planID(o.Object)] {
			continue
		}
		now, err := p.applier.Look(ctx, o.object)
		if err != nil {
			return nil, err
		}
		if now.Live == nil {
			continue
		}
		observed := plan.Observed{ID: planID(o.Object), Git: o.Value, Live: now.Live.Object, Want: now.Want.Object, Judge: p.judge(o)}
		for _, c := range plan.FieldChanges(observed) {
			out = append(out, adopt.Change{Cluster: p.memory.applied.cluster, Object: o.Object, FieldChange: c})
		}
	}
	return out, nil
}

func named(c adopt.Change) string { return c.Object.ID() + " " + plan.PathString(c.Path) }

// valueOf is the live value as text, and what identifies the change from Git's to it.
func valueOf(c adopt.Change) (text, id string) {
	git, _ := plan.ValueAt(c.Object.Value, c.Path)
	data, err := json.Marshal([]any{git, c.Live})
	if err != nil {
		panic(fmt.Sprintf("source: %s is no JSON value: %v", named(c), err))
	}
	live, _ := json.Marshal(c.Live)
	if s, ok := c.Live.(string); ok {
		live = []byte(s)
	}
	return string(live), identify(named(c), string(data))[:16]
}

// write brings branch and pull request in line with edits, and returns the address of
// the latter.
func (p *pass) write(ctx context.Context, f forge.Forge, applied git.Revision, q forge.Query, open *forge.Pull, who forge.Label, e edits) (string, error) {
	back := p.src.Spec.WriteBack
	report := plan.Report{Cluster: who.Cluster, Source: who.Source, Differences: e.done}
	limits := f.Limits()
	title, text, message := report.Proposal(e.left, limits.Comment-len(who.Line(limits)))
	secrets := p.known()
	title, text, message = plan.Hide(title, secrets), plan.Hide(text, secrets), plan.Hide(message, secrets)
	stamp := stampOf(e.files)

	remote, err := p.writer(ctx, back)
	if err != nil {
		return "", err
	}
	timed, cancel := p.timeout(ctx)
	defer cancel()
	tip, err := remote.Tip(timed, q.Head)
	if err != nil {
		return "", gitFailure(err)
	}
	author := git.Identity{Name: back.Author.Name, Email: back.Author.Email}
	mine := tip.Author == author && tip.Committer == author && len(tip.Parents) == 1 &&
		strings.Contains(tip.Message, "\n"+adoptTrailer) && strings.Contains(tip.Message, "\nCoppice-Source: "+who.Source+"\n")
	switch {
	case tip.Hash != "" && !mine:
		p.leaveOut(tip.Hash, "branch %s has a commit of somebody else and is left alone; delete it to have the drift proposed anew", q.Head)
		if open != nil {
			return open.URL, nil
		}
		return "", nil
	case tip.Hash == "" || !strings.Contains(tip.Message, "\n"+adoptTrailer+stamp+"\n"):
		signer, err := p.signer(ctx, back.SigningKeyRef)
		if err != nil {
			return "", err
		}
		_, err = remote.Rebuild(timed, git.Write{
			Branch: q.Head, Files: e.files, Author: author, Now: p.clock.Now(), Signer: signer,
			Message: message + "\n" + report.Trailers(applied.String()) + adoptTrailer + stamp + "\n",
		}, applied.Hash, tip.Hash)
		if err := pushFailure(reasonAdoptFailed, q.Head, err); err != nil {
			return "", err
		}
	}
	who.Key = identify(title, text, strings.Join(who.Proposes, " "))
	body := who.Line(limits) + "\n" + text
	if open != nil {
		if label, _, _ := forge.ReadLabel(open.Body); label.Key != who.Key {
			if err := f.Amend(ctx, open.Number, title, body); err != nil {
				return "", fmt.Errorf("change pull request %d: %w", open.Number, err)
			}
			p.info(reasonProposed, who.Key, "%s is brought up to date: %s", open.URL, title)
		}
		return open.URL, nil
	}
	made, err := f.Propose(ctx, forge.Proposal{Head: q.Head, Base: q.Base, Title: title, Body: body})
	if err != nil {
		return "", fmt.Errorf("open a pull request: %w", err)
	}
	p.info(reasonProposed, who.Key, "%s is opened: %s", made.URL, title)
	return made.URL, nil
}

// stampOf identifies edited files.
func stampOf(files map[string][]byte) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		parts = append(parts, name, string(files[name]))
	}
	return identify(parts...)
}

// takeBack closes a pull request that has nothing to say any more, nil for none. It
// proposes nothing from then on: the same drift may come again.
func (p *pass) takeBack(ctx context.Context, f forge.Forge, open *forge.Pull, why string) error {
	if open == nil {
		return nil
	}
	if label, rest, _ := forge.ReadLabel(open.Body); len(label.Proposes) > 0 {
		label.Proposes, label.Key = nil, "closed"
		if err := f.Amend(ctx, open.Number, open.Title, label.Line(f.Limits())+"\n**"+why+" Closed.**\n\n"+rest); err != nil {
			return fmt.Errorf("change pull request %d: %w", open.Number, err)
		}
	}
	if err := f.ClosePull(ctx, open.Number); err != nil {
		return fmt.Errorf("close pull request %d: %w", open.Number, err)
	}
	p.info(reasonWithdrawn, open.URL+why, "%s is closed: %s", open.URL, kube.OneLine(why))
	return nil
}
