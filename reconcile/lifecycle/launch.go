package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// classPoll is how soon to look again whether a node class has become ready. Nothing
// tells a claim of it, and it takes a class a few seconds.
const classPoll = time.Second

// launch starts the claim's instance and sets Launched, providerID, image, size
// and the labels that are known from then on. It deletes a claim whose instance
// can't be had, so that its pods are planned again without what was refused. It
// says when to look again if it has to wait.
func (r *Reconciler) launch(ctx context.Context, claim *karpenter.NodeClaim) (time.Duration, error) {
	controllerutil.AddFinalizer(claim, karpenter.Finalizer)
	var class aws.EC2NodeClass
	err := r.kube.Get(ctx, types.NamespacedName{Name: claim.Spec.NodeClassRef.Name}, &class)
	switch {
	case apierrors.IsNotFound(err) || (err == nil && class.DeletionTimestamp != nil):
		return 0, r.giveUp(ctx, claim, "NodeClassNotFound", fmt.Sprintf("EC2NodeClass %q is gone", claim.Spec.NodeClassRef.Name))
	case err != nil:
		return 0, fmt.Errorf("get EC2NodeClass %s: %w", claim.Spec.NodeClassRef.Name, err)
	}
	// A status that speaks of an older spec would launch what nobody asks for now.
	if ready := apimeta.FindStatusCondition(class.Status.Conditions, karpenter.ConditionReady); ready == nil ||
		ready.Status == metav1.ConditionUnknown || ready.ObservedGeneration != class.Generation {
		set(claim, karpenter.ConditionLaunched, metav1.ConditionUnknown, "NodeClassNotReady", "EC2NodeClass "+class.Name+" is not ready yet")
		return classPoll, nil
	} else if ready.Status == metav1.ConditionFalse {
		return 0, r.giveUp(ctx, claim, "NodeClassNotReady", fmt.Sprintf("EC2NodeClass %s: %s", class.Name, ready.Message))
	}

	got, types, wait, err := r.instanceFor(ctx, claim, &class)
	if wait > 0 {
		return wait, nil
	}
	var none *cloud.InsufficientCapacityError
	var terminal *cloud.TerminalError
	switch {
	case errors.As(err, &none):
		return 0, r.giveUp(ctx, claim, insufficientCapacity, none.Error())
	case err != nil:
		reason := "LaunchFailed"
		if errors.As(err, &terminal) {
			// The same request would meet it again: somebody has to mend it.
			reason = "LaunchRefused"
			r.events.Eventf(claim, nil, corev1.EventTypeWarning, reason, "Launch", "%s", kube.OneLine(err.Error()))
		}
		set(claim, karpenter.ConditionLaunched, metav1.ConditionUnknown, reason, kube.OneLine(err.Error()))
		return 0, fmt.Errorf("launch NodeClaim %s: %w", claim.Name, err)
	}
	describe(claim, &class, got, types)
	setTrue(claim, karpenter.ConditionLaunched)
	return 0, nil
}

// instanceFor launches, or returns what an earlier reconcile launched whose
// outcome the cache doesn't show yet. It says how long to wait if the claim is to be
// launched with others that aren't there yet.
func (r *Reconciler) instanceFor(ctx context.Context, claim *karpenter.NodeClaim, class *aws.EC2NodeClass) (cloud.Instance, []cloud.InstanceType, time.Duration, error) {
	all, err := r.cloud.InstanceTypes(ctx, class)
	if err != nil {
		return cloud.Instance{}, nil, 0, err
	}
	if got, ok := r.launched.Load(claim.UID); ok {
		return got.(cloud.Instance), all, 0, nil
	}
	if f, ok := cloud.FleetOf(claim); ok {
		// Before it is looked who is there: who is deleted from now on waits for the outcome.
		defer r.fleets.enter(f.Token)()
	}
	fleet, wait, err := r.fleet(ctx, claim)
	if err != nil || wait > 0 {
		return cloud.Instance{}, nil, wait, err
	}
	types := roomy(cloud.Acceptable(all, claim.Spec.Requirements), claim.Spec.Resources.Requests)
	if fleet != nil {
		common := slices.Clone(types)
		for _, m := range fleet.Members {
			if m != nil {
				common = roomy(common, m.Spec.Resources.Requests)
			}
		}
		// They had types in common when they were planned; sizes may be known better since.
		if len(common) > 0 {
			types = common
		} else {
			fleet = nil
		}
	}
	if len(types) == 0 {
		return cloud.Instance{}, nil, 0, &cloud.InsufficientCapacityError{Reason: noType(all, claim)}
	}
	got, err := r.cloud.Launch(ctx, cloud.LaunchRequest{
		Claim: claim, Class: class, Token: string(claim.UID), Types: types, Fleet: fleet,
		Labels: kubeletLabels(claim, class), Taints: claim.Spec.Taints, StartupTaints: claim.Spec.StartupTaints,
	})
	if err == nil {
		r.launched.Store(claim.UID, got)
	}
	return got, all, 0, err
}

// roomy leaves out types that are too small for what the claim asks room for. A
// claim that a person wrote may say no more than that.
func roomy(types []cloud.InstanceType, requests corev1.ResourceList) []cloud.InstanceType {
	return slices.DeleteFunc(types, func(t cloud.InstanceType) bool {
		for name, want := range requests {
			if have := t.Allocatable[name]; have.Cmp(want) < 0 {
				return true
			}
		}
		return false
	})
}

// kubeletLabels are what the Node registers with: the claim's labels, which hold
// the pool's name and the template's labels. A kubelet whose user data is ours is
// also told its taints, and says so; one with a custom image knows only what its
// author wrote.
func kubeletLabels(claim *karpenter.NodeClaim, class *aws.EC2NodeClass) map[string]string {
	out := maps.Clone(claim.Labels)
	if out == nil {
		out = map[string]string{}
	}
	if class.AMIFamily() != aws.AMIFamilyCustom {
		out[karpenter.LabelDoNotSyncTaints] = "true"
	}
	return out
}

// describe writes what the launch decided onto the claim.
func describe(claim *karpenter.NodeClaim, class *aws.EC2NodeClass, got cloud.Instance, types []cloud.InstanceType) {
	if claim.Labels == nil {
		claim.Labels = map[string]string{}
	}
	claim.Status.ProviderID = got.ProviderID
	claim.Status.ImageID = got.ImageID
	for _, t := range types {
		if t.Name != got.Type {
			continue
		}
		maps.Copy(claim.Labels, t.Labels)
		claim.Status.Capacity = t.Capacity.DeepCopy()
		claim.Status.Allocatable = t.Allocatable.DeepCopy()
	}
	claim.Labels[corev1.LabelInstanceTypeStable] = got.Type
	claim.Labels[corev1.LabelTopologyZone] = got.Zone
	claim.Labels[karpenter.LabelCapacityType] = got.CapacityType
	claim.Labels[aws.LabelNodeClass] = class.Name
	if got.ZoneID != "" {
		claim.Labels[aws.LabelTopologyZoneID] = got.ZoneID
	}
	if got.ReservationID != "" {
		claim.Labels[aws.LabelCapacityReservationID] = got.ReservationID
	}
	for _, c := range class.Status.CapacityReservations {
		if got.ReservationID != "" && c.ID == got.ReservationID {
			claim.Labels[aws.LabelCapacityReservationType] = cmp.Or(string(c.ReservationType), "default")
			claim.Labels[aws.LabelCapacityReservationInterruptible] = strconv.FormatBool(c.Interruptible)
		}
	}
	// The class may have changed since the claim was made; what counts for drift is
	// what the instance was launched from.
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	claim.Annotations[aws.AnnotationEC2NodeClassHash] = class.Hash()
	claim.Annotations[aws.AnnotationEC2NodeClassHashVersion] = aws.EC2NodeClassHashVersion
}

// insufficientCapacity is the reason and the event of a claim whose instance the
// cloud has no room for.
const insufficientCapacity = "InsufficientCapacityError"

// giveUp deletes a claim that can't be launched, with an event that says why.
func (r *Reconciler) giveUp(ctx context.Context, claim *karpenter.NodeClaim, reason, why string) error {
	set(claim, karpenter.ConditionLaunched, metav1.ConditionFalse, reason, kube.OneLine(why))
	r.events.Eventf(claim, nil, corev1.EventTypeWarning, reason, "Delete", "NodeClaim %s can't be launched: %s", claim.Name, kube.OneLine(why))
	r.failed(claim, health.Launched, reason, why)
	return r.remove(ctx, claim, reason)
}

// timeOut deletes a claim that took too long for a step, with an event that says
// which and what to look at.
func (r *Reconciler) timeOut(ctx context.Context, claim *karpenter.NodeClaim, step string) error {
	var reason, why string
	var stage health.Stage
	switch step {
	case karpenter.ConditionLaunched:
		reason, stage = "LaunchTimeout", health.Launched
		why = fmt.Sprintf("no instance was launched within %s", r.timeouts.Launch)
		if c := apimeta.FindStatusCondition(claim.Status.Conditions, step); c != nil && c.Message != "" {
			why += ": " + c.Message
		}
	case karpenter.ConditionRegistered:
		reason, stage = "FailedRegistration", health.Registered
		why = fmt.Sprintf("no Node registered within %s; look at the instance's console output for why", r.timeouts.Registration)
	case karpenter.ConditionInitialized:
		reason, stage = "FailedInitialization", health.Initialized
		why = fmt.Sprintf("the Node wasn't ready for pods within %s", r.timeouts.Initialization)
		if c := apimeta.FindStatusCondition(claim.Status.Conditions, step); c != nil && c.Message != "" {
			why += ": " + c.Message
		}
	}
	r.events.Eventf(claim, nil, corev1.EventTypeWarning, reason, "Delete", "%s", kube.OneLine(why))
	r.failed(claim, stage, reason, why)
	return r.remove(ctx, claim, reason)
}

func (r *Reconciler) failed(claim *karpenter.NodeClaim, stage health.Stage, reason, why string) {
	pool := claim.Labels[karpenter.LabelNodePool]
	if pool != "" {
		r.health.Failed(pool, claim.Name, stage, reason+": "+kube.OneLine(why), r.clock.Now())
	}
	r.metrics.NodeClaimsDisrupted.WithLabelValues(disruption(reason), pool).Inc()
}

// disruption is Karpenter's name, in metrics, of the reason for giving up a claim.
func disruption(reason string) string {
	switch reason {
	case insufficientCapacity:
		return "insufficient_capacity"
	case "LaunchTimeout":
		return "launch_timeout"
	case "FailedRegistration":
		return "registration_timeout"
	case "FailedInitialization":
		return "initialization_timeout"
	}
	return "nodeclass_not_ready"
}
