package kubelet

import (
	"context"
	"path"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// collectNodes deletes Nodes as the cloud controller manager does: those that
// are not ready and whose machine does not exist any more. A machine that ends
// without a word is seen to be not ready when its lease has run out.
func (f *Fleet) collectNodes(ctx context.Context) {
	tick := time.NewTicker(f.cfg.CloudPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		nodes, err := f.nodes.List(labels.Everything())
		if err != nil {
			continue
		}
		for _, node := range nodes {
			if node.DeletionTimestamp != nil || isReady(node) || !f.isGone(path.Base(node.Spec.ProviderID)) {
				continue
			}
			err := f.cfg.Client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{
				Preconditions: metav1.NewUIDPreconditions(string(node.UID)),
			})
			if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				f.cfg.Log.Warn("delete the node of a machine that is gone", "node", node.Name, "error", err)
			}
		}
	}
}

func (f *Fleet) isGone(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone[id]
}
