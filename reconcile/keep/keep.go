// Package keep carries what was learnt of the cloud across restarts of the controller:
// which offerings it was out of and for how long they are left alone, and how much
// memory nodes turned out to have.
//
// It is one ConfigMap in the controller's namespace, with nothing secret in it, that is
// written when something new is known, at most once a minute, and when the controller
// stops. Losing it costs some refused launches, never a node: a ConfigMap that can't be
// read or written stops nothing.
package keep

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Name is the ConfigMap's.
	Name = "coppice-cloud-knowledge"
	// dataKey is what it is under in the ConfigMap.
	dataKey = "ec2.json"
	// period is how often it is looked whether something new is known: about as long
	// as it takes to learn it again.
	period = time.Minute
	// parting is how long the last write may take, within the 30 s that a pod has.
	parting = 5 * time.Second
)

// Cloud is what learns.
type Cloud interface {
	// Knowledge is what should survive, as text that is equal while nothing new is known.
	Knowledge() ([]byte, error)
	// Learn takes it over.
	Learn(knowledge []byte) error
}

// keeper runs on the leader alone.
type keeper struct {
	reader    client.Reader // past the cache, which would hold all of the cluster's ConfigMaps
	writer    client.Writer
	cloud     Cloud
	clock     clock.Clock
	namespace string

	// learnt says that what was kept has been read. Until then nothing is written, which
	// would be over what a predecessor knew.
	learnt  bool
	written string
}

// Setup adds the keeper to mgr. Without a namespace nothing is kept.
func Setup(mgr ctrl.Manager, cloud Cloud, clk clock.Clock, namespace string) error {
	if namespace == "" {
		mgr.GetLogger().Info("what is learnt of the cloud isn't kept: the controller's namespace isn't known; give --leader-election-namespace")
		return nil
	}
	if err := mgr.Add(&keeper{reader: mgr.GetAPIReader(), writer: mgr.GetClient(), cloud: cloud, clock: clk, namespace: namespace}); err != nil {
		return fmt.Errorf("add keeper: %w", err)
	}
	return nil
}

// NeedLeaderElection keeps a standby from overwriting what the leader knows.
func (k *keeper) NeedLeaderElection() bool { return true }

// Start learns what was kept and keeps what is learnt until ctx ends.
func (k *keeper) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("keep")
	if err := k.learn(ctx); err != nil && ctx.Err() == nil {
		log.Error(err, "start without what was known of the cloud")
	}
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), parting)
			defer cancel()
			if err := k.keep(last); err != nil {
				log.Error(err, "keep what is known of the cloud")
			}
			return nil
		case <-k.clock.After(period):
			if err := k.keep(ctx); err != nil && ctx.Err() == nil {
				log.Error(err, "keep what is known of the cloud")
			}
		}
	}
}

func (k *keeper) learn(ctx context.Context) error {
	if k.learnt {
		return nil
	}
	var found corev1.ConfigMap
	err := k.reader.Get(ctx, types.NamespacedName{Namespace: k.namespace, Name: Name}, &found)
	if apierrors.IsNotFound(err) {
		k.learnt = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("get ConfigMap %s/%s: %w", k.namespace, Name, err)
	}
	// What can't be understood is written over.
	k.learnt = true
	if found.Data[dataKey] == "" {
		return nil
	}
	if err := k.cloud.Learn([]byte(found.Data[dataKey])); err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", k.namespace, Name, err)
	}
	k.written = found.Data[dataKey]
	return nil
}

// keep writes what is known unless that is what was written last.
func (k *keeper) keep(ctx context.Context) error {
	if err := k.learn(ctx); err != nil {
		return err
	}
	text, err := k.cloud.Knowledge()
	if err != nil {
		return err
	}
	if string(text) == k.written {
		return nil
	}
	data := map[string]string{dataKey: string(text)}
	patch, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", k.namespace, Name, err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: Name}}
	err = k.writer.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		object.Data = data
		err = k.writer.Create(ctx, object)
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", k.namespace, Name, err)
	}
	k.written = string(text)
	return nil
}
