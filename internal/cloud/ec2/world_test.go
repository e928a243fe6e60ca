package ec2

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// began is when the clock of these tests starts.
var began = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// world is an EC2 on loopback whose clock stands still, and providers that reach it
// through the real SDK.
type world struct {
	t     testing.TB
	sim   *ec2sim.Server
	clock simClock
}

// simClock lets the provider follow the simulator's time.
type simClock struct{ *ec2sim.ManualClock }

func (c simClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func newWorld(t testing.TB, change ...func(*ec2sim.Config)) *world {
	t.Helper()
	clock := simClock{ec2sim.NewManualClock(began)}
	cfg := ec2sim.Config{
		Region: "us-west-2", Clock: clock.ManualClock, Seed: 1, Unthrottled: true,
		Clusters:  []ec2sim.Cluster{{Name: "demo", Endpoint: "https://127.0.0.1:6443", CA: []byte("PEM"), Version: "1.33"}},
		BootDelay: 30 * time.Second, ShutdownDelay: 20 * time.Second,
		InstanceProfiles: []string{"node"},
	}
	for _, f := range change {
		f(&cfg)
	}
	sim, err := ec2sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sim)
	t.Cleanup(func() { sim.Close(); srv.Close() })
	for k, v := range map[string]string{
		"AWS_ENDPOINT_URL": srv.URL, "AWS_REGION": cfg.Region, "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(k, v)
	}
	return &world{t: t, sim: sim, clock: clock}
}

// market is what the simulator sells in us-west-2 when its clock starts. Reading it
// over the wire takes most of a test's time, and it is the same in every world.
type market struct {
	machines machineList
	prices   map[string]int64
	spots    map[spotPool]int64
}

// readMarket reads it once for all tests of the run, from the first world's EC2.
var readMarket = sync.OnceValues(func() (market, error) {
	ctx := context.Background()
	p, err := New(ctx, Config{ClusterName: "demo", Clock: testclock.NewFakePassiveClock(began)})
	if err != nil {
		return market{}, err
	}
	var m market
	var errs [3]error
	m.machines, errs[0] = p.loadMachines(ctx)
	m.prices, errs[1] = p.loadPrices(ctx)
	m.spots, errs[2] = p.loadSpotPrices(ctx)
	return m, errors.Join(errs[:]...)
})

// provider is a controller's view after a start, once it has read the market.
func (w *world) provider(change ...func(*Config)) *Provider {
	w.t.Helper()
	p := w.fresh(change...)
	m, err := readMarket()
	if err != nil {
		w.t.Fatal(err)
	}
	fill(p.machines, m.machines)
	fill(p.prices, m.prices)
	fill(p.spots, m.spots)
	return p
}

func fill[T any](f *feed[T], value T) {
	f.value, f.version, f.loaded, f.next = value, 1, f.clock.Now(), f.clock.Now().Add(f.every)
}

// fresh is a controller's view right after a start.
func (w *world) fresh(change ...func(*Config)) *Provider {
	w.t.Helper()
	cfg := Config{ClusterName: "demo", Clock: w.clock}
	for _, f := range change {
		f(&cfg)
	}
	p, err := New(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// newClass is a class as somebody would write it.
func newClass() *aws.EC2NodeClass {
	tags := map[string]string{"karpenter.sh/discovery": "true"}
	return &aws.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class-uid", Generation: 1},
		Spec: aws.EC2NodeClassSpec{
			SubnetSelectorTerms:        []aws.SubnetSelectorTerm{{Tags: tags}},
			SecurityGroupSelectorTerms: []aws.SecurityGroupSelectorTerm{{Tags: tags}},
			AMISelectorTerms:           []aws.AMISelectorTerm{{Alias: "al2023@latest"}},
			Role:                       "KarpenterNodeRole-demo",
			Tags:                       map[string]string{"team": "a"},
		},
	}
}

// resolve gives the class its status, as the controller would.
func (w *world) resolve(p *Provider, class *aws.EC2NodeClass) *aws.EC2NodeClass {
	w.t.Helper()
	for {
		status, err := p.ResolveClass(w.t.Context(), class)
		class.Status = status
		if err == nil {
			return class
		}
		// EC2 doesn't know a new instance profile at once.
		if !strings.Contains(err.Error(), "Invalid IAM Instance Profile") || w.clock.Since(began) > time.Hour {
			w.t.Fatal(err)
		}
		w.clock.Advance(10 * time.Second)
	}
}

// claim is a NodeClaim that was made now.
func (w *world) claim(name string) *karpenter.NodeClaim {
	return &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("00000000-0000-4000-8000-" + fmt.Sprintf("%012s", name)),
		CreationTimestamp: metav1.NewTime(w.clock.Now()),
		Labels:            map[string]string{karpenter.LabelNodePool: "general"},
	}}
}

// request asks for one of the types, by whatever the capacity types allow.
func (w *world) request(p *Provider, class *aws.EC2NodeClass, claim *karpenter.NodeClaim, names, capacityTypes []string) cloud.LaunchRequest {
	w.t.Helper()
	all, err := p.InstanceTypes(w.t.Context(), class)
	if err != nil {
		w.t.Fatal(err)
	}
	req := cloud.LaunchRequest{Claim: claim, Class: class, Token: string(claim.UID), Labels: maps.Clone(claim.Labels)}
	for _, t := range all {
		if !matches(t.Name, names) {
			continue
		}
		var kept []cloud.Offering
		for _, o := range t.Offerings {
			if matches(o.CapacityType, capacityTypes) {
				kept = append(kept, o)
			}
		}
		t.Offerings = kept
		req.Types = append(req.Types, t)
	}
	return req
}

// matches reports whether s is one of the names, or begins with one that ends in *.
func matches(s string, names []string) bool {
	for _, n := range names {
		if prefix, ok := strings.CutSuffix(n, "*"); ok && strings.HasPrefix(s, prefix) || s == n {
			return true
		}
	}
	return false
}

func (w *world) launch(p *Provider, req cloud.LaunchRequest) cloud.Instance {
	w.t.Helper()
	i, err := p.Launch(w.t.Context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return i
}

// calls says how often an action was called since the counters were reset.
func (w *world) calls(action string) int {
	for _, c := range w.sim.Counters() {
		if c.Action == action {
			return c.Calls
		}
	}
	return 0
}

func (w *world) do(step ec2sim.Step) []string {
	w.t.Helper()
	ids, err := w.sim.Do(step)
	if err != nil {
		w.t.Fatal(err)
	}
	return ids
}

// live are the simulator's instances that aren't on their way out.
func (w *world) live() []ec2sim.Instance {
	var out []ec2sim.Instance
	for _, i := range w.sim.Instances() {
		if i.State == ec2sim.StatePending || i.State == ec2sim.StateRunning {
			out = append(out, i)
		}
	}
	return out
}

// brief bounds a call that is expected to fail after the SDK's retries.
func brief(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}
