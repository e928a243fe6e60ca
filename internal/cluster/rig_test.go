package cluster

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cloud/ec2"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/schemas/aws"
)

// rig is a control plane, the state and model that follow it, and what the cloud
// sells. Cases use it one after another; each leaves it empty.
type rig struct {
	ctx   context.Context
	kube  client.WithWatch
	state *State
	model *Model
	types []cloud.InstanceType
}

func newRig(t *testing.T) *rig {
	t.Helper()
	// Nobody reports for the nodes of this test.
	env := testkit.Sandbox(t, "--node-grace", "24h")
	env.Setenv(t)
	g := &rig{ctx: t.Context(), kube: testkit.Client(t, env.REST), state: NewState(clock.RealClock{}), model: NewModel()}
	testkit.InstallCRDs(t, g.kube)
	g.types = sold(t, ec2.Config{
		ClusterName: env.ClusterName, ClusterEndpoint: env.APIServer, ClusterCA: "Cg==",
		KubernetesVersion: func(context.Context) (string, error) { return "1.37", nil },
	})
	if err := each(g.ctx, g.permanent(), func(ctx context.Context, o client.Object) error { return g.kube.Create(ctx, o) }); err != nil {
		t.Fatal(err)
	}

	c, err := cache.New(env.REST, cache.Options{
		Scheme: testkit.Scheme(t), ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {Transform: asTried}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the cache ended with %v", err)
		}
	})
	synced, err := Watch(ctx, c, g.state)
	if err != nil {
		t.Fatal(err)
	}
	if !g.await(30*time.Second, synced) {
		t.Fatal("the state isn't complete")
	}
	for ns := range namespaces {
		account := types.NamespacedName{Namespace: ns, Name: "default"}
		testkit.AwaitObject(t, g.kube, "the service account of "+ns, 20*time.Second, &corev1.ServiceAccountList{}, account,
			func(a *corev1.ServiceAccount) (bool, string) { return a != nil, "" })
	}
	return g
}

// asTried shows held pods as if the scheduler had found no place for them. Letting
// it try first would cost each case the scheduler's back-off.
func asTried(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok && len(p.Spec.SchedulingGates) > 0 {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	}
	return o, nil
}

// sold lists the types of the simulated region, as production finds them.
func sold(t *testing.T, cfg ec2.Config) []cloud.InstanceType {
	t.Helper()
	provider, err := ec2.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	tags := map[string]string{"karpenter.sh/discovery": "true"}
	class := &aws.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class", Generation: 1},
		Spec: aws.EC2NodeClassSpec{
			SubnetSelectorTerms:        []aws.SubnetSelectorTerm{{Tags: tags}},
			SecurityGroupSelectorTerms: []aws.SecurityGroupSelectorTerm{{Tags: tags}},
			AMISelectorTerms:           []aws.AMISelectorTerm{{Alias: "al2023@latest"}},
			Role:                       "KarpenterNodeRole",
		},
	}
	// A new instance profile isn't known at once; what the types depend on is.
	if class.Status, err = provider.ResolveClass(t.Context(), class); err != nil && len(class.Status.Subnets) == 0 {
		t.Fatal(err)
	}
	types, err := provider.InstanceTypes(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	if len(types) < 500 {
		t.Fatalf("only %d instance types are sold", len(types))
	}
	return steady(types)
}

// steady gives offerings on spot prices that don't move: a seed is to mean the same at any
// time of day.
func steady(types []cloud.InstanceType) []cloud.InstanceType {
	types = slices.Clone(types)
	for i := range types {
		t := &types[i]
		t.Offerings = slices.Clone(t.Offerings)
		dearest := int64(0)
		for _, o := range t.Offerings {
			dearest = max(dearest, o.MicroUSD)
		}
		for j := range t.Offerings {
			if o := &t.Offerings[j]; o.CapacityType == cloud.Spot {
				h := fnv.New32a()
				fmt.Fprint(h, t.Name, o.Zone)
				o.MicroUSD = dearest * int64(30+h.Sum32()%20) / 100
			}
		}
		slices.SortStableFunc(t.Offerings, func(a, b cloud.Offering) int {
			return cmp.Or(cmp.Compare(a.MicroUSD, b.MicroUSD), cmp.Compare(a.CapacityType, b.CapacityType), cmp.Compare(a.Zone, b.Zone))
		})
	}
	return types
}

// permanent are the objects that all cases share.
func (g *rig) permanent() []client.Object {
	var out []client.Object
	for name, labels := range namespaces {
		out = append(out, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	never := corev1.PreemptNever
	for name, value := range priorities {
		out = append(out, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: &never})
	}
	wait, now := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	zone := newScenario(0, g.types).zones[0]
	out = append(out,
		&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: runtimeHeavy}, Handler: runtimeHeavy, Overhead: &nodev1.Overhead{
			PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m"), corev1.ResourceMemory: resource.MustParse("200Mi")},
		}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: classWait}, Provisioner: provisioner, VolumeBindingMode: &wait},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: classNow}, Provisioner: provisioner, VolumeBindingMode: &now},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: classZoned}, Provisioner: provisioner, VolumeBindingMode: &wait,
			AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: aws.LabelEBSTopologyZone, Values: []string{zone}}}}}})
	return out
}

// await waits until the state satisfies cond, and reports whether it came to that.
// The state is fed by several watches and says only when pods want nodes, so it is
// looked at often instead.
func (g *rig) await(limit time.Duration, cond func() bool) bool {
	end := time.After(limit)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-end:
			return cond()
		case <-tick.C:
		}
	}
	return true
}

// settle is how long the control plane may take to do what it does in milliseconds, on a
// machine that has other work.
const settle = 2 * time.Minute

// build makes what exists at the start.
func (g *rig) build(s *scenario) error {
	create := func(ctx context.Context, o client.Object) error { return g.kube.Create(ctx, o) }
	var objects []client.Object
	for _, v := range s.volumes {
		objects = append(objects, v)
	}
	for _, c := range slices.Concat(s.bound, s.unclaimed) {
		objects = append(objects, c)
	}
	if err := each(g.ctx, objects, create); err != nil {
		return fmt.Errorf("create volumes: %w", err)
	}
	for _, c := range s.claims {
		g.state.SetClaim(c)
	}
	if err := g.createNodes(s.nodes); err != nil {
		return err
	}
	if err := g.createPods(s.running); err != nil {
		return err
	}
	if err := each(g.ctx, s.leaving, func(ctx context.Context, p *corev1.Pod) error {
		return g.kube.Delete(ctx, p, client.GracePeriodSeconds(3600))
	}); err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	if err := each(g.ctx, s.daemons, func(ctx context.Context, d *appsv1.DaemonSet) error { return g.kube.Create(ctx, d) }); err != nil {
		return fmt.Errorf("create DaemonSets: %w", err)
	}
	if !g.await(settle, func() bool {
		for _, p := range s.leaving {
			if got := g.pod(PodKey(p)); got == nil || got.DeletionTimestamp == nil {
				return false
			}
		}
		return len(g.state.Snapshot().DaemonSets) == len(s.daemons) && g.volumesBound(s.bound) && g.daemonsTried()
	}) {
		return fmt.Errorf("the cluster doesn't come to rest")
	}
	return nil
}

func (g *rig) volumesBound(claims []*corev1.PersistentVolumeClaim) bool {
	g.state.mu.RLock()
	defer g.state.mu.RUnlock()
	for _, c := range claims {
		if got := g.state.volumeClaims[key(c)]; got == nil || got.Status.Phase != corev1.ClaimBound {
			return false
		}
	}
	return true
}

// createNodes makes those nodes that don't exist and waits until pods can come.
func (g *rig) createNodes(nodes []*corev1.Node) error {
	limit := int32(4) // as few as to be met
	err := each(g.ctx, nodes, func(ctx context.Context, n *corev1.Node) error {
		if n.ResourceVersion != "" {
			return nil
		}
		csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: provisioner, NodeID: n.Name, TopologyKeys: []string{aws.LabelEBSTopologyZone},
		}}}}
		if !strings.HasSuffix(n.Name, "-node") {
			csi.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: &limit}
		}
		if err := g.kube.Create(ctx, csi); err != nil {
			return err
		}
		return g.kube.Create(ctx, n)
	})
	if err != nil {
		return fmt.Errorf("create nodes: %w", err)
	}
	if !g.await(settle, func() bool {
		g.state.mu.RLock()
		defer g.state.mu.RUnlock()
		for _, n := range nodes {
			got := g.state.nodes[n.Name]
			if got == nil || Newer(n.ResourceVersion, got.ResourceVersion) || g.state.csiNodes[n.Name] == nil || slices.ContainsFunc(got.Spec.Taints, func(t corev1.Taint) bool {
				return t.Key == corev1.TaintNodeNotReady
			}) {
				return false
			}
		}
		return true
	}) {
		return fmt.Errorf("nodes don't become ready")
	}
	return nil
}

// createPods makes copies, so that pods can be made again as they were written.
func (g *rig) createPods(pods []*corev1.Pod) error {
	if err := each(g.ctx, pods, func(ctx context.Context, p *corev1.Pod) error { return g.kube.Create(ctx, p.DeepCopy()) }); err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	if !g.await(settle, func() bool {
		return !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return g.pod(PodKey(p)) == nil })
	}) {
		return fmt.Errorf("the state doesn't hear of the pods")
	}
	return nil
}

// remake replaces pods, and what they have claimed, by new ones that are held.
func (g *rig) remake(s *scenario, pods []string) error {
	if len(pods) == 0 {
		return nil
	}
	old, fresh := make([]*corev1.Pod, len(pods)), make([]*corev1.Pod, len(pods))
	for i, pod := range pods {
		old[i], fresh[i] = g.pod(pod), s.written(pod)
	}
	var claims []*corev1.PersistentVolumeClaim
	g.state.mu.RLock()
	for _, p := range old {
		// A volume that had existed stays.
		if c := g.state.volumeClaims[key(p)]; c != nil && *c.Spec.StorageClassName != classNow {
			claims = append(claims, c)
		}
	}
	g.state.mu.RUnlock()
	if err := each(g.ctx, old, func(ctx context.Context, p *corev1.Pod) error {
		return g.kube.Delete(ctx, p, client.GracePeriodSeconds(0))
	}); err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	if err := each(g.ctx, claims, g.reclaim); err != nil {
		return fmt.Errorf("make claims anew: %w", err)
	}
	if err := g.createPods(fresh); err != nil {
		return err
	}
	if !g.await(settle, func() bool {
		return !slices.ContainsFunc(old, func(p *corev1.Pod) bool { now := g.pod(PodKey(p)); return now == nil || now.UID == p.UID })
	}) {
		return fmt.Errorf("the state doesn't hear of the new pods")
	}
	return nil
}

// reclaim makes a claim that was bound with its pod anew.
func (g *rig) reclaim(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	for _, o := range []client.Object{&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + c.Name}}, c.DeepCopy()} {
		bare := o.DeepCopyObject().(client.Object)
		if err := g.kube.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return err
		}
		if err := g.kube.Patch(ctx, bare, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	n := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace}, Spec: *c.Spec.DeepCopy()}
	n.Spec.VolumeName = ""
	if err := g.kube.Create(ctx, n); err != nil {
		return err
	}
	if !g.await(settle, func() bool {
		g.state.mu.RLock()
		defer g.state.mu.RUnlock()
		got := g.state.volumeClaims[key(n)]
		return got != nil && got.UID == n.UID && g.state.volumes["pv-"+n.Name] == nil
	}) {
		return fmt.Errorf("the state doesn't hear of claim %s", n.Name)
	}
	return nil
}

// patch changes pods as the state has them and waits until it has the change.
func (g *rig) patch(pods []string, status bool, change func(*corev1.Pod)) error {
	versions := make(map[string]string, len(pods))
	after := make([]*corev1.Pod, len(pods))
	index := make([]int, len(pods))
	for i := range index {
		index[i] = i
	}
	err := each(g.ctx, index, func(ctx context.Context, i int) error {
		have := g.pod(pods[i])
		want := have.DeepCopy()
		change(want)
		after[i] = want
		if status {
			return g.kube.Status().Patch(ctx, want, client.MergeFrom(have))
		}
		return g.kube.Patch(ctx, want, client.MergeFrom(have))
	})
	if err != nil {
		return err
	}
	for i, p := range after {
		versions[pods[i]] = p.ResourceVersion
	}
	if !g.await(settle, func() bool {
		for pod, version := range versions {
			if p := g.pod(pod); p == nil || Newer(version, p.ResourceVersion) {
				return false
			}
		}
		return true
	}) {
		return fmt.Errorf("the state doesn't hear of the pods' change")
	}
	return nil
}

func (g *rig) setNominated(where map[string]string) error {
	return g.patch(slices.Sorted(maps.Keys(where)), true, func(p *corev1.Pod) { p.Status.NominatedNodeName = where[PodKey(p)] })
}

func (g *rig) ungate(pods []string) error {
	return g.patch(pods, false, func(p *corev1.Pod) { p.Spec.SchedulingGates = nil })
}

// awaitTried waits until the scheduler has tried each of the pods.
func (g *rig) awaitTried(pods []string) error {
	var left []string
	if g.await(settle, func() bool {
		g.provision()
		left = slices.DeleteFunc(slices.Clone(pods), func(pod string) bool {
			p := g.pod(pod)
			return p.Spec.NodeName != "" || saidUnschedulable(p)
		})
		return len(left) == 0
	}) {
		return nil
	}
	return fmt.Errorf("the scheduler doesn't try pods %v", left)
}

// provision does what a CSI driver's provisioner does: it makes volumes where the
// scheduler has chosen a node for their pods.
func (g *rig) provision() {
	g.state.mu.RLock()
	var volumes []*corev1.PersistentVolume
	for _, c := range g.state.volumeClaims {
		node := g.state.nodes[c.Annotations["volume.kubernetes.io/selected-node"]]
		if node != nil && c.Spec.VolumeName == "" && g.state.volumes["pv-"+c.Name] == nil {
			volumes = append(volumes, persistentVolume(c, node.Labels[aws.LabelEBSTopologyZone]))
		}
	}
	g.state.mu.RUnlock()
	for _, v := range volumes {
		_ = g.kube.Create(g.ctx, v) // it is there, if not here
	}
}

// pod returns the pod as the state knows it, or nil.
func (g *rig) pod(key string) *corev1.Pod {
	ns, name, _ := strings.Cut(key, "/")
	g.state.mu.RLock()
	defer g.state.mu.RUnlock()
	return g.state.pods[types.NamespacedName{Namespace: ns, Name: name}]
}

func (g *rig) pods() []*corev1.Pod {
	g.state.mu.RLock()
	defer g.state.mu.RUnlock()
	return slices.SortedFunc(maps.Values(g.state.pods), comparePods)
}

func (g *rig) unbound(pods []string) []string {
	g.provision()
	return slices.DeleteFunc(slices.Clone(pods), func(pod string) bool { return g.pod(pod).Spec.NodeName != "" })
}

// refusal is what the scheduler says of a pod.
func refusal(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// daemonNode is the node that a daemon's pod is for, or "".
func daemonNode(p *corev1.Pod) string {
	if !OwnedByDaemonSet(p) {
		return ""
	}
	for _, t := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range t.MatchFields {
			return f.Values[0]
		}
	}
	return ""
}

// daemonsComplete reports whether every DaemonSet has a pod for each of its nodes.
func (g *rig) daemonsComplete() bool {
	for _, d := range g.state.Snapshot().DaemonSets {
		if d.Status.ObservedGeneration != d.Generation || d.Status.CurrentNumberScheduled != d.Status.DesiredNumberScheduled {
			return false
		}
	}
	return true
}

// daemonsTried is daemonsComplete, and that the scheduler has tried all their pods.
func (g *rig) daemonsTried() bool {
	return g.daemonsComplete() && !slices.ContainsFunc(g.pods(), func(p *corev1.Pod) bool {
		return OwnedByDaemonSet(p) && p.Spec.NodeName == "" && !saidUnschedulable(p)
	})
}

// clear removes all that a case has made.
func (g *rig) clear() error {
	snapshot := g.state.Snapshot()
	ctx := g.ctx
	if err := each(ctx, snapshot.DaemonSets, func(ctx context.Context, d *appsv1.DaemonSet) error {
		return client.IgnoreNotFound(g.kube.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}); err != nil {
		return err
	}
	for _, m := range snapshot.Nodes {
		if m.Claim != nil {
			g.state.DeleteClaim(m.Claim.Name)
		}
	}
	gone := func() bool {
		g.state.mu.RLock()
		defer g.state.mu.RUnlock()
		return len(g.state.pods)+len(g.state.nodes)+len(g.state.volumeClaims)+len(g.state.volumes)+len(g.state.csiNodes)+len(g.state.daemonSets) == 0
	}
	for again := true; again; again = !g.await(300*time.Millisecond, gone) {
		for ns := range namespaces {
			for _, kind := range []client.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}} {
				if err := g.kube.DeleteAllOf(ctx, kind, client.InNamespace(ns), client.GracePeriodSeconds(0)); err != nil {
					return err
				}
			}
		}
		for _, kind := range []client.Object{&corev1.Node{}, &storagev1.CSINode{}, &corev1.PersistentVolume{}} {
			if err := g.kube.DeleteAllOf(ctx, kind); err != nil {
				return err
			}
		}
		// Their controllers would let go by and by.
		g.state.mu.RLock()
		var held []client.Object
		for _, o := range g.state.volumeClaims {
			held = append(held, o)
		}
		for _, o := range g.state.volumes {
			held = append(held, o)
		}
		g.state.mu.RUnlock()
		if err := each(ctx, held, func(ctx context.Context, o client.Object) error {
			want := o.DeepCopyObject().(client.Object)
			want.SetFinalizers(nil)
			err := g.kube.Patch(ctx, want, client.MergeFrom(o))
			if apierrors.IsInvalid(err) {
				return nil
			}
			return client.IgnoreNotFound(err)
		}); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
