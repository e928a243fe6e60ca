package lifecycle

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// at is a claim with a place in a fleet.
func at(uid, mark string, alter ...func(*karpenter.NodeClaim)) *karpenter.NodeClaim {
	c := claim(alter...)
	c.Name, c.UID = uid, types.UID(uid)
	c.Annotations = map[string]string{coppice.AnnotationFleet: mark}
	return c
}

func holds(id string) func(*karpenter.NodeClaim) {
	return func(c *karpenter.NodeClaim) { c.Status.ProviderID = "aws:///z/" + id }
}

func going(c *karpenter.NodeClaim) {
	c.DeletionTimestamp, c.Finalizers = new(metav1.NewTime(now)), []string{karpenter.Finalizer}
}

func younger(c *karpenter.NodeClaim) { c.CreationTimestamp = metav1.NewTime(now) }

func TestFleetOfClaim(t *testing.T) {
	tests := map[string]struct {
		why     string
		me      *karpenter.NodeClaim
		others  []*karpenter.NodeClaim
		members string // "" for none
		wait    bool
	}{
		"alone":       {"no mark", claim(), nil, "", false},
		"garbled":     {"a mark that makes no sense is none", at("a", "f 0/3 "), nil, "", false},
		"out of it":   {"", at("a", "f 3/3"), nil, "", false},
		"of one":      {"", at("a", "f 0/1"), nil, "", false},
		"too many":    {"it isn't of our making", at("a", "f 0/1000"), nil, "", false},
		"long token":  {"EC2 wouldn't take it whole", at("a", strings.Repeat("f", 37)+" 0/2"), nil, "", false},
		"all there":   {"", at("a", "f 0/3"), []*karpenter.NodeClaim{at("c", "f 2/3"), at("b", "f 1/3"), at("x", "g 1/3")}, "a b c", false},
		"one to come": {"", at("a", "f 0/3", younger), []*karpenter.NodeClaim{at("b", "f 1/3")}, "a b -", true},
		"one is gone": {"others have waited long enough", at("a", "f 0/3"), []*karpenter.NodeClaim{at("b", "f 1/3")}, "a b -", false},
		"one leaves":  {"it takes no instance", at("a", "f 0/2"), []*karpenter.NodeClaim{at("b", "f 1/2", going)}, "a -", false},
		"one has come and leaves": {"it has taken its instance", at("a", "f 0/2"),
			[]*karpenter.NodeClaim{at("b", "f 1/2", going, holds("i-1"))}, "a b", false},
		"copy":     {"somebody has copied a claim", at("b", "f 0/2", younger), []*karpenter.NodeClaim{at("a", "f 0/2"), at("c", "f 1/2")}, "", false},
		"original": {"", at("a", "f 0/2"), []*karpenter.NodeClaim{at("b", "f 0/2", younger), at("c", "f 1/2")}, "a c", false},
		"other size": {"a mark of another fleet with the token", at("a", "f 0/2", younger),
			[]*karpenter.NodeClaim{at("b", "f 1/3")}, "a -", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(now)
			claims := []client.Object{tt.me}
			for _, c := range tt.others {
				claims = append(claims, c)
			}
			r := &Reconciler{kube: stored(t, claims...), clock: clk}
			got, wait, err := r.fleet(t.Context(), tt.me)
			if err != nil || (wait > 0) != tt.wait {
				t.Fatalf("waits %s, %v (%s)", wait, err, tt.why)
			}
			if tt.wait {
				clk.Step(joinWithin)
				if got, wait, err = r.fleet(t.Context(), tt.me); wait > 0 || err != nil {
					t.Errorf("after %s it waits for %s, %v", joinWithin, wait, err)
				}
			}
			var seen []string
			if got != nil {
				for _, m := range got.Members {
					if m == nil {
						seen = append(seen, "-")
					} else {
						seen = append(seen, m.Name)
					}
				}
			}
			if strings.Join(seen, " ") != tt.members {
				t.Errorf("members %q, want %q (%s)", seen, tt.members, tt.why)
			}
			if missing := strings.Contains(tt.members, "-"); got != nil && got.Complete() == missing {
				t.Errorf("complete is %t", got.Complete())
			}
		})
	}
}

// A claim that is deleted while its fleet is being launched waits for what it has got.
func TestDeletedWhileItsFleetIsLaunched(t *testing.T) {
	s := &stubborn{}
	r := &Reconciler{cloud: s, clock: clocktesting.NewFakeClock(now), kube: stored(t)}
	c := at("a", "f 0/2", going)
	leave, also := r.fleets.enter("f"), r.fleets.enter("f")
	leave()
	if wait, err := r.finalize(t.Context(), c, nil); err != nil || wait == 0 || len(c.Finalizers) == 0 {
		t.Errorf("waits %s, %v, with finalizers %q", wait, err, c.Finalizers)
	}
	also()
	s.instances = []cloud.Instance{{ID: "i-2", ProviderID: "aws:///z/i-2", ClaimUID: "a"}, {ID: "i-3", ProviderID: "aws:///z/i-3", ClaimUID: "b"}}
	if wait, err := r.finalize(t.Context(), c, nil); err != nil || wait == 0 || strings.Join(s.ended, " ") != "i-2" {
		t.Errorf("waits %s, %v, and ended %q", wait, err, s.ended)
	}
	s.instances = s.instances[1:]
	if wait, err := r.finalize(t.Context(), c, nil); err != nil || wait != 0 || len(c.Finalizers) != 0 {
		t.Errorf("waits %s, %v, with finalizers %q", wait, err, c.Finalizers)
	}
}

// The instances of a fleet are nobody's only once each of its claims has one.
func TestCompareClaimsOfFleets(t *testing.T) {
	of := func(id, fleet, uid string) cloud.Instance {
		return cloud.Instance{ID: id, ProviderID: "aws:///z/" + id, LaunchTime: now.Add(-time.Hour), ClaimUID: uid, Tags: map[string]string{cloud.TagFleet: fleet}}
	}
	claims := []karpenter.NodeClaim{
		*at("a", "open 0/2", holds("i-1")), *at("b", "open 1/2"),
		*at("c", "decided 0/2", holds("i-3")), *at("d", "decided 1/2", holds("i-5")),
	}
	instances := []cloud.Instance{
		of("i-1", "open", ""), of("i-2", "open", ""),
		of("i-3", "decided", ""), of("i-4", "decided", ""),
		of("i-5", "", "d"), of("i-6", "", "d"), of("i-7", "gone", ""),
	}
	lost, _ := compareClaims(claims, instances, now)
	var got []string
	for _, i := range lost {
		got = append(got, i.ID)
	}
	// i-4 is left over of a fleet, i-6 a second one for a claim.
	if diff := cmp.Diff([]string{"i-4", "i-6", "i-7"}, got); diff != "" {
		t.Errorf("lost instances (-want +got):\n%s", diff)
	}
}

// labels is a cloud that notes tags.
type labels struct {
	stubborn
	lists int
	calls []string
	err   error
}

func (l *labels) Instances(context.Context) ([]cloud.Instance, error) {
	l.lists++
	return l.instances, nil
}

func (l *labels) Tag(_ context.Context, id string, tags map[string]string) error {
	if l.err != nil {
		return l.err
	}
	for n := range l.instances {
		if i := &l.instances[n]; i.ID == id {
			l.calls = append(l.calls, id+" "+tags[cloud.TagNodeClaim]+" "+tags["Name"])
			i.Tags[cloud.TagNodeClaimUID] = tags[cloud.TagNodeClaimUID]
		}
	}
	return nil
}

func TestTagger(t *testing.T) {
	instance := func(id string, age time.Duration, tags map[string]string) cloud.Instance {
		return cloud.Instance{ID: id, ProviderID: "aws:///z/" + id, LaunchTime: now.Add(-age), Tags: tags}
	}
	l := &labels{stubborn: stubborn{instances: []cloud.Instance{
		instance("i-1", time.Hour, map[string]string{}), instance("i-2", time.Hour, map[string]string{"Name": "theirs"}),
		instance("i-3", time.Second, map[string]string{}), instance("i-4", time.Hour, map[string]string{cloud.TagNodeClaimUID: "d"}),
		instance("i-5", time.Hour, map[string]string{}), instance("i-9", time.Hour, map[string]string{}),
	}}}
	clk := clocktesting.NewFakeClock(now)
	single := claim(holds("i-5"))
	tg := &tagger{kube: stored(t, at("a", "f 0/4", holds("i-1")), at("b", "f 1/4", holds("i-2")), at("c", "f 2/4", holds("i-3")),
		at("d", "f 3/4", holds("i-4")), single, at("e", "g 0/2")), cloud: l, clock: clk}
	pass := func() error {
		done := make(chan error, 1)
		go func() { done <- tg.pass(t.Context()) }()
		for {
			select {
			case err := <-done:
				return err
			case <-time.After(time.Millisecond):
				clk.Step(tagPause)
			}
		}
	}
	l.err = &cloud.TerminalError{Err: errors.New("not allowed")}
	if err := pass(); err == nil || strings.Count(err.Error(), "not allowed") != 1 {
		t.Errorf("without the permission: %v", err)
	}
	l.err = nil
	if err := pass(); err != nil {
		t.Fatal(err)
	}
	clk.Step(tagAfter)
	if err := pass(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"i-1 a a", "i-2 b ", "i-3 c c"}, l.calls); diff != "" {
		t.Errorf("tagged (-want +got):\n%s", diff)
	}
	lists := l.lists
	if err := pass(); err != nil || l.lists != lists {
		t.Errorf("with nothing to do: %d lists, %v", l.lists-lists, err)
	}
	// Another process looks once.
	next := &tagger{kube: tg.kube, cloud: l, clock: clk}
	for range 2 {
		if err := next.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if l.lists != lists+1 || len(l.calls) != 3 {
		t.Errorf("another process: %d lists, tagged %q", l.lists-lists, l.calls)
	}
}
