package interrupt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Queue is where the cloud's messages come from.
type Queue interface {
	// Interruptions waits for some messages. They come again until acknowledged.
	Interruptions(ctx context.Context) ([]cloud.Interruption, error)
	// Acknowledge removes messages.
	Acknowledge(ctx context.Context, receipts []string) error
	// Troubled lists instances that EC2's status checks have found bad, or for which it
	// has scheduled something; they are listed until that is over.
	Troubled(ctx context.Context) ([]cloud.Interruption, error)
	// Lost says that the cloud has taken capacity of an offering back.
	Lost(capacityType, instanceType, zone, reservation string)
}

// Options configure the handling of interruptions.
type Options struct {
	// Queue says that there is a queue to read. Status checks are polled in any case.
	Queue bool
	// Rebalance takes nodes away on a mere recommendation, too. Karpenter doesn't.
	Rebalance bool
}

const (
	// receivers is how many read the queue at once. One spends most of its time waiting
	// for the answers of SQS, some 10 ms for ten messages.
	receivers = 8
	// rest is how long one waits after a failure.
	rest = 5 * time.Second
	// checks is how often status checks are polled: EC2 makes them once a minute.
	checks = time.Minute
	// indexInstance finds claims by instance ID.
	indexInstance = "instanceID"
)

// receiver reads the queue. It runs on the leader alone.
type receiver struct {
	kube   client.Client
	queue  Queue
	events events.EventRecorder
	clock  clock.Clock
	o      Options

	received *prometheus.CounterVec
	deleted  prometheus.Counter
	latency  prometheus.Histogram
}

// Setup adds the receivers to mgr.
func Setup(mgr ctrl.Manager, q Queue, clk clock.Clock, o Options) error {
	index := func(o client.Object) []string {
		if id := o.(*karpenter.NodeClaim).InstanceID(); id != "" {
			return []string{id}
		}
		return nil
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &karpenter.NodeClaim{}, indexInstance, index); err != nil {
		return fmt.Errorf("index NodeClaims by %s: %w", indexInstance, err)
	}
	r := &receiver{
		kube: mgr.GetClient(), queue: q, events: mgr.GetEventRecorder("coppice"), clock: clk, o: o,
	}
	if err := r.register(ctrlmetrics.Registry); err != nil {
		return err
	}
	if err := mgr.Add(checker{r}); err != nil {
		return fmt.Errorf("add poller of status checks: %w", err)
	}
	if !o.Queue {
		return nil
	}
	for range receivers {
		if err := mgr.Add(r); err != nil {
			return fmt.Errorf("add interruption receiver: %w", err)
		}
	}
	return nil
}

// RegisterMetrics adds the metrics of interruptions to what is exposed.
func RegisterMetrics(reg prometheus.Registerer) error { return (&receiver{}).register(reg) }

func (r *receiver) register(reg prometheus.Registerer) error {
	r.received = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "karpenter_interruption_received_messages_total", Help: "Messages received, by what they say."}, []string{"message_type"})
	r.deleted = prometheus.NewCounter(prometheus.CounterOpts{Name: "karpenter_interruption_deleted_messages_total", Help: "Messages handled."})
	r.latency = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "karpenter_interruption_message_queue_duration_seconds", Help: "How long messages were under way.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 16),
	})
	for _, c := range []prometheus.Collector{r.received, r.deleted, r.latency} {
		var there prometheus.AlreadyRegisteredError
		if err := reg.Register(c); err != nil && !errors.As(err, &there) {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// checker polls status checks, which no message tells. It runs on the leader alone.
type checker struct{ *receiver }

// Start polls until ctx ends.
func (c checker) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("statuschecks")
	for ctx.Err() == nil {
		list, err := c.queue.Troubled(ctx)
		for _, m := range list {
			err = errors.Join(err, c.handle(ctx, m))
		}
		if err != nil && ctx.Err() == nil {
			log.Error(err, "handle status checks")
		}
		select {
		case <-ctx.Done():
		case <-c.clock.After(checks):
		}
	}
	return nil
}

// NeedLeaderElection keeps a standby from reading what the leader must see.
func (r *receiver) NeedLeaderElection() bool { return true }

// Start receives until ctx ends.
func (r *receiver) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("interrupt")
	for ctx.Err() == nil {
		if err := r.pass(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "handle interruptions")
			select {
			case <-ctx.Done():
			case <-r.clock.After(rest):
			}
		}
	}
	return nil
}

// pass receives some messages, handles them, and acknowledges those that took effect.
func (r *receiver) pass(ctx context.Context) error {
	list, err := r.queue.Interruptions(ctx)
	if err != nil {
		return err
	}
	var errs []error
	var done []string
	for _, m := range list {
		r.received.WithLabelValues(string(m.Kind)).Inc()
		if !m.At.IsZero() {
			r.latency.Observe(r.clock.Since(m.At).Seconds())
		}
		if err := r.handle(ctx, m); err != nil {
			errs = append(errs, err)
			continue
		}
		done = append(done, m.Receipt)
	}
	r.deleted.Add(float64(len(done)))
	return errors.Join(append(errs, r.queue.Acknowledge(ctx, done))...)
}

func (r *receiver) handle(ctx context.Context, m cloud.Interruption) error {
	if m.Kind == cloud.NoInterruption {
		return nil
	}
	var errs []error
	for _, id := range m.Instances {
		var claims karpenter.NodeClaimList
		if err := r.kube.List(ctx, &claims, client.MatchingFields{indexInstance: id}); err != nil {
			return fmt.Errorf("find NodeClaim of instance %s: %w", id, err)
		}
		for i := range claims.Items {
			errs = append(errs, r.interrupt(ctx, m.Kind, &claims.Items[i]))
		}
	}
	return errors.Join(errs...)
}

// interrupt lets a claim feel what was said of its instance.
func (r *receiver) interrupt(ctx context.Context, kind cloud.InterruptionKind, claim *karpenter.NodeClaim) error {
	effect := effectOf(kind, r.o)
	if effect.lost && claim.DeletionTimestamp == nil {
		r.queue.Lost(claim.Labels[karpenter.LabelCapacityType], claim.Labels[corev1.LabelInstanceTypeStable],
			claim.Labels[corev1.LabelTopologyZone], claim.Labels[aws.LabelCapacityReservationID])
	}
	if claim.DeletionTimestamp != nil {
		if kind == cloud.StatusCheckFailed {
			return r.bound(ctx, claim)
		}
		return nil // the others come of what we do, or tell what is under way
	}
	r.events.Eventf(claim, nil, corev1.EventTypeWarning, effect.event, "Interrupt", "%s", effect.note)
	if !effect.remove {
		return nil
	}
	if effect.force {
		if err := r.bound(ctx, claim); err != nil {
			return err
		}
	}
	if err := r.kube.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete NodeClaim %s (%s): %w", claim.Name, kind, err)
	}
	r.events.Eventf(claim, nil, corev1.EventTypeWarning, "TerminatingOnInterruption", "Delete", "Interruption triggered termination for the NodeClaim")
	return nil
}

// bound ends a claim's drain now, unless that was done: pods on it don't run, or not
// well, so there is nothing to drain for.
func (r *receiver) bound(ctx context.Context, claim *karpenter.NodeClaim) error {
	now := r.clock.Now()
	if at, ok, err := claim.TerminationDeadline(); ok && err == nil && claim.DeletionTimestamp != nil && !at.After(now) {
		return nil
	}
	want := claim.DeepCopy()
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	want.Annotations[karpenter.AnnotationTerminationTimestamp] = now.UTC().Format(time.RFC3339)
	if err := r.kube.Patch(ctx, want, client.MergeFrom(claim)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("bound the drain of NodeClaim %s: %w", claim.Name, err)
	}
	return nil
}

// effect is what a kind of interruption leads to.
type effect struct {
	event, note string
	// remove takes the node away, force without waiting for its pods; lost marks its
	// offering as not to be had.
	remove, lost, force bool
}

func effectOf(kind cloud.InterruptionKind, o Options) effect {
	switch kind {
	case cloud.SpotInterrupted:
		return effect{event: "SpotInterrupted", note: "the spot instance will be taken back in two minutes", remove: true, lost: true}
	case cloud.RebalanceRecommended:
		return effect{event: "SpotRebalanceRecommendation", note: "the spot instance may be taken back soon", remove: o.Rebalance}
	case cloud.ScheduledChange:
		return effect{event: "InstanceUnhealthy", note: "AWS has scheduled a change that the instance won't survive", remove: true}
	case cloud.StatusCheckFailed:
		return effect{event: "InstanceUnhealthy", note: "EC2's status checks of the instance have failed for minutes", remove: true, force: true}
	case cloud.InstanceStopped:
		return effect{event: "InstanceStopping", note: "the instance is being stopped", remove: true, force: true}
	case cloud.ReservationInterrupted:
		return effect{event: "CapacityReservationInterrupted", note: "the reservation's owner takes its capacity back", remove: true, lost: true}
	}
	return effect{event: "InstanceTerminating", note: "the instance is being terminated", remove: true, force: true}
}
