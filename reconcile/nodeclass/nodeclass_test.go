package nodeclass

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cloud/ec2"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// world is an API server, an EC2 and a reconciler between them whose writes are
// counted.
type world struct {
	t      *testing.T
	env    *testkit.Env
	kube   client.WithWatch
	sim    *ec2sim.Server
	writes atomic.Int64
	events *events.FakeRecorder
	r      *Reconciler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, env: testkit.Sandbox(t), events: events.NewFakeRecorder(1000)}
	w.kube = testkit.Client(t, w.env.REST)
	testkit.InstallCRDs(t, w.kube)
	w.sim, _ = testkit.EC2(t, ec2sim.Config{Unthrottled: true, Clusters: []ec2sim.Cluster{{Name: "demo", Endpoint: "https://127.0.0.1:1"}}})
	w.restart()
	return w
}

func (w *world) provider() *ec2.Provider {
	w.t.Helper()
	p, err := ec2.New(w.t.Context(), ec2.Config{ClusterName: "demo"})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// restart begins with an empty memory, as a new process does.
func (w *world) restart() {
	w.t.Helper()
	w.r = &Reconciler{kube: w.counted(), cloud: w.provider(), events: w.events}
}

func (w *world) counted() client.Client {
	return interceptor.NewClient(w.kube, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			w.writes.Add(1)
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.writes.Add(1)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
}

func (w *world) class(name string, change ...func(*aws.EC2NodeClass)) *aws.EC2NodeClass {
	w.t.Helper()
	tags := map[string]string{"karpenter.sh/discovery": "true"}
	class := &aws.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: aws.EC2NodeClassSpec{
		SubnetSelectorTerms:        []aws.SubnetSelectorTerm{{Tags: tags}},
		SecurityGroupSelectorTerms: []aws.SecurityGroupSelectorTerm{{Tags: tags}},
		AMISelectorTerms:           []aws.AMISelectorTerm{{Alias: "al2023@latest"}},
		Role:                       "NodeRole",
	}}
	for _, f := range change {
		f(class)
	}
	if err := w.kube.Create(w.t.Context(), class); err != nil {
		w.t.Fatal(err)
	}
	return class
}

func (w *world) claim(name, class string) *karpenter.NodeClaim {
	w.t.Helper()
	claim := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: karpenter.NodeClaimSpec{
		Requirements: []karpenter.NodeSelectorRequirementWithMinValues{},
		NodeClassRef: &karpenter.NodeClassReference{Group: aws.Group, Kind: "EC2NodeClass", Name: class},
	}}
	if err := w.kube.Create(w.t.Context(), claim); err != nil {
		w.t.Fatal(err)
	}
	return claim
}

// reconcile runs once and returns what it said, how often it wrote and what it told.
func (w *world) reconcile(name string) (after time.Duration, writes int64, told []string, err error) {
	w.t.Helper()
	before := w.writes.Load()
	result, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
	for len(w.events.Events) > 0 {
		told = append(told, <-w.events.Events)
	}
	return result.RequeueAfter, w.writes.Load() - before, told, err
}

func (w *world) get(name string) *aws.EC2NodeClass {
	w.t.Helper()
	class := &aws.EC2NodeClass{}
	if err := w.kube.Get(w.t.Context(), types.NamespacedName{Name: name}, class); err != nil {
		w.t.Fatal(err)
	}
	return class
}

func (w *world) calls(action string) (n int) {
	for _, c := range w.sim.Counters() {
		if c.Action == action {
			n += c.Calls
		}
	}
	return n
}

func condition(class *aws.EC2NodeClass, name string) metav1.Condition {
	if c := apimeta.FindStatusCondition(class.Status.Conditions, name); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// One sandbox serves all cases: each has a class of its own.
func TestNodeClass(t *testing.T) {
	w := newWorld(t)

	t.Run("ready", func(t *testing.T) {
		w.class("ready")
		after, writes, told, err := w.reconcile("ready")
		if err != nil || after != readyInterval || writes != 2 {
			t.Fatalf("requeue after %s, %d writes (want the stamp and the status), %v", after, writes, err)
		}
		class := w.get("ready")
		if c := condition(class, aws.ConditionReady); c.Status != metav1.ConditionTrue || c.ObservedGeneration != class.Generation {
			t.Errorf("Ready is %+v", c)
		}
		if len(class.Status.Subnets) == 0 || len(class.Status.SecurityGroups) == 0 || len(class.Status.AMIs) == 0 || class.Status.InstanceProfile == "" {
			t.Errorf("status is %+v", class.Status)
		}
		if !slices.Contains(class.Finalizers, aws.Finalizer) || class.Annotations[aws.AnnotationEC2NodeClassHash] != class.Hash() ||
			class.Annotations[aws.AnnotationEC2NodeClassHashVersion] != aws.EC2NodeClassHashVersion {
			t.Errorf("metadata is %+v", class.ObjectMeta)
		}
		if !slices.Contains(told, "Normal Ready Ready went from Unknown to True") {
			t.Errorf("told %q", told)
		}
		for _, what := range []string{"again", "after a restart"} {
			after, writes, told, err = w.reconcile("ready")
			if err != nil || after != readyInterval || writes != 0 || len(told) != 0 {
				t.Errorf("%s: requeue after %s, %d writes, told %q, %v", what, after, writes, told, err)
			}
			w.restart()
		}
	})

	t.Run("with reservations", func(t *testing.T) {
		w.class("reserved", func(c *aws.EC2NodeClass) {
			c.Spec.CapacityReservationSelectorTerms = []aws.CapacityReservationSelectorTerm{{Tags: map[string]string{"none": "yet"}}}
		})
		if after, _, _, err := w.reconcile("reserved"); err != nil || after != reservedInterval {
			t.Errorf("requeue after %s, %v", after, err)
		}
	})

	t.Run("unready until mended", func(t *testing.T) {
		w.class("unready", func(c *aws.EC2NodeClass) {
			c.Spec.SubnetSelectorTerms = []aws.SubnetSelectorTerm{{ID: "subnet-0123456789abcdef0"}}
		})
		after, _, told, err := w.reconcile("unready")
		if err != nil || after != unreadyInterval {
			t.Errorf("requeue after %s, %v", after, err)
		}
		want := "Warning SubnetsReady SubnetsReady went from Unknown to False (SubnetsNotFound): subnetSelectorTerms match no subnet: subnet-id=subnet-0123456789abcdef0"
		if !slices.Contains(told, want) {
			t.Errorf("told %q\nwant %s", told, want)
		}
		if _, writes, told, _ := w.reconcile("unready"); writes != 0 || len(told) != 0 {
			t.Errorf("the second time %d writes, told %q", writes, told)
		}
		class := w.get("unready")
		first := class.Annotations[aws.AnnotationEC2NodeClassHash]
		class.Spec.SubnetSelectorTerms = []aws.SubnetSelectorTerm{{Tags: map[string]string{"karpenter.sh/discovery": "*"}}}
		class.Spec.Tags = map[string]string{"team": "a"}
		if err := w.kube.Update(t.Context(), class); err != nil {
			t.Fatal(err)
		}
		after, _, told, err = w.reconcile("unready")
		if err != nil || after != readyInterval || !slices.Contains(told, "Normal Ready Ready went from False to True") {
			t.Errorf("once mended: requeue after %s, told %q, %v", after, told, err)
		}
		if got := w.get("unready").Annotations[aws.AnnotationEC2NodeClassHash]; got == first {
			t.Error("another tag gave no other hash")
		}
	})

	t.Run("cloud fails", func(t *testing.T) {
		w.class("failing")
		if _, err := w.sim.Do(ec2sim.Step{Calls: &ec2sim.CallFault{Actions: []string{"ec2:DescribeImages"}, Code: "InternalError"}}); err != nil {
			t.Fatal(err)
		}
		defer w.sim.EndEffects()
		t.Setenv("AWS_MAX_ATTEMPTS", "1") // the SDK's own retries would only take time
		w.restart()
		_, _, _, err := w.reconcile("failing")
		if err == nil || !strings.Contains(err.Error(), "resolve EC2NodeClass failing: find images: InternalError") {
			t.Errorf("error is %v", err)
		}
		if c := condition(w.get("failing"), aws.ConditionReady); c.Status != metav1.ConditionUnknown || c.Reason != "ReconcilingDependents" {
			t.Errorf("Ready is %+v", c)
		}
		if _, writes, told, err := w.reconcile("failing"); err == nil || writes != 0 || len(told) != 0 {
			t.Errorf("the second time %d writes, told %q, %v", writes, told, err)
		}
	})

	t.Run("deletion waits for claims", func(t *testing.T) {
		class := w.class("going")
		if _, _, _, err := w.reconcile("going"); err != nil {
			t.Fatal(err)
		}
		claim := w.claim("general-abcde", "going")
		w.claim("other-abcde", "another")
		testkit.Delete(t, w.kube, class)
		w.sim.ResetCounters()
		after, writes, told, err := w.reconcile("going")
		want := []string{"Normal WaitingOnNodeClaimTermination 1 NodeClaims still refer to the class: general-abcde"}
		if err != nil || after != waitingInterval || writes != 0 || !slices.Equal(told, want) || w.calls("iam:DeleteInstanceProfile") != 0 {
			t.Errorf("with a claim left: requeue after %s, %d writes, told %q, %v", after, writes, told, err)
		}
		testkit.Delete(t, w.kube, claim)
		if _, writes, _, err := w.reconcile("going"); err != nil || writes != 1 || w.calls("iam:DeleteInstanceProfile") != 1 {
			t.Errorf("with no claim left: %d writes, %d profiles deleted, %v", writes, w.calls("iam:DeleteInstanceProfile"), err)
		}
		if _, writes, _, err := w.reconcile("going"); err != nil || writes != 0 {
			t.Errorf("of a class that is gone: %d writes, %v", writes, err)
		}
	})

	t.Run("claims of another hash version", func(t *testing.T) {
		w.class("adopted", func(c *aws.EC2NodeClass) {
			c.Annotations = map[string]string{aws.AnnotationEC2NodeClassHash: "1", aws.AnnotationEC2NodeClassHashVersion: "v4"}
		})
		claim := w.claim("adopted-abcde", "adopted")
		claim.Annotations = map[string]string{aws.AnnotationEC2NodeClassHash: "1", aws.AnnotationEC2NodeClassHashVersion: "v4"}
		if err := w.kube.Update(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := w.reconcile("adopted"); err != nil {
			t.Fatal(err)
		}
		if err := w.kube.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			aws.AnnotationEC2NodeClassHash: w.get("adopted").Hash(), aws.AnnotationEC2NodeClassHashVersion: aws.EC2NodeClassHashVersion,
		}
		if diff := cmp.Diff(want, claim.Annotations); diff != "" {
			t.Errorf("the claim's annotations (-want +got):\n%s", diff)
		}
	})

	t.Run("manager", func(t *testing.T) { testManager(t, w) })
}

// The manager's watches alone bring a class up and let it go.
func testManager(t *testing.T, w *world) {
	mgr, err := ctrl.NewManager(w.env.REST, ctrl.Options{Scheme: testkit.Scheme(t), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0"})
	if err != nil {
		t.Fatal(err)
	}
	provider := w.provider()
	if err := Setup(mgr, provider); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	})

	class := w.class("default")
	key := types.NamespacedName{Name: "default"}
	testkit.AwaitObject(t, w.kube, "the class to be ready", 20*time.Second, &aws.EC2NodeClassList{}, key, func(c *aws.EC2NodeClass) (bool, string) {
		if c == nil {
			return false, "nothing"
		}
		return condition(c, aws.ConditionReady).Status == metav1.ConditionTrue, fmt.Sprint(c.Status.Conditions)
	})
	testkit.Await(t, w.kube, "an event", 20*time.Second, &eventsv1.EventList{}, func(list []*eventsv1.Event) (bool, string) {
		return slices.ContainsFunc(list, func(e *eventsv1.Event) bool {
			return e.Regarding.Kind == "EC2NodeClass" && e.Reason == aws.ConditionReady
		}), fmt.Sprint(len(list), " events")
	})
	claim := w.claim("general-abcde", "default")
	observe(t, w, provider, w.get("default"), claim)
	testkit.Delete(t, w.kube, class)
	testkit.Await(t, w.kube, "the class to say what it waits for", 20*time.Second, &eventsv1.EventList{}, func(list []*eventsv1.Event) (bool, string) {
		return slices.ContainsFunc(list, func(e *eventsv1.Event) bool { return e.Reason == "WaitingOnNodeClaimTermination" }), fmt.Sprint(len(list), " events")
	})
	testkit.Delete(t, w.kube, claim)
	testkit.AwaitGone(t, w.kube, 20*time.Second, &aws.EC2NodeClassList{}, key)
}

// observe lets the claim's node come up with 7900 MiB and waits until the class's
// types promise it.
func observe(t *testing.T, w *world, provider *ec2.Provider, class *aws.EC2NodeClass, claim *karpenter.NodeClaim) {
	t.Helper()
	m5 := func() *cloud.InstanceType {
		list, err := provider.InstanceTypes(t.Context(), class)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(list, func(i cloud.InstanceType) bool { return i.Name == "m5.large" })
		return &list[at]
	}
	image, _ := cloud.ImageFor(class.Status.AMIs, m5().Labels)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "observed"}}
	if err := w.kube.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.kube.Delete(context.Background(), node) })
	node.Status.Capacity = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("7900Mi")}
	if err := w.kube.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	claim.Labels = map[string]string{corev1.LabelInstanceTypeStable: "m5.large"}
	if err := w.kube.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	claim.Status = karpenter.NodeClaimStatus{NodeName: node.Name, ImageID: image, Conditions: []metav1.Condition{{
		Type: karpenter.ConditionInitialized, Status: metav1.ConditionTrue, Reason: "Initialized", LastTransitionTime: metav1.Now(),
	}}}
	if err := w.kube.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	limit := time.After(20 * time.Second)
	for m5().Capacity.Memory().String() != "7900Mi" {
		select {
		case <-limit:
			t.Fatalf("m5.large still promises %s", m5().Capacity.Memory())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestTransitions(t *testing.T) {
	before := []metav1.Condition{
		{Type: "A", Status: metav1.ConditionTrue, Reason: "A"},
		{Type: "B", Status: metav1.ConditionTrue, Reason: "B"},
		{Type: "C", Status: metav1.ConditionFalse, Reason: "One"},
	}
	after := []metav1.Condition{
		{Type: "A", Status: metav1.ConditionTrue, Reason: "A", Message: "another message is no news"},
		{Type: "B", Status: metav1.ConditionFalse, Reason: "Broken", Message: "mend it"},
		{Type: "C", Status: metav1.ConditionFalse, Reason: "Two"},
		{Type: "D", Status: metav1.ConditionTrue, Reason: "D"},
	}
	want := []transition{
		{"B", corev1.EventTypeWarning, "B went from True to False (Broken): mend it"},
		{"C", corev1.EventTypeWarning, "C went from False to False (Two)"},
		{"D", corev1.EventTypeNormal, "D went from Unknown to True"},
	}
	if diff := cmp.Diff(want, transitions(before, after), cmp.AllowUnexported(transition{})); diff != "" {
		t.Errorf("transitions (-want +got):\n%s", diff)
	}
}

func TestWaitingFor(t *testing.T) {
	var claims []karpenter.NodeClaim
	for n := range 7 {
		claims = append(claims, karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", 6-n)}})
	}
	if got, want := waitingFor(claims), "7 NodeClaims still refer to the class: c0, c1, c2, c3, c4 and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRestamped(t *testing.T) {
	stamp := func(hash, version string, drifted bool) *karpenter.NodeClaim {
		c := &karpenter.NodeClaim{}
		if version != "" {
			c.Annotations = map[string]string{aws.AnnotationEC2NodeClassHash: hash, aws.AnnotationEC2NodeClassHashVersion: version}
		}
		if drifted {
			c.Status.Conditions = []metav1.Condition{{Type: karpenter.ConditionDrifted, Status: metav1.ConditionTrue}}
		}
		return c
	}
	for name, tt := range map[string]struct {
		claim *karpenter.NodeClaim
		want  string // the hash that it gets, "" for none
	}{
		"ours":      {stamp("old", aws.EC2NodeClassHashVersion, false), ""},
		"unstamped": {stamp("", "", false), ""},
		"theirs":    {stamp("old", "v4", false), "new"},
		"drifted":   {stamp("old", "v4", true), "old"},
	} {
		got := ""
		if c := restamped(tt.claim, "new"); c != nil {
			got = c.Annotations[aws.AnnotationEC2NodeClassHash]
			if c.Annotations[aws.AnnotationEC2NodeClassHashVersion] != aws.EC2NodeClassHashVersion {
				t.Errorf("%s: the version is %v", name, c.Annotations)
			}
		}
		if got != tt.want {
			t.Errorf("%s: hash %q, want %q", name, got, tt.want)
		}
	}
}
