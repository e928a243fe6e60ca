package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	// settle is how long after the taint a Node counts as possibly not empty: a
	// scheduler that hasn't seen the taint yet may still bind a pod. Its caches
	// lag by far less than this.
	settle = 2 * time.Second
	// pollPods is how soon to look again while pods leave.
	pollPods = time.Second
	// pollBlocked is how soon to ask again for an eviction that a
	// PodDisruptionBudget refused.
	pollBlocked = 5 * time.Second
	// pollInstance is how soon to ask again whether the instance has ended, which takes
	// it tens of seconds.
	pollInstance = 2 * time.Second
)

// finalize takes a deleted claim one step towards nothing: taint, drain, wait for
// volumes, terminate, let go. It says when to look again.
func (r *Reconciler) finalize(ctx context.Context, claim *karpenter.NodeClaim, node *corev1.Node) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(claim, karpenter.Finalizer) {
		return 0, nil
	}
	now := r.clock.Now()
	drain := node != nil && isTrue(claim, karpenter.ConditionRegistered) && !instanceEnded(claim)
	if drain && !cluster.Ready(node) {
		// Nobody is left to end the pods of a machine that is gone, and their
		// PodDisruptionBudgets protect nothing any more.
		alive, err := r.instances(ctx, claim)
		if err != nil {
			return 0, err
		}
		drain = len(alive) > 0
	}
	if drain {
		wait, err := r.empty(ctx, claim, node, now)
		if err != nil || wait > 0 {
			return wait, err
		}
	}
	if r.fleets.under(claim) {
		return pollInstance, nil // one may come for it
	}
	left, err := r.terminate(ctx, claim)
	if err != nil {
		return 0, err
	}
	if left > 0 {
		return pollInstance, nil
	}
	if node != nil {
		if err := letGo(ctx, r.kube, node); err != nil {
			return 0, err
		}
	}
	r.launched.Delete(claim.UID)
	r.fleets.forget(claim.UID)
	controllerutil.RemoveFinalizer(claim, karpenter.Finalizer)
	return 0, nil
}

// instanceEnded reports whether the instance was told to end, after which the
// Node's pods can't be drained any more.
func instanceEnded(claim *karpenter.NodeClaim) bool {
	return isTrue(claim, karpenter.ConditionInstanceTerminating)
}

// empty drains the Node and waits for its volumes; 0 means that it's done, or that
// the claim's termination grace period is over.
func (r *Reconciler) empty(ctx context.Context, claim *karpenter.NodeClaim, node *corev1.Node, now time.Time) (time.Duration, error) {
	deadline, bounded, err := termination(claim)
	if err != nil {
		return 0, err
	}
	if text := deadline.Format(time.RFC3339); bounded && claim.Annotations[karpenter.AnnotationTerminationTimestamp] != text {
		if claim.Annotations == nil {
			claim.Annotations = map[string]string{}
		}
		claim.Annotations[karpenter.AnnotationTerminationTimestamp] = text
		r.events.Eventf(claim, node, corev1.EventTypeWarning, "TerminationGracePeriodExpiring", "Drain",
			"Every pod on Node %s is deleted by %s, whatever protects it", node.Name, text)
	}
	if err := r.fence(ctx, node); err != nil {
		return 0, err
	}
	if !isTrue(claim, karpenter.ConditionDrained) {
		wait, err := r.drain(ctx, claim, node, deadline, bounded, now)
		if err != nil || wait > 0 {
			return wait, err
		}
		setTrue(claim, karpenter.ConditionDrained)
	}
	attached, err := r.attachments(ctx, node)
	if err != nil {
		return 0, err
	}
	if attached > 0 && !(bounded && !now.Before(deadline)) {
		set(claim, karpenter.ConditionVolumesDetached, metav1.ConditionUnknown, "AwaitingVolumeDetachment", fmt.Sprintf("%d volumes are still attached", attached))
		return pollPods, nil
	}
	if attached > 0 {
		set(claim, karpenter.ConditionVolumesDetached, metav1.ConditionFalse, "TerminationGracePeriodElapsed", "")
	} else {
		setTrue(claim, karpenter.ConditionVolumesDetached)
	}
	return 0, nil
}

// fence keeps new pods and load balancers away from the Node.
func (r *Reconciler) fence(ctx context.Context, node *corev1.Node) error {
	want := node.DeepCopy()
	if !cluster.HasTaint(want, karpenter.DisruptedTaint()) {
		want.Spec.Taints = append(want.Spec.Taints, karpenter.DisruptedTaint())
	}
	if want.Labels == nil {
		want.Labels = map[string]string{}
	}
	if _, ok := want.Labels[corev1.LabelNodeExcludeBalancers]; !ok {
		want.Labels[corev1.LabelNodeExcludeBalancers] = "karpenter"
	}
	if len(want.Spec.Taints) == len(node.Spec.Taints) && len(want.Labels) == len(node.Labels) {
		return nil
	}
	patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	if err := r.kube.Patch(ctx, want, patch); err != nil {
		return fmt.Errorf("taint Node %s: %w", node.Name, err)
	}
	return nil
}

// drain asks the pods that are due to leave and says how long to wait, 0 meaning
// that the Node is empty. Whom it waits for and why is in the condition Drained.
func (r *Reconciler) drain(ctx context.Context, claim *karpenter.NodeClaim, node *corev1.Node, deadline time.Time, bounded bool, now time.Time) (time.Duration, error) {
	var pods corev1.PodList
	if err := r.kube.List(ctx, &pods, client.MatchingFields{indexPodNode: node.Name}); err != nil {
		return 0, fmt.Errorf("list pods of Node %s: %w", node.Name, err)
	}
	step := nextDrain(pods.Items, now, deadline, bounded)
	blocked := map[string]string{}
	coming := ""
	if len(step.Evict) > 0 && cluster.Ready(node) {
		if coming = r.coming(claim, deadline, bounded, now); coming != "" {
			step.Evict = nil
		}
	}
	due, later := r.inTurn(claim, step.Evict, now)
	step.Evict = due
	var errs []error
	// The deadline first; and one pod's error holds up no other pod.
	for i := range step.Delete {
		errs = append(errs, r.deletePod(ctx, &step.Delete[i], deadline.Sub(now)))
	}
	for i := range step.Evict {
		why, err := r.evict(ctx, node, &step.Evict[i])
		if err != nil {
			errs = append(errs, err)
		}
		if why != "" {
			blocked[podName(&step.Evict[i])] = why
		}
	}
	for i := range step.Protected {
		p := &step.Protected[i]
		blocked[podName(p)] = fmt.Sprintf("annotation %s=%s", karpenter.AnnotationDoNotDisrupt, p.Annotations[karpenter.AnnotationDoNotDisrupt])
	}
	message := waits(step.Waiting, blocked)
	if had := apimeta.FindStatusCondition(claim.Status.Conditions, karpenter.ConditionDrained); coming == "" && len(blocked) > 0 && (had == nil || had.Message != message) {
		r.events.Eventf(claim, node, corev1.EventTypeWarning, "FailedDraining", "Drain", "Node %s: %s", node.Name, message)
	}
	reason := "Draining"
	if coming != "" {
		reason, message = "AwaitingReplacement", coming
	}
	set(claim, karpenter.ConditionDrained, metav1.ConditionUnknown, reason, message)
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	wait := pollPods
	switch {
	case coming != "":
		wait = pollPlaces
	case later && len(blocked) == 0:
		wait = pollTurn
	case step.Waiting == 0:
		return min(settle, max(0, settle-now.Sub(since(claim, karpenter.ConditionDrained, now)))), nil
	case len(blocked) > 0 && !later:
		wait = pollBlocked
	}
	if !step.Due.IsZero() {
		wait = min(wait, max(step.Due.Sub(now), time.Millisecond))
	}
	return wait, nil
}

// evict asks for one pod's eviction and says why it was refused, "" if it wasn't. An
// error is a refusal too.
func (r *Reconciler) evict(ctx context.Context, node *corev1.Node, pod *corev1.Pod) (refusal string, err error) {
	err = r.kube.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	r.metrics.EvictionRequests.WithLabelValues(strconv.Itoa(code(err))).Inc()
	switch {
	case err == nil:
		r.metrics.PodsDrained.WithLabelValues("eviction").Inc()
		r.events.Eventf(pod, node, corev1.EventTypeNormal, "Evicted", "Evict", "Evicted from Node %s, which is being removed", node.Name)
		return "", nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", nil
	case apierrors.IsTooManyRequests(err), apierrors.IsInternalError(err):
		// 429: a PodDisruptionBudget allows none now. 500: several cover the pod.
		r.events.Eventf(pod, node, corev1.EventTypeWarning, "FailedDraining", "Evict", "%s", kube.OneLine(err.Error()))
		return "PodDisruptionBudget", nil
	}
	return err.Error(), fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// code is the API server's answer, as a status of HTTP.
func code(err error) int {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return http.StatusCreated
	case errors.As(err, &status):
		return int(status.Status().Code)
	}
	return http.StatusInternalServerError
}

// deletePod removes a pod that may not outlive its Node, with as much of its grace
// period as is left. It passes over PodDisruptionBudgets, as the deadline demands.
func (r *Reconciler) deletePod(ctx context.Context, pod *corev1.Pod, left time.Duration) error {
	grace := max(1, int64(left.Seconds()))
	err := r.kube.Delete(ctx, pod, client.GracePeriodSeconds(grace), client.Preconditions{UID: &pod.UID})
	if err == nil {
		r.metrics.PodsDrained.WithLabelValues("deletion").Inc()
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// attachments counts the volumes that are to leave the Node: those of pods that stay
// are detached with the machine.
func (r *Reconciler) attachments(ctx context.Context, node *corev1.Node) (int, error) {
	var list storagev1.VolumeAttachmentList
	if err := r.kube.List(ctx, &list, client.MatchingFields{indexAttachedNode: node.Name}); err != nil {
		return 0, fmt.Errorf("list volumes of Node %s: %w", node.Name, err)
	}
	if len(list.Items) == 0 {
		return 0, nil
	}
	stay, err := r.stayingVolumes(ctx, node)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, a := range list.Items {
		if pv := a.Spec.Source.PersistentVolumeName; pv != nil && !stay[*pv] {
			n++
		}
	}
	return n, nil
}

// stayingVolumes are the PersistentVolumes of the Node's pods that a drain leaves.
func (r *Reconciler) stayingVolumes(ctx context.Context, node *corev1.Node) (map[string]bool, error) {
	var pods corev1.PodList
	if err := r.kube.List(ctx, &pods, client.MatchingFields{indexPodNode: node.Name}); err != nil {
		return nil, fmt.Errorf("list pods of Node %s: %w", node.Name, err)
	}
	stay := map[string]bool{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if cluster.Terminal(p) || cluster.Drainable(p) {
			continue
		}
		for _, name := range cluster.VolumeClaims(p) {
			var pvc corev1.PersistentVolumeClaim
			err := r.kube.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, &pvc)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("get PersistentVolumeClaim %s/%s: %w", p.Namespace, name, err)
			}
			stay[pvc.Spec.VolumeName] = true
		}
	}
	return stay, nil
}

// instances are the claim's that haven't ended: the one that it names, and any that
// were launched for it, as after a crash between the launch and the write of its
// outcome. One list answers for every claim that waits, as cloud.Provider promises, and
// shows what was launched a moment ago.
func (r *Reconciler) instances(ctx context.Context, claim *karpenter.NodeClaim) ([]cloud.Instance, error) {
	list, err := r.cloud.Instances(ctx)
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	var out []cloud.Instance
	for _, i := range list {
		if (claim.Status.ProviderID != "" && i.ProviderID == claim.Status.ProviderID) || i.ClaimUID == string(claim.UID) {
			out = append(out, i)
		}
	}
	return out, nil
}

// terminate ends the claim's instances and returns how many haven't ended yet.
func (r *Reconciler) terminate(ctx context.Context, claim *karpenter.NodeClaim) (int, error) {
	list, err := r.instances(ctx, claim)
	if err != nil {
		return 0, err
	}
	for _, i := range list {
		if i.State == "shutting-down" {
			continue
		}
		if err := r.cloud.Terminate(ctx, i.ID); err != nil {
			return 0, fmt.Errorf("terminate instance %s of NodeClaim %s: %w", i.ID, claim.Name, err)
		}
	}
	if len(list) > 0 {
		setTrue(claim, karpenter.ConditionInstanceTerminating)
	}
	return len(list), nil
}
