package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apitypes "k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/testkit/await"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	sourceName = "fleet"
	secretName = "fleet-git"
	// editor is the field manager of a person's kubectl edit.
	editor = "kubectl-edit"
	// pool is the NodePool of the example.
	pool = "default"
)

// makeRepository is step 2.
func makeRepository(ctx context.Context, s *scene) error {
	if err := s.stack.Git.Create(repoName); err != nil {
		return err
	}
	var err error
	if s.author, err = newAuthor(s.stack.Endpoints); err != nil {
		return err
	}
	if err := s.author.add(filepath.Join(s.cfg.Examples, "single-cluster")); err != nil {
		return err
	}
	if _, err := s.author.push(ctx, "Declare the nodes of a first cluster"); err != nil {
		return err
	}
	log, err := history(s.stack.Git, mainBranch)
	if err != nil {
		return err
	}
	s.story.say("%s pushed examples/single-cluster to %s", s.author.name, s.stack.Endpoints.CloneURL(repoName))
	s.story.detail("%s", strings.Join(log, "\n"))
	s.story.fact("%s.git with %d commit", repoName, len(log))
	return nil
}

// startCoppice is step 3.
func startCoppice(ctx context.Context, s *scene) error {
	e := s.stack.Endpoints
	var err error
	if s.coppice, err = newController(s.cfg.Coppice, s.cfg.DataDir, s.patient(leaseDuration), e, s.failed); err != nil {
		return err
	}
	crds, err := s.coppice.Output(ctx, "crds")
	if err != nil {
		return err
	}
	n, err := s.applyYAML(ctx, crds)
	if err != nil {
		return err
	}
	s.story.say("coppice crds | kubectl apply: %d kinds", n)
	if err := s.install(ctx); err != nil {
		return err
	}
	if err := s.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretName},
		StringData: map[string]string{"username": e.GitUsername, "password": e.GitPassword},
	}); err != nil {
		return fmt.Errorf("create Secret %s: %w", secretName, err)
	}
	if err := s.createSource(ctx); err != nil {
		return err
	}
	if err := s.coppice.Start(); err != nil {
		return err
	}
	s.story.say("NodeSource %s/%s names the repository; coppice controller runs as process %d, with that account's rights", namespace, sourceName, s.coppice.PID())

	head, err := s.author.repo.Head()
	if err != nil {
		return fmt.Errorf("read HEAD: %w", err)
	}
	src, err := s.awaitRevision(ctx, head.Hash())
	if err != nil {
		return err
	}
	s.story.say("NodeSource is Ready at %s", src.Status.LastAppliedRevision)
	for _, entry := range src.Status.Inventory.Entries {
		s.story.detail("applied %s", entry.ID)
	}
	s.story.fact("Ready at %.17s…, %d objects applied", src.Status.LastAppliedRevision, len(src.Status.Inventory.Entries))

	// The pool can be used once its class has been looked up in EC2.
	return await.Object(ctx, s.client, &karpenter.NodePoolList{}, apitypes.NamespacedName{Name: pool}, func(p *karpenter.NodePool) (bool, string) {
		if p == nil {
			return false, "no NodePool " + pool
		}
		return meta.IsStatusConditionTrue(p.Status.Conditions, karpenter.ConditionReady), "NodePool " + pool + ": " + conditionsText(p.Status.Conditions)
	})
}

// createSource creates the NodeSource, once the API server serves its kind.
func (s *scene) createSource(ctx context.Context) error {
	src := &coppice.NodeSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sourceName},
		Spec: coppice.NodeSourceSpec{
			URL:       s.stack.Endpoints.Repo(repoName),
			Ref:       &coppice.GitReference{Branch: mainBranch.Short()},
			Interval:  metav1.Duration{Duration: interval},
			SecretRef: &coppice.SecretReference{Name: secretName},
			WriteBack: &coppice.WriteBack{Branch: driftBranch.Short()},
		},
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.client.Create(ctx, src)
		if !meta.IsNoMatchError(err) && !isNotServed(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("create the NodeSource: %w", err)
		case <-tick.C:
		}
	}
}

// applyYAML applies a stream of documents as kubectl apply --server-side does and
// returns how many there were.
func (s *scene) applyYAML(ctx context.Context, text []byte) (int, error) {
	docs := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for n := 0; ; {
		obj := &unstructured.Unstructured{}
		if err := docs.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return n, fmt.Errorf("read YAML: %w", err)
		}
		if len(obj.Object) == 0 {
			continue // nothing but a comment
		}
		err := s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("kubectl"), client.ForceOwnership)
		if err != nil {
			return n, fmt.Errorf("apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
		n++
	}
}

// awaitSource waits for the NodeSource to be as wanted, and returns it.
func (s *scene) awaitSource(ctx context.Context, cond func(*coppice.NodeSource) bool) (*coppice.NodeSource, error) {
	var found *coppice.NodeSource
	err := await.Object(ctx, s.client, &coppice.NodeSourceList{}, apitypes.NamespacedName{Namespace: namespace, Name: sourceName},
		func(src *coppice.NodeSource) (bool, string) {
			if src == nil {
				return false, "no NodeSource"
			}
			found = src
			return cond(src), fmt.Sprintf("NodeSource at %q: %s", src.Status.LastAttemptedRevision, conditionsText(src.Status.Conditions))
		})
	return found, err
}

// awaitRevision waits until a commit is applied.
func (s *scene) awaitRevision(ctx context.Context, commit plumbing.Hash) (*coppice.NodeSource, error) {
	want := mainBranch.Short() + "@sha1:" + commit.String()
	return s.awaitSource(ctx, func(src *coppice.NodeSource) bool {
		return src.Status.LastAppliedRevision == want && meta.IsStatusConditionTrue(src.Status.Conditions, "Ready")
	})
}

func conditionsText(list []metav1.Condition) string {
	if len(list) == 0 {
		return "no conditions"
	}
	var out []string
	for _, c := range list {
		out = append(out, fmt.Sprintf("%s=%s %s %q", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(out, ", ")
}

// commit makes edits, pushes them as one commit and tells of both.
func (s *scene) commit(ctx context.Context, message string, edits ...edit) (plumbing.Hash, time.Time, error) {
	diff, err := s.author.change(edits...)
	if err != nil {
		return plumbing.ZeroHash, time.Time{}, err
	}
	return s.push(ctx, message, diff)
}

// push pushes what was changed as one commit and tells of both.
func (s *scene) push(ctx context.Context, message, diff string) (plumbing.Hash, time.Time, error) {
	hash, err := s.author.push(ctx, message)
	if err != nil {
		return plumbing.ZeroHash, time.Time{}, err
	}
	s.story.say("%s pushed %.7s %q", s.author.name, hash, message)
	s.story.detail("%s", diff)
	return hash, time.Now(), nil
}

// changeByCommit is step 5.
func changeByCommit(ctx context.Context, s *scene) error {
	var before karpenter.NodeClaimList
	if err := s.client.List(ctx, &before); err != nil {
		return fmt.Errorf("list NodeClaims: %w", err)
	}
	diff, err := s.author.change(
		edit{"nodepools.cue", `["m5.large", "m5.xlarge", "m5.2xlarge"]`, `["m6i.large", "m6i.xlarge", "m6i.2xlarge"]`},
		edit{"nodepools.cue", "1000\n", "500\n"},
	)
	if err != nil {
		return err
	}
	if err := s.showPlan(ctx); err != nil {
		return err
	}
	hash, pushed, err := s.push(ctx, "Move to the sixth generation, halve the limit", diff)
	if err != nil {
		return err
	}
	if _, err := s.awaitRevision(ctx, hash); err != nil {
		return err
	}
	took := time.Since(pushed)
	live, err := s.livePool(ctx)
	if err != nil {
		return err
	}
	if cpu := live.Spec.Limits["cpu"]; cpu.Value() != 500 {
		return fmt.Errorf("the NodePool's CPU limit is %s, want 500", cpu.String())
	}
	s.story.say("applied %.1f s after the push: %s", took.Seconds(), limitsText(live))

	old, replaced, err := s.awaitReplacement(ctx, before.Items)
	if err != nil {
		return err
	}
	rolled := time.Since(pushed)
	s.story.say("all %d NodeClaims were marked Drifted, and are replaced a few at a time, as the disruption budget of 10%% allows", len(before.Items))
	s.story.say("the first is going %.1f s after the push: %s (%s), in whose place %s (%s) was ready before",
		rolled.Seconds(), old.Name, old.Labels[corev1.LabelInstanceTypeStable], replaced.Name, replaced.Labels[corev1.LabelInstanceTypeStable])
	s.story.fact("applied %.1f s after the push, %d nodes Drifted, the first replaced after %.1f s", took.Seconds(), len(before.Items), rolled.Seconds())
	return nil
}

// awaitReplacement waits until all of some claims have been found drifted and the first
// of them goes. It returns that one and one that came in its place.
func (s *scene) awaitReplacement(ctx context.Context, before []karpenter.NodeClaim) (old, fresh *karpenter.NodeClaim, err error) {
	drifted := map[apitypes.UID]bool{}
	err = await.Objects(ctx, s.client, &karpenter.NodeClaimList{}, func(claims []*karpenter.NodeClaim) (bool, string) {
		left := map[apitypes.UID]bool{}
		old, fresh = nil, nil
		for _, c := range claims {
			left[c.UID] = true
			is := func(condition string) bool { return meta.IsStatusConditionTrue(c.Status.Conditions, condition) }
			switch was := slices.ContainsFunc(before, func(b karpenter.NodeClaim) bool { return b.UID == c.UID }); {
			case was:
				drifted[c.UID] = drifted[c.UID] || is(karpenter.ConditionDrifted)
				if c.DeletionTimestamp != nil {
					old = c
				}
			case is(karpenter.ConditionInitialized):
				fresh = c
			}
		}
		n := 0
		for i := range before {
			b := &before[i]
			if !left[b.UID] {
				old = b
			}
			if drifted[b.UID] || !left[b.UID] {
				n++
			}
		}
		return n == len(before) && old != nil && fresh != nil, fmt.Sprintf("%d of %d NodeClaims are Drifted or replaced", n, len(before))
	})
	return old, fresh, err
}

func (s *scene) livePool(ctx context.Context) (*karpenter.NodePool, error) {
	live := &karpenter.NodePool{}
	if err := s.client.Get(ctx, apitypes.NamespacedName{Name: pool}, live); err != nil {
		return nil, fmt.Errorf("read NodePool %s: %w", pool, err)
	}
	return live, nil
}

func limitsText(p *karpenter.NodePool) string {
	cpu, memory := p.Spec.Limits["cpu"], p.Spec.Limits["memory"]
	return fmt.Sprintf("NodePool %s has limits cpu %s, memory %s", p.Name, cpu.String(), memory.String())
}

// editLimit changes the pool's limit as kubectl edit would.
func (s *scene) editLimit(ctx context.Context, cpu string) (time.Time, error) {
	live, err := s.livePool(ctx)
	if err != nil {
		return time.Time{}, err
	}
	patch := []byte(fmt.Sprintf(`{"spec":{"limits":{"cpu":%q}}}`, cpu))
	if err := s.client.Patch(ctx, live, client.RawPatch(apitypes.MergePatchType, patch), client.FieldOwner(editor)); err != nil {
		return time.Time{}, fmt.Errorf("edit NodePool %s: %w", pool, err)
	}
	return time.Now(), nil
}

// reportLimit is how soon a report of drift must be in Git.
const reportLimit = 10 * time.Second

// driftByHand is step 6.
func driftByHand(ctx context.Context, s *scene) error {
	edited, err := s.editLimit(ctx, "2000")
	if err != nil {
		return err
	}
	s.story.say("somebody ran kubectl edit nodepool %s: limits.cpu 500 → 2000", pool)
	push, err := s.report(ctx, 0, edited)
	if err != nil {
		return err
	}
	reported := time.Since(edited)
	files, err := reports(s.stack.Git, push)
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return fmt.Errorf("the branch holds %d reports, want 1", len(files))
	}
	for name, text := range files {
		s.story.say("reported %.1f s later on branch %s: %s", reported.Seconds(), driftBranch.Short(), name)
		s.story.detail("%s", text)
		for _, want := range []string{"spec.limits.cpu", "500", "2000", editor, "when:"} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("the report does not hold %q", want)
			}
		}
	}
	src, err := s.awaitSource(ctx, func(src *coppice.NodeSource) bool {
		return src.Status.Drift != nil && src.Status.Drift.Fields == 1 && meta.IsStatusConditionTrue(src.Status.Conditions, coppice.ConditionDrifted)
	})
	if err != nil {
		return err
	}
	drifted := meta.FindStatusCondition(src.Status.Conditions, coppice.ConditionDrifted)
	s.story.say("NodeSource is Drifted: %s", drifted.Message)

	undone, err := s.editLimit(ctx, "500")
	if err != nil {
		return err
	}
	s.story.say("the edit is undone by hand")
	if push, err = s.report(ctx, 1, undone); err != nil {
		return err
	}
	if files, err = reports(s.stack.Git, push); err != nil {
		return err
	}
	if len(files) != 0 {
		return fmt.Errorf("the branch still holds a report after the edit was undone")
	}
	log, err := history(s.stack.Git, driftBranch)
	if err != nil {
		return err
	}
	s.story.say("the report is gone %.1f s later", time.Since(undone).Seconds())
	s.story.detail("%s", strings.Join(log, "\n"))
	if _, err := s.awaitSource(ctx, func(src *coppice.NodeSource) bool { return src.Status.Drift == nil }); err != nil {
		return err
	}
	s.quiet = s.watchQuiet(context.WithoutCancel(ctx), len(log))
	s.story.say("from here on, no commit is expected on %s; it is watched for three intervals", driftBranch.Short())
	s.story.fact("reported after %.1f s, withdrawn after %.1f s", reported.Seconds(), time.Since(undone).Seconds())
	return nil
}

// report waits for the push to the drift branch that follows the first n.
func (s *scene) report(ctx context.Context, n int, since time.Time) (plumbing.Hash, error) {
	limit := s.patient(reportLimit)
	ctx, cancel := context.WithDeadlineCause(ctx, since.Add(limit), fmt.Errorf("there is no report after %s", limit))
	defer cancel()
	push, err := s.pushes.after(ctx, driftBranch, n)
	return push.New, err
}

// watchQuiet checks that nothing is pushed to the drift branch for three
// intervals, while the story goes on.
func (s *scene) watchQuiet(ctx context.Context, commits int) <-chan error {
	out := make(chan error, 1)
	n := s.pushes.count(driftBranch)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, 3*interval)
		defer cancel()
		if push, err := s.pushes.after(ctx, driftBranch, n); err == nil {
			out <- fmt.Errorf("commit %.7s was pushed to %s though nothing had changed", push.New, driftBranch.Short())
			return
		}
		log, err := history(s.stack.Git, driftBranch)
		if err == nil && len(log) != commits {
			err = fmt.Errorf("%s has %d commits, want the %d it had", driftBranch.Short(), len(log), commits)
		}
		out <- err
	}()
	return out
}

// awaitQuiet tells how that check ended.
func (s *scene) awaitQuiet(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-s.quiet:
		if err != nil {
			return err
		}
		s.story.say("%s has had no commit for %s since nothing differed", driftBranch.Short(), 3*interval)
		return nil
	}
}

// finding is the position that a message must name.
var finding = regexp.MustCompile(`nodepools\.cue:\d+:\d+: `)

// badCommit is step 7.
func badCommit(ctx context.Context, s *scene) error {
	before, err := s.livePool(ctx)
	if err != nil {
		return err
	}
	const good, bad = "limits: {", "limts: {"
	const possible, impossible = `values: ["spot", "on-demand"]}`, `values: ["spot", "on-demand"], minValues: 5}`
	_, pushed, err := s.commit(ctx, "Tidy up",
		edit{"nodepools.cue", good, bad},
		edit{"nodepools.cue", possible, impossible},
	)
	if err != nil {
		return err
	}
	src, err := s.awaitSource(ctx, func(src *coppice.NodeSource) bool {
		ready := meta.FindStatusCondition(src.Status.Conditions, "Ready")
		return ready != nil && ready.Status == metav1.ConditionFalse
	})
	if err != nil {
		return err
	}
	message := meta.FindStatusCondition(src.Status.Conditions, "Ready").Message
	s.story.say("%.1f s later the NodeSource is not ready:", time.Since(pushed).Seconds())
	for _, part := range strings.Split(message, "; ") {
		s.story.detail("%s", part)
	}
	if n := len(finding.FindAllString(message, -1)); n < 2 || !strings.Contains(message, "limts") || !strings.Contains(message, "minValues") {
		return fmt.Errorf("the message has %d findings with a position, want both", n)
	}
	after, err := s.livePool(ctx)
	if err != nil {
		return err
	}
	if before.Generation != after.Generation {
		return fmt.Errorf("the live NodePool was changed by a bad commit: generation %d, was %d", after.Generation, before.Generation)
	}
	s.story.say("what is live is as it was: %s", limitsText(after))

	hash, pushed, err := s.commit(ctx, "Revert the tidying, let empty nodes go sooner, add a pool of short-lived nodes",
		edit{"nodepools.cue", bad, good},
		edit{"nodepools.cue", impossible, possible},
		// By default a tenth of a pool's nodes may go at a time.
		edit{"nodepools.cue", `consolidateAfter:    "30s"`, `consolidateAfter:    "2s"` + "\n\t\t" + `budgets: [{nodes: "100%"}]`},
		edit{"shortlived.cue", "", shortLived},
	)
	if err != nil {
		return err
	}
	if src, err = s.awaitRevision(ctx, hash); err != nil {
		return err
	}
	s.story.say("NodeSource is Ready again %.1f s later, with %d objects", time.Since(pushed).Seconds(), len(src.Status.Inventory.Entries))
	s.story.fact("both findings at file:line:col, nothing applied, recovered %.1f s after the good commit", time.Since(pushed).Seconds())
	return nil
}

// shortLived is the file of the pool of step 9.
const shortLived = `package cluster

nodePools: "short-lived": spec: {
	disruption: {
		consolidationPolicy: "WhenEmpty"
		consolidateAfter:    "2s"
	}
	template: {
		metadata: labels: "example.com/lives": "shortly"
		spec: {
			expireAfter: "20s"
			taints: [{key: "example.com/lives", value: "shortly", effect: "NoSchedule"}]
			nodeClassRef: {
				group: "karpenter.k8s.aws"
				kind:  "EC2NodeClass"
				name:  "default"
			}
			requirements: [
				{key: "karpenter.sh/capacity-type", operator: "In", values: ["on-demand"]},
				{key: "node.kubernetes.io/instance-type", operator: "In", values: ["m6i.large", "m6i.xlarge"]},
			]
		}
	}
}
`

// isNotServed says whether the API server doesn't serve a kind yet, which it
// begins to a moment after its CRD was created.
func isNotServed(err error) bool {
	return err != nil && slices.ContainsFunc([]string{"could not find the requested resource", "no matches for kind"}, func(text string) bool {
		return strings.Contains(err.Error(), text)
	})
}
