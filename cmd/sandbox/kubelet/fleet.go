package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Config says what cluster the machines find and how fast they are.
type Config struct {
	// Client may not be rate limited: it stands for hundreds of kubelets.
	Client kubernetes.Interface
	// ClusterName, Endpoint and CA are what user data must name to get in.
	ClusterName string
	Endpoint    string
	CA          []byte
	// Version is what kubelets report, as in v1.37.2.
	Version string

	// ReadyDelay passes between a node's registration and its being ready, as
	// while the network plugin starts.
	ReadyDelay time.Duration
	// PodDelay passes between a pod's arrival and its running.
	PodDelay time.Duration
	// LeaseDuration is how long a heartbeat is good for; a quarter of it passes
	// between two. Zero means 40 s, the kubelet's default.
	LeaseDuration time.Duration
	// CloudPeriod is how often the cloud controller manager looks for Nodes
	// whose machine is gone. Zero means 5 s, its default.
	CloudPeriod time.Duration

	Log *slog.Logger
}

const (
	defaultLease       = 40 * time.Second // nodeLeaseDurationSeconds of the kubelet
	defaultCloudPeriod = 5 * time.Second  // --node-monitor-period of the cloud controller manager
	// podWorkers bounds the pods that are worked on at once.
	podWorkers = 16
	// byNode is the index of pods by the node that they are bound to.
	byNode = "node"
)

// Failure says why a machine did not become a Node.
type Failure struct {
	// Machine is the instance's ID.
	Machine string
	Reason  string
}

// Fleet is all machines of one cluster.
type Fleet struct {
	cfg     Config
	pods    corelisters.PodLister
	podIdx  cache.Indexer
	nodes   corelisters.NodeLister
	factory []informers.SharedInformerFactory
	queue   workqueue.TypedRateLimitingInterface[podKey]
	addrs   addresses

	mu sync.Mutex
	// ctx is set by Run; kubelets live within it.
	ctx context.Context
	// kubelets by instance ID and by node name.
	kubelets map[string]*kubelet
	byName   map[string]*kubelet
	// gone are instances that were terminated.
	gone     map[string]bool
	failures []Failure
	wg       sync.WaitGroup
}

// podKey is a key of the pod queue.
type podKey = cache.ObjectName

// New returns a fleet without machines.
func New(cfg Config) *Fleet {
	if cfg.LeaseDuration == 0 {
		cfg.LeaseDuration = defaultLease
	}
	if cfg.CloudPeriod == 0 {
		cfg.CloudPeriod = defaultCloudPeriod
	}
	f := &Fleet{
		cfg:      cfg,
		kubelets: map[string]*kubelet{},
		byName:   map[string]*kubelet{},
		gone:     map[string]bool{},
		addrs:    addresses{pool: podRange()},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[podKey](50*time.Millisecond, 5*time.Second)),
	}

	// One watch serves the pods of every node; unbound pods are none of ours.
	bound := informers.NewSharedInformerFactoryWithOptions(cfg.Client, 0, informers.WithTransform(slim),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		}))
	pods := bound.Core().V1().Pods()
	f.pods, f.podIdx = pods.Lister(), pods.Informer().GetIndexer()
	all := informers.NewSharedInformerFactoryWithOptions(cfg.Client, 0, informers.WithTransform(slim))
	f.nodes = all.Core().V1().Nodes().Lister()
	f.factory = []informers.SharedInformerFactory{bound, all}
	return f
}

// slim drops what no one here reads, so that a large cluster fits in memory.
func slim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// Run plays until ctx ends, then waits for everything that it started.
func (f *Fleet) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	informer := f.factory[0].Core().V1().Pods().Informer()
	if err := informer.AddIndexers(cache.Indexers{byNode: func(obj any) ([]string, error) {
		return []string{obj.(*corev1.Pod).Spec.NodeName}, nil
	}}); err != nil {
		return fmt.Errorf("index pods: %w", err)
	}
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			f.queue.Add(key)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: func(obj any) {
			if p, ok := deleted(obj); ok {
				f.addrs.release(p.Status.PodIP)
			}
		},
	}); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	for _, factory := range f.factory {
		factory.Start(ctx.Done())
	}
	for _, factory := range f.factory {
		for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
			if !ok {
				return fmt.Errorf("watch %s: %w", kind, context.Cause(ctx))
			}
		}
	}

	for range podWorkers {
		f.wg.Go(func() { f.workPods(ctx) })
	}
	f.wg.Go(func() { f.collectNodes(ctx) })

	f.mu.Lock()
	f.ctx = ctx
	for _, k := range f.kubelets {
		f.start(k)
	}
	f.mu.Unlock()

	<-ctx.Done()
	f.queue.ShutDown()
	f.wg.Wait()
	for _, factory := range f.factory {
		factory.Shutdown()
	}
	return nil
}

// deleted returns the pod of a delete event.
func deleted(obj any) (*corev1.Pod, bool) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	p, ok := obj.(*corev1.Pod)
	return p, ok
}

// Boot starts a machine's operating system. One that runs isn't booted again before
// Halt.
func (f *Fleet) Boot(m Machine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.kubelets[m.ID]; ok || f.gone[m.ID] {
		return
	}
	k := &kubelet{fleet: f, machine: m, log: f.cfg.Log.With("instance", m.ID)}
	f.kubelets[m.ID] = k
	if f.ctx != nil {
		f.start(k)
	}
}

// start is called with the lock held.
func (f *Fleet) start(k *kubelet) {
	ctx, cancel := context.WithCancel(f.ctx)
	k.stop = cancel
	f.wg.Go(func() {
		defer cancel()
		if err := k.run(ctx); err != nil && ctx.Err() == nil {
			f.fail(k.machine.ID, err)
		}
	})
}

// Halt ends a machine's kubelet at once: no more heartbeats, no more pods. The
// Node stays as it is, as nothing is left to say that it isn't ready.
func (f *Fleet) Halt(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k, ok := f.kubelets[id]; ok {
		if k.stop != nil {
			k.stop()
		}
		delete(f.kubelets, id)
		if f.byName[k.machine.PrivateDNS] == k {
			delete(f.byName, k.machine.PrivateDNS)
		}
	}
}

// Gone says that the machine does not exist any more. Its Node is deleted once
// it is seen to be not ready.
func (f *Fleet) Gone(id string) {
	f.Halt(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone[id] = true
}

func (f *Fleet) fail(id string, err error) {
	f.cfg.Log.Error("the machine did not become a node", "instance", id, "reason", err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures = append(f.failures, Failure{Machine: id, Reason: err.Error()})
}

// Failures lists the machines that did not become Nodes, sorted by instance ID.
func (f *Fleet) Failures() []Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.Clone(f.failures)
	slices.SortFunc(out, func(a, b Failure) int { return strings.Compare(a.Machine, b.Machine) })
	return out
}

// register makes a kubelet responsible for the pods of a node name.
func (f *Fleet) register(k *kubelet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byName[k.machine.PrivateDNS] = k
}

// kubeletOf returns the kubelet that runs a node's pods.
func (f *Fleet) kubeletOf(node string) *kubelet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byName[node]
}

// requeue looks again at every pod of a node.
func (f *Fleet) requeue(node string) {
	pods, err := f.podIdx.ByIndex(byNode, node)
	if err != nil {
		return
	}
	for _, obj := range pods {
		f.queue.Add(cache.MetaObjectToName(obj.(*corev1.Pod)))
	}
}

// admit checks what stands between a machine and this cluster.
func (f *Fleet) admit(s Settings) error {
	switch {
	case s.ClusterName != f.cfg.ClusterName:
		return fmt.Errorf("user data is for cluster %q, not for %q", s.ClusterName, f.cfg.ClusterName)
	case strings.TrimSuffix(s.Endpoint, "/") != f.cfg.Endpoint:
		return fmt.Errorf("nothing answers at %s: the API server is at %s", s.Endpoint, f.cfg.Endpoint)
	case !bytes.Equal(bytes.TrimSpace(s.CA), bytes.TrimSpace(f.cfg.CA)):
		return errors.New("the API server's certificate is not from the authority in the user data")
	}
	return nil
}
