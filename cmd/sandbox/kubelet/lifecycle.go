package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// kubelet is the kubelet of one machine.
type kubelet struct {
	fleet   *Fleet
	machine Machine
	log     *slog.Logger
	stop    context.CancelFunc
	// ready is set once pods may run.
	ready atomic.Bool
}

// retryPeriod passes between two tries of a call that failed.
const retryPeriod = 200 * time.Millisecond

// run is a machine's life from boot to halt.
func (k *kubelet) run(ctx context.Context) error {
	settings, err := ParseUserData(k.machine.UserData)
	if err != nil {
		return err
	}
	if err := k.fleet.admit(settings); err != nil {
		return err
	}
	node, err := NewNode(k.machine, settings, k.fleet.cfg.Version, time.Now())
	if err != nil {
		return err
	}
	if node, err = k.registerNode(ctx, node); err != nil {
		return err
	}
	k.fleet.register(k)
	lease, err := k.renew(ctx, nil, node.UID)
	if err != nil {
		k.log.Warn("renew the lease", "error", err)
	}
	if err := k.initialize(ctx); err != nil {
		return err
	}
	k.log.Info("registered", "node", node.Name, "type", k.machine.Type, "zone", k.machine.Zone)
	if !sleep(ctx, k.fleet.cfg.ReadyDelay) {
		return nil
	}
	if err := k.reportReady(ctx); err != nil {
		return err
	}
	k.ready.Store(true)
	k.fleet.requeue(node.Name)

	beat := time.NewTicker(k.fleet.cfg.LeaseDuration / 4)
	defer beat.Stop()
	report := time.NewTimer(firstReport(k.machine.ID))
	defer report.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-report.C:
			report.Reset(reportPeriod)
			if err := k.reportAlive(ctx); err != nil && ctx.Err() == nil {
				k.log.Warn("report the node's status", "error", err)
			}
		case <-beat.C:
			next, err := k.renew(ctx, lease, node.UID)
			if err != nil && ctx.Err() == nil {
				k.log.Warn("renew the lease", "error", err)
				next = nil // the next beat finds out what there is
			}
			lease = next
			// The node lifecycle controller speaks for a node that was silent for
			// too long; once it isn't, the kubelet must speak for itself again.
			if have, err := k.fleet.nodes.Get(node.Name); err == nil && !isReady(have) {
				if err := k.reportReady(ctx); err != nil && ctx.Err() == nil {
					k.log.Warn("report ready again", "error", err)
				}
				k.fleet.requeue(node.Name)
			}
		}
	}
}

// sleep waits and says whether the whole time has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// registerNode creates the Node, and tries again until the API server answers. A
// Node of the same name that was left by another machine is replaced; its own, from
// before a reboot, it takes up again.
func (k *kubelet) registerNode(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	nodes := k.fleet.cfg.Client.CoreV1().Nodes()
	for {
		made, err := nodes.Create(ctx, node, metav1.CreateOptions{})
		switch {
		case err == nil:
			return made, nil
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
			return nil, fmt.Errorf("register the node: %w", err)
		case apierrors.IsAlreadyExists(err):
			old, getErr := nodes.Get(ctx, node.Name, metav1.GetOptions{})
			switch {
			case getErr != nil:
				err = getErr
			case old.Spec.ProviderID == node.Spec.ProviderID:
				if old, err = k.registerAgain(ctx, old); err == nil {
					return old, nil
				}
			default:
				err = nodes.Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(old.UID))})
			}
		}
		if err != nil && ctx.Err() == nil {
			k.log.Warn("register the node", "error", err)
		}
		if !sleep(ctx, retryPeriod) {
			return nil, ctx.Err()
		}
	}
}

// registerAgain says of the machine's Node that it has been booted again and isn't ready.
func (k *kubelet) registerAgain(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	starting := condition(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", "the machine has just booted", metav1.Now())
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"conditions": []corev1.NodeCondition{starting},
		"nodeInfo":   map[string]any{"bootID": nextBootID(node.Status.NodeInfo.BootID)},
	}})
	if err != nil {
		return nil, fmt.Errorf("encode a node's status: %w", err)
	}
	return k.fleet.cfg.Client.CoreV1().Nodes().PatchStatus(ctx, node.Name, patch)
}

// initialize does what the cloud controller manager does with a new Node that
// has all its labels: it removes the taint that waits for it.
func (k *kubelet) initialize(ctx context.Context) error {
	nodes := k.fleet.cfg.Client.CoreV1().Nodes()
	err := retry.OnError(retry.DefaultBackoff, func(err error) bool { return apierrors.IsConflict(err) }, func() error {
		node, err := nodes.Get(ctx, k.machine.PrivateDNS, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintUninitialized })
		_, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("initialize the node: %w", err)
	}
	return nil
}

// reportReady sets the Ready condition.
func (k *kubelet) reportReady(ctx context.Context) error {
	patch, err := statusPatch(corev1.NodeStatus{Conditions: []corev1.NodeCondition{readyCondition(time.Now())}})
	if err != nil {
		return err
	}
	_, err = k.fleet.cfg.Client.CoreV1().Nodes().PatchStatus(ctx, k.machine.PrivateDNS, patch)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("report the node ready: %w", err)
	}
	return nil
}

// reportPeriod is how often a kubelet writes its node's status although nothing in it has
// changed: nodeStatusReportFrequency.
const reportPeriod = 5 * time.Minute

// firstReport is when the first of these is due: at a time of the machine's own within the
// period, as kubelets that start together spread theirs.
func firstReport(machine string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(machine)) // it can't fail
	return reportPeriod * time.Duration(h.Sum32()%1000) / 1000
}

// reportAlive writes when the conditions were last looked at.
func (k *kubelet) reportAlive(ctx context.Context) error {
	now := metav1.Now()
	var seen []map[string]any
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		seen = append(seen, map[string]any{"type": kind, "lastHeartbeatTime": now})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": seen}})
	if err != nil {
		return fmt.Errorf("encode a node's status: %w", err)
	}
	if _, err := k.fleet.cfg.Client.CoreV1().Nodes().PatchStatus(ctx, k.machine.PrivateDNS, patch); err != nil {
		return fmt.Errorf("report the node alive: %w", err)
	}
	return nil
}

// renew writes a heartbeat. It returns the lease as written, from which the next
// one follows without being read again; nil makes it anew.
func (k *kubelet) renew(ctx context.Context, last *coordinationv1.Lease, uid apitypes.UID) (*coordinationv1.Lease, error) {
	leases := k.fleet.cfg.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	if last != nil {
		next := last.DeepCopy()
		next.Spec.RenewTime = &now
		return leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	name := k.machine.PrivateDNS
	seconds := int32(k.fleet.cfg.LeaseDuration / time.Second)
	made, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: nodeOwner(name, uid)},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return leases.Get(ctx, name, metav1.GetOptions{})
	}
	return made, err
}
