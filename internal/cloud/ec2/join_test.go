package ec2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// joint are claims that are to be launched at once.
type joint struct {
	*world
	class  *aws.EC2NodeClass
	claims []*karpenter.NodeClaim
}

// newJoint makes n claims at a time that is long after any provider's start so far, and
// that providers made from now on count as before theirs.
func newJoint(w *world, p *Provider, n int) *joint {
	w.t.Helper()
	j := &joint{world: w, class: w.resolve(p, newClass())}
	w.clock.Advance(2 * time.Minute)
	for i := range n {
		j.claims = append(j.claims, w.claim(fmt.Sprint(i+1)))
	}
	return j
}

// requests ask for one of the types for each claim.
func (j *joint) requests(p *Provider, names ...string) []cloud.LaunchRequest {
	j.t.Helper()
	var out []cloud.LaunchRequest
	for i, c := range j.claims {
		req := j.request(p, j.class, c, names, []string{"on-demand"})
		req.Fleet = &cloud.Fleet{Token: "00000000-0000-4000-8000-00000000f1ee", Index: i, Count: len(j.claims), Members: slices.Clone(j.claims)}
		out = append(out, req)
	}
	return out
}

// all launches all at the same time and returns the instances' IDs.
func (j *joint) all(p *Provider, reqs []cloud.LaunchRequest) []string {
	j.t.Helper()
	ids := make([]string, len(reqs))
	var wg sync.WaitGroup
	for i := range reqs {
		wg.Go(func() {
			got, err := p.Launch(j.t.Context(), reqs[i])
			if err != nil {
				j.t.Error(err)
			}
			ids[i] = got.ID
		})
	}
	wg.Wait()
	return ids
}

// run says which instances there are, sorted.
func (j *joint) run() []string {
	var out []string
	for _, i := range j.live() {
		out = append(out, i.ID)
	}
	slices.Sort(out)
	return out
}

func TestFleetIsLaunchedAtOnce(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.ConsistencyDelay = time.Second })
	p := w.provider()
	j := newJoint(w, p, 5)
	w.sim.ResetCounters()
	reqs := j.requests(p, "m5.large", "m5.xlarge")
	ids := j.all(p, reqs)
	if diff := gocmp.Diff(j.run(), ids); diff != "" {
		t.Errorf("the claims have others than run (-run +claims):\n%s", diff)
	}
	if n := w.calls("ec2:CreateFleet"); n != 1 {
		t.Errorf("%d calls of CreateFleet", n)
	}
	for _, i := range w.live() {
		if i.Tags[cloud.TagFleet] != reqs[0].Fleet.Token || i.Tags["karpenter.sh/nodepool"] != "general" || i.Tags["team"] != "a" || i.Tags[cloud.TagNodeClaimUID] != "" {
			t.Errorf("tags of an instance: %v", i.Tags)
		}
	}
	// Whose each is is known before EC2 shows it, when it does, and once it is tagged.
	for range 3 {
		list, err := p.Instances(t.Context())
		if err != nil || len(list) != 5 {
			t.Fatalf("%d instances, %v", len(list), err)
		}
		for n, i := range list {
			if i.ID != ids[n] || i.ClaimUID != string(j.claims[n].UID) {
				t.Errorf("instance %d is %s of %s", n, i.ID, i.ClaimUID)
			}
		}
		w.clock.Advance(3 * time.Second)
		if err := p.Tag(t.Context(), list[0].ID, map[string]string{cloud.TagNodeClaimUID: list[0].ClaimUID}); err != nil {
			t.Fatal(err)
		}
	}
	// One that has ended isn't brought back by what is remembered of its launch.
	w.do(ec2sim.Step{Terminate: &ec2sim.Victims{IDs: ids[1:2]}})
	w.clock.Advance(20 * time.Second)
	w.clock.Advance(listTTL)
	if list, _ := p.Instances(t.Context()); len(list) != 4 {
		t.Errorf("%d instances are listed after one has ended", len(list))
	}
	// All are compared with the class by what the launch answered.
	w.sim.ResetCounters()
	for n, c := range j.claims {
		c.Status.ProviderID = "aws:///" + w.live()[0].Zone + "/" + ids[n]
		if why, err := p.Drifted(t.Context(), j.class, c); why != "" || err != nil {
			t.Errorf("claim %d: drift is %q (%v)", n, why, err)
		}
	}
	if n := w.calls("ec2:DescribeInstances"); n != 0 {
		t.Errorf("%d lists were asked for", n)
	}
}

// deaf loses the answers to the next calls of CreateFleet, which EC2 has obeyed.
func (w *world) deaf(calls int64) {
	var left atomic.Int64
	left.Store(calls)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !bytes.Contains(body, []byte("Action=CreateFleet")) || bytes.Contains(body, []byte("DryRun=true")) || left.Add(-1) < 0 {
			w.sim.ServeHTTP(rw, r)
			return
		}
		w.sim.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}))
	w.t.Cleanup(srv.Close)
	w.t.(*testing.T).Setenv("AWS_ENDPOINT_URL", srv.URL)
	w.t.(*testing.T).Setenv("AWS_MAX_ATTEMPTS", "1")
}

// A fleet whose answer is lost is launched once, and every process that asks again finds
// the same instance for each claim.
func TestFleetAnswerLost(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.ConsistencyDelay = 4 * time.Second })
	w.deaf(1)
	p := w.provider()
	j := newJoint(w, p, 4)
	reqs := j.requests(p, "m5.*")
	if _, err := p.Launch(t.Context(), reqs[2]); err == nil || errors.As(err, new(*cloud.TerminalError)) {
		t.Fatalf("without an answer: %v", err)
	}
	want := j.run()
	if len(want) != 4 {
		t.Fatalf("%d instances run", len(want))
	}
	// The others don't each ask in vain.
	w.sim.ResetCounters()
	if _, err := p.Launch(t.Context(), reqs[3]); err == nil || w.calls("ec2:CreateFleet") != 0 {
		t.Errorf("right after a failure: %v after %d calls", err, w.calls("ec2:CreateFleet"))
	}
	// The next process has other prices in mind, and sees none, then some, then all.
	next := w.provider()
	changed := j.requests(next, "m5.*", "c5.*")
	for n := range 7 {
		if _, err := next.Launch(t.Context(), changed[1]); err == nil || errors.As(err, new(*cloud.TerminalError)) {
			t.Fatalf("with %d s gone: %v", n, err)
		}
		if n == 1 {
			// One that asks for the same gets the answer again.
			same := w.provider()
			if diff := gocmp.Diff(want, j.all(same, j.requests(same, "m5.*"))); diff != "" {
				t.Errorf("another process that asks for the same (-run +claims):\n%s", diff)
			}
		}
		w.clock.Advance(time.Second)
	}
	w.clock.Advance(time.Second)
	if diff := gocmp.Diff(want, j.all(p, reqs)); diff != "" {
		t.Errorf("the same process (-run +claims):\n%s", diff)
	}
	if diff := gocmp.Diff(want, j.all(next, changed)); diff != "" {
		t.Errorf("one with another request (-run +claims):\n%s", diff)
	}
	// Who comes when all can be seen asks for no fleet.
	w.sim.ResetCounters()
	later := w.provider()
	if diff := gocmp.Diff(want, j.all(later, j.requests(later, "c5.*"))); diff != "" || w.calls("ec2:CreateFleet") != 0 {
		t.Errorf("a later process, with %d fleets (-run +claims):\n%s", w.calls("ec2:CreateFleet"), diff)
	}
	if diff := gocmp.Diff(want, j.run()); diff != "" {
		t.Errorf("more was launched (-before +after):\n%s", diff)
	}
}

// Where not all instances can be seen nobody guesses whose they are.
func TestFleetIsGivenUp(t *testing.T) {
	w := newWorld(t)
	w.deaf(1)
	p := w.provider()
	j := newJoint(w, p, 3)
	if _, err := p.Launch(t.Context(), j.requests(p, "m5.large")[0]); err == nil {
		t.Fatal("an answer came")
	}
	lost := j.run()
	w.do(ec2sim.Step{Terminate: &ec2sim.Victims{IDs: lost[:1]}})
	w.clock.Advance(time.Minute)
	next := w.provider()
	reqs := j.requests(next, "c5.large")
	for began := w.clock.Now(); w.clock.Since(began) < visibleWithin; w.clock.Advance(2 * time.Second) {
		if got, err := next.Launch(t.Context(), reqs[0]); err == nil {
			t.Fatalf("got %s although one of three is gone", got.ID)
		}
	}
	ids := j.all(next, reqs)
	slices.Sort(ids)
	for _, id := range ids {
		if slices.Contains(lost, id) {
			t.Errorf("%s was taken by guess", id)
		}
	}
	if n := len(slices.Compact(ids)); n != 3 {
		t.Errorf("3 claims have %d instances", n)
	}
	for _, i := range w.live() {
		if own := i.Tags[cloud.TagNodeClaimUID] != ""; own == slices.Contains(lost, i.ID) {
			t.Errorf("instance %s has tags %v", i.ID, i.Tags)
		}
	}
}

// Of a fleet that EC2 can't fill the first claims have what there is.
func TestFleetPartlyFilled(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	j := newJoint(w, p, 6)
	w.do(ec2sim.Step{For: ec2sim.Duration(time.Hour), Shortage: &ec2sim.Shortage{Match: ec2sim.Match{Types: []string{"m5.large"}}, Left: 1}})
	w.sim.ResetCounters()
	reqs := j.requests(p, "m5.large") // one in each of four zones
	var got []string
	for n, req := range reqs {
		i, err := p.Launch(t.Context(), req)
		var short *cloud.InsufficientCapacityError
		switch {
		case n < 4 && err != nil, n >= 4 && !errors.As(err, &short):
			t.Fatalf("claim %d: %v", n, err)
		case n < 4:
			got = append(got, i.ID)
		}
	}
	if diff := gocmp.Diff(j.run(), got); diff != "" {
		t.Errorf("(-run +claims):\n%s", diff)
	}
	if n := w.calls("ec2:CreateFleet"); n != 1 {
		t.Errorf("%d fleets", n)
	}
	for _, o := range w.request(p, j.class, j.claims[0], []string{"m5.large"}, []string{"on-demand"}).Types[0].Offerings {
		if o.Available {
			t.Errorf("%+v is taken to be available", o)
		}
	}
	// Whoever takes over finds the same.
	w.clock.Advance(time.Minute)
	next := w.provider()
	if diff := gocmp.Diff(got, j.all(next, j.requests(next, "m5.large")[:4])); diff != "" {
		t.Errorf("in the next process (-before +after):\n%s", diff)
	}
}

func TestFleetShortage(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	j := newJoint(w, p, 3)
	w.do(ec2sim.Step{For: ec2sim.Duration(time.Hour), Shortage: &ec2sim.Shortage{Match: ec2sim.Match{Types: []string{"m5.large"}}}})
	w.sim.ResetCounters()
	for n, req := range j.requests(p, "m5.large") {
		var short *cloud.InsufficientCapacityError
		if _, err := p.Launch(t.Context(), req); !errors.As(err, &short) || short.Offerings != 4 || short.Reason != "InsufficientInstanceCapacity" {
			t.Errorf("claim %d: %v", n, err)
		}
	}
	if n := w.calls("ec2:CreateFleet"); n != 1 {
		t.Errorf("3 claims tried %d fleets", n)
	}
}

// A claim that is missing before the launch makes it none; one that goes later costs the
// others nothing.
func TestFleetMembersMissing(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	j := newJoint(w, p, 3)
	reqs := j.requests(p, "m5.large")
	for i := range reqs {
		reqs[i].Fleet.Members[1] = nil
	}
	w.launch(p, reqs[0])
	w.launch(p, reqs[2])
	for _, i := range w.live() {
		if i.Tags[cloud.TagFleet] != "" || i.Tags[cloud.TagNodeClaimUID] == "" {
			t.Errorf("tags of an instance: %v", i.Tags)
		}
	}
	if n := len(w.live()); n != 2 {
		t.Errorf("%d instances for two claims", n)
	}

	j = newJoint(w, p, 3)
	q := w.provider()
	for _, c := range j.claims {
		c.UID = "2" + c.UID[1:]
	}
	reqs = j.requests(q, "m5.large")
	for i := range reqs {
		reqs[i].Token, reqs[i].Fleet.Token = string(j.claims[i].UID), "other"
	}
	first := w.launch(q, reqs[0])
	gone := reqs[2]
	gone.Fleet.Members[1] = nil
	if third := w.launch(q, gone); third.ID <= first.ID || third.Tags[cloud.TagFleet] != "other" {
		t.Errorf("the third got %s after %s, tags %v", third.ID, first.ID, third.Tags)
	}
	// Whoever is given the place of the one that is gone doesn't get its instance.
	heir := reqs[1]
	heir.Claim = w.claim("9")
	heir.Token = string(heir.Claim.UID)
	if got := w.launch(q, heir); got.Tags[cloud.TagNodeClaimUID] != heir.Token {
		t.Errorf("the heir's instance has tags %v", got.Tags)
	}
}

// A standby that takes over was there before the claims were. It finds what was launched
// for them, and launches no fleet for the one claim that came too late for it.
func TestFleetTakenOver(t *testing.T) {
	w := newWorld(t)
	p, standby := w.provider(), w.provider()
	j := newJoint(w, p, 3)
	first := w.launch(p, j.requests(p, "m5.large")[0])
	j.claims[0].Status.ProviderID = first.ProviderID
	want := j.run()
	j.claims[1].DeletionTimestamp = new(metav1.NewTime(w.clock.Now()))
	reqs := j.requests(standby, "c5.large")
	reqs[2].Fleet.Members[1] = nil
	if got := w.launch(standby, reqs[2]); got.ID != want[2] || len(j.run()) != 3 {
		t.Errorf("the standby got %s, of %v", got.ID, want)
	}
	// Once each has its own, nothing with the fleet's tag runs.
	w.do(ec2sim.Step{Terminate: &ec2sim.Victims{IDs: want}})
	w.clock.Advance(time.Minute)
	next := w.provider()
	w.clock.Advance(2 * time.Minute)
	j.claims[1] = w.claim("9")
	late := j.requests(next, "m5.large")[1]
	if got := w.launch(next, late); got.Tags[cloud.TagNodeClaimUID] != late.Token || len(j.run()) != 1 {
		t.Errorf("the late claim got %v, and %d run", got.Tags, len(j.run()))
	}
}

// Two controllers that overlap come to the same, in whatever order their claims come.
func TestFleetByTwo(t *testing.T) {
	w := newWorld(t)
	one, two := w.provider(), w.provider()
	j := newJoint(w, one, 10)
	w.resolve(two, newClass())
	w.sim.ResetCounters()
	var a, b []string
	var wg sync.WaitGroup
	ra, rb := j.requests(one, "m5.*"), j.requests(two, "m5.*")
	slices.Reverse(rb)
	wg.Go(func() { a = j.all(one, ra) })
	wg.Go(func() { b = j.all(two, rb) })
	wg.Wait()
	slices.Reverse(b)
	if diff := gocmp.Diff(a, b); diff != "" {
		t.Errorf("instances of the claims (-one +two):\n%s", diff)
	}
	if n := len(j.run()); n != 10 || w.calls("ec2:CreateFleet") != 2 {
		t.Errorf("%d run after %d calls", n, w.calls("ec2:CreateFleet"))
	}
}

// An answer that has come to lack instances doesn't give one to two claims.
func TestFleetNeverGivesTwice(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	j := newJoint(w, p, 3)
	reqs := j.requests(p, "m5.large")
	first := w.launch(p, reqs[0])
	l := p.launches.of(reqs[0].Fleet.Token, w.clock.Now())
	for i := range l.instances {
		l.instances[i].ClaimUID = ""
	}
	l.instances = append(l.instances[1:], l.instances[0])
	j.claims[0].Status.ProviderID = first.ProviderID
	reqs = j.requests(p, "m5.large")
	if got := w.launch(p, reqs[2]); got.ID == first.ID || got.Tags[cloud.TagNodeClaimUID] != reqs[2].Token || !strings.HasPrefix(got.ID, "i-") {
		t.Errorf("the third claim has %s of the first, tags %v", got.ID, got.Tags)
	}
}
