package reconcile_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// acts counts the requests of controllers that change something in the API server, as in
// "PATCH nodeclaims/status", and those of them that were refused.
type acts struct {
	mu      sync.Mutex
	writes  map[string]int
	refused map[string]int
	bodies  map[string]string // of the last request of each
	took    time.Duration
	last    time.Time
	// denied are the requests that the controllers had no right to.
	denied map[string]bool
}

// forbidden lists what the controllers had no right to.
func (a *acts) forbidden() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.denied))
}

// mean is how long an answer took.
func (a *acts) mean() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 1
	for _, w := range a.writes {
		n += w
	}
	return a.took / time.Duration(n)
}

// quiet is how long nothing was written.
func (a *acts) quiet() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.last)
}

// watch counts what goes by way of next.
func (a *acts) watch(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		began := time.Now()
		resp, err := next.RoundTrip(r)
		if err == nil && resp.StatusCode == http.StatusForbidden {
			a.mu.Lock()
			if a.denied == nil {
				a.denied = map[string]bool{}
			}
			a.denied[r.Method+" "+r.URL.Path] = true
			a.mu.Unlock()
		}
		if what, ok := act(r); ok {
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.writes == nil {
				a.writes, a.refused, a.took = map[string]int{}, map[string]int{}, 0
			}
			if a.bodies == nil {
				a.bodies = map[string]string{}
			}
			a.writes[what]++
			a.bodies[what] = said(r)
			a.last = time.Now()
			a.took += a.last.Sub(began)
			if err == nil && resp.StatusCode >= http.StatusBadRequest {
				a.refused[what]++
			}
		}
		return resp, err
	})
}

// body is what the last request of a name was about.
func (a *acts) body(what string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bodies[what]
}

// said is what a request was about.
func said(r *http.Request) string {
	if r.GetBody == nil {
		return r.URL.Path
	}
	body, err := r.GetBody()
	if err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return err.Error()
	}
	return r.URL.Path + " " + string(text)
}

// reset begins anew and returns what was counted.
func (a *acts) reset() (writes, refused map[string]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	writes, refused = a.writes, a.refused
	a.writes, a.refused = nil, nil
	return writes, refused
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// act names a request that changes something, by its verb, kind and subresource.
func act(r *http.Request) (string, bool) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return "", false
	}
	// /api/v1/… or /apis/GROUP/VERSION/…
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	skip := 2
	if parts[0] == "apis" {
		skip = 3
	}
	if len(parts) <= skip {
		return "", false
	}
	parts = parts[skip:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	what := parts[0]
	if len(parts) > 2 {
		what += "/" + parts[2]
	}
	switch what {
	case "leases", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews":
		return "", false // who leads, and questions
	}
	return r.Method + " " + what, true
}

func TestAct(t *testing.T) {
	for request, want := range map[string]string{
		"PATCH /api/v1/nodes/a":                                       "PATCH nodes",
		"PATCH /apis/karpenter.sh/v1/nodeclaims/a/status":             "PATCH nodeclaims/status",
		"POST /api/v1/namespaces/d/pods/p/eviction":                   "POST pods/eviction",
		"POST /apis/events.k8s.io/v1/namespaces/d/events":             "POST events",
		"DELETE /api/v1/namespaces/d":                                 "DELETE namespaces",
		"GET /api/v1/nodes":                                           "",
		"PUT /apis/coordination.k8s.io/v1/namespaces/d/leases/x":      "",
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews": "",
	} {
		verb, path, _ := strings.Cut(request, " ")
		r, err := http.NewRequest(verb, "https://127.0.0.1"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := act(r); got != want {
			t.Errorf("act(%s) = %q, want %q", request, got, want)
		}
	}
}

// atRest is how long the first run may have written nothing before the second begins: some
// notes are taken every two seconds.
const atRest = 3 * time.Second

// twice ends the controllers and runs others in their place, who know nothing and look
// at everything. As all is as it should be, they must change nothing, neither in the API
// server nor in AWS, but for what is excused.
func (l *loop) twice(excused ...string) {
	l.t.Helper()
	began := time.Now() // a pod bound just now is yet to be noted
	if seen := until(l.t, time.Minute, func() (bool, string) {
		quiet := min(l.acts.quiet(), time.Since(began))
		return quiet >= atRest, fmt.Sprintf("the last write was %s ago", quiet)
	}); seen != "" {
		l.t.Fatalf("the first run doesn't come to rest: %s", seen)
	}
	l.tagged()
	l.stop()
	before := l.looks()
	l.acts.reset()
	l.simulator().call("DELETE", "calls", nil, nil)
	l.run(l.options)

	want := map[string]int{"nodeclass": l.count(&aws.EC2NodeClassList{}), "nodepool": l.count(&karpenter.NodePoolList{})}
	want["nodepool-static"] = want["nodepool"]
	want["nodeclaim"] = l.count(&karpenter.NodeClaimList{})
	want["nodeclass-observer"] = want["nodeclaim"]
	const decisions = "disruption decisions"
	want[decisions] = 2 // the second is two seconds after the first, when the others have long begun
	if seen := until(l.t, time.Minute, func() (bool, string) {
		now := l.looks()
		for name, n := range want {
			if now[name]-before[name] < n {
				return false, fmt.Sprintf("%s has looked %d times, not %d", name, now[name]-before[name], n)
			}
		}
		// What the first run left in its queues stays in the metrics.
		return now[waiting] <= before[waiting], fmt.Sprintf("%d requests wait", now[waiting]-before[waiting])
	}); seen != "" {
		l.t.Fatalf("the second run: %s", seen)
	}
	writes, _ := l.acts.reset()
	for _, what := range slices.Sorted(maps.Keys(writes)) {
		if !slices.Contains(excused, what) {
			l.t.Errorf("the second run acted: %s, %d times, the last: %s", what, writes[what], l.acts.body(what))
		}
	}
	for what, n := range l.changes() {
		l.t.Errorf("the second run called %s, %d times", what, n)
	}
}

// waiting is how many requests controllers have before them.
const waiting = "waiting"

// looks is how often each controller has looked at an object, from the metrics.
func (l *loop) looks() map[string]int {
	l.t.Helper()
	families, err := crmetrics.Registry.Gather()
	if err != nil {
		l.t.Fatal(err)
	}
	out := map[string]int{}
	label := func(m *dto.Metric, name string) string {
		for _, x := range m.GetLabel() {
			if x.GetName() == name {
				return x.GetValue()
			}
		}
		return ""
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "controller_runtime_reconcile_total":
				out[label(m, "controller")] += int(m.GetCounter().GetValue())
			case "workqueue_depth", "controller_runtime_active_workers":
				out[waiting] += int(m.GetGauge().GetValue())
			case "karpenter_voluntary_disruption_decision_evaluation_duration_seconds":
				out["disruption decisions"] += int(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return out
}

func (l *loop) count(list client.ObjectList) int {
	l.t.Helper()
	if err := l.kube.List(l.t.Context(), list); err != nil {
		l.t.Fatal(err)
	}
	switch list := list.(type) {
	case *aws.EC2NodeClassList:
		return len(list.Items)
	case *karpenter.NodePoolList:
		return len(list.Items)
	case *karpenter.NodeClaimList:
		return len(list.Items)
	}
	l.t.Fatalf("%T isn't counted", list)
	return 0
}

func (l *loop) simulator() simulator { return simulator{l.t, l.env.EC2} }

// tagged waits until every instance is listed with its claim's tags: those that were
// launched together get them afterwards, and nothing else waits for that.
func (l *loop) tagged() {
	l.t.Helper()
	if seen := until(l.t, 2*time.Minute, func() (bool, string) {
		instances, err := l.cloud.Instances(l.t.Context())
		for _, i := range instances {
			if i.State == ec2sim.StateShuttingDown {
				continue
			}
			if i.Tags[cloud.TagNodeClaim] == "" || i.Tags[cloud.TagNodeClaimUID] == "" || i.Tags[aws.TagName] == "" {
				return false, fmt.Sprintf("instance %s has %v", i.ID, i.Tags)
			}
		}
		return err == nil, fmt.Sprint(err)
	}); seen != "" {
		l.t.Fatalf("instances without tags: %s", seen)
	}
}

// changes counts the calls to AWS since the last count that have changed something.
func (l *loop) changes() map[string]int {
	l.t.Helper()
	var calls []ec2sim.Calls
	l.simulator().call("GET", "calls", nil, &calls)
	out := map[string]int{}
	for _, c := range calls {
		_, action, _ := strings.Cut(c.Action, ":")
		reads := slices.ContainsFunc([]string{"Describe", "Get", "GET ", "List", "Receive"}, func(p string) bool { return strings.HasPrefix(action, p) })
		if n := c.Calls - c.Errors["DryRunOperation"]; !reads && n > 0 {
			out[c.Action] = n
		}
	}
	return out
}
