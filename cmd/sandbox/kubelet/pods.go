package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// workPods handles pods until the queue is shut down.
func (f *Fleet) workPods(ctx context.Context) {
	for {
		key, quit := f.queue.Get()
		if quit {
			return
		}
		again, err := f.syncPod(ctx, key)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			f.cfg.Log.Warn("work on a pod", "pod", key.String(), "error", err)
			f.queue.AddRateLimited(key)
		case again > 0:
			f.queue.AddAfter(key, again)
		default:
			f.queue.Forget(key)
		}
		f.queue.Done(key)
	}
}

// syncPod brings one pod a step further and says when to look at it again, if
// no event will.
func (f *Fleet) syncPod(ctx context.Context, key podKey) (time.Duration, error) {
	pod, err := f.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	k := f.kubeletOf(pod.Spec.NodeName)
	if k == nil {
		return 0, nil
	}
	if pod.DeletionTimestamp != nil {
		return 0, k.endPod(ctx, pod)
	}
	if !k.ready.Load() && !pod.Spec.HostNetwork {
		return 0, nil
	}
	switch {
	case pod.Status.Phase == corev1.PodRunning && !podReady(pod):
		// The node lifecycle controller said so while the node was silent.
		return 0, k.patchPod(ctx, pod, corev1.PodStatus{Conditions: readyConditions(metav1.Now())})
	case pod.Status.Phase != corev1.PodPending:
		return 0, nil
	}
	if wait := f.cfg.PodDelay - time.Since(boundAt(pod)); wait > 0 {
		return wait, nil
	}
	ip := k.machine.PrivateIP
	if !pod.Spec.HostNetwork {
		ip = f.addrs.take()
	}
	return 0, k.patchPod(ctx, pod, runningStatus(pod, k.machine.PrivateIP, ip, metav1.Now()))
}

// boundAt is when the scheduler bound the pod, or when it was made, if it named
// its node itself.
func boundAt(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// endPod ends the containers of a pod that is being deleted and then lets the
// object go, in the two steps that controllers such as Job's wait for.
func (k *kubelet) endPod(ctx context.Context, pod *corev1.Pod) error {
	if pod.Status.Phase == corev1.PodPending || pod.Status.Phase == corev1.PodRunning {
		if err := k.patchPod(ctx, pod, endedStatus(pod, metav1.Now())); err != nil {
			return err
		}
	}
	err := k.fleet.cfg.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// patchPod writes a status. A pod that has been deleted meanwhile is no error.
func (k *kubelet) patchPod(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   status,
	})
	if err != nil {
		return fmt.Errorf("encode a pod's status: %w", err)
	}
	_, err = k.fleet.cfg.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, apitypes.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func statusPatch(status corev1.NodeStatus) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": status.Conditions}})
	if err != nil {
		return nil, fmt.Errorf("encode a node's status: %w", err)
	}
	return patch, nil
}

// runningStatus is the status of a pod whose containers all run.
func runningStatus(pod *corev1.Pod, hostIP, podIP string, now metav1.Time) corev1.PodStatus {
	status := corev1.PodStatus{
		Phase:     corev1.PodRunning,
		HostIP:    hostIP,
		HostIPs:   []corev1.HostIP{{IP: hostIP}},
		PodIP:     podIP,
		PodIPs:    []corev1.PodIP{{IP: podIP}},
		StartTime: &now,
		Conditions: append(readyConditions(now),
			podCondition(corev1.PodReadyToStartContainers, corev1.ConditionTrue, "", now),
			podCondition(corev1.PodInitialized, corev1.ConditionTrue, "", now)),
	}
	for _, c := range pod.Spec.InitContainers {
		cs := containerStatus(c, pod)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways { // a sidecar
			cs.Started = ptr.To(true)
			cs.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
		} else {
			cs.Started = ptr.To(false)
			cs.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, cs)
	}
	for _, c := range pod.Spec.Containers {
		cs := containerStatus(c, pod)
		cs.Started = ptr.To(true)
		cs.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
		status.ContainerStatuses = append(status.ContainerStatuses, cs)
	}
	return status
}

func readyConditions(now metav1.Time) []corev1.PodCondition {
	return []corev1.PodCondition{
		podCondition(corev1.ContainersReady, corev1.ConditionTrue, "", now),
		podCondition(corev1.PodReady, corev1.ConditionTrue, "", now),
	}
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// endedStatus is the status of a pod whose containers obeyed SIGTERM.
func endedStatus(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	status := corev1.PodStatus{
		Phase: corev1.PodSucceeded,
		Conditions: []corev1.PodCondition{
			podCondition(corev1.ContainersReady, corev1.ConditionFalse, "PodCompleted", now),
			podCondition(corev1.PodReady, corev1.ConditionFalse, "PodCompleted", now),
		},
	}
	started := now
	if pod.Status.StartTime != nil {
		started = *pod.Status.StartTime
	}
	for _, c := range pod.Spec.Containers {
		cs := containerStatus(c, pod)
		cs.Ready, cs.Started = false, ptr.To(false)
		cs.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: started, FinishedAt: now}}
		status.ContainerStatuses = append(status.ContainerStatuses, cs)
	}
	return status
}

func containerStatus(c corev1.Container, pod *corev1.Pod) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: c.Image, Ready: true,
		ContainerID: fmt.Sprintf("containerd://%s/%s", pod.UID, c.Name),
	}
}

func podCondition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string, now metav1.Time) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: now}
}

// podRange is the range that AWS suggests for pods outside of the VPC's own:
// https://docs.aws.amazon.com/eks/latest/userguide/cni-custom-network.html. It has
// four million addresses, which is more than any cluster here has pods.
func podRange() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64, 0, 0}), 10) }

// addresses hands out addresses of a range.
type addresses struct {
	pool netip.Prefix

	mu   sync.Mutex
	last netip.Addr
	used map[netip.Addr]bool
}

// take returns an address that no other pod has. The range must not be used up.
func (a *addresses) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used == nil {
		a.used, a.last = map[netip.Addr]bool{}, a.pool.Addr()
	}
	for {
		if a.last = a.last.Next(); !a.pool.Contains(a.last) {
			a.last = a.pool.Addr().Next()
		}
		if !a.used[a.last] {
			a.used[a.last] = true
			return a.last.String()
		}
	}
}

func (a *addresses) release(ip string) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.used, addr)
}
