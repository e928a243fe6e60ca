// Package snapshot takes a picture of a cluster as far as nodes are concerned, to
// explain decisions or try changes without the cluster: "coppice snapshot" writes
// it, other commands read it instead of asking the API server.
//
// Of pods, nodes and volumes the fields that it holds are listed: one that isn't named
// here doesn't leave the cluster. Kinds of Coppice's own and of policy are kept whole
// but for what may hold a secret. So there is no environment, command, user data,
// mount option or annotation of others in it, and Secrets and ConfigMaps are never
// read.
package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Kind and APIVersion are at the top of every snapshot. A reader refuses others.
const (
	Kind       = "Snapshot"
	APIVersion = "coppice.dev/v1alpha1"
)

// Snapshot is the picture. Lists are sorted by namespace and name.
type Snapshot struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	TakenAt    time.Time `json:"takenAt"`

	NodePools   []karpenter.NodePool  `json:"nodePools"`
	NodeClasses []aws.EC2NodeClass    `json:"nodeClasses"`
	NodeClaims  []karpenter.NodeClaim `json:"nodeClaims"`
	NodeSources []coppice.NodeSource  `json:"nodeSources"`

	Nodes      []corev1.Node                  `json:"nodes"`
	Pods       []corev1.Pod                   `json:"pods"`
	DaemonSets []appsv1.DaemonSet             `json:"daemonSets"`
	Budgets    []policyv1.PodDisruptionBudget `json:"podDisruptionBudgets"`
	Namespaces []corev1.Namespace             `json:"namespaces"`
	Volumes    []corev1.PersistentVolume      `json:"persistentVolumes"`
	Claims     []corev1.PersistentVolumeClaim `json:"persistentVolumeClaims"`
	Classes    []storagev1.StorageClass       `json:"storageClasses"`
	CSINodes   []storagev1.CSINode            `json:"csiNodes"`

	// Declared are the objects of the kinds that Git can declare, as the API server holds
	// them but for their status: NodePools and EC2NodeClasses once more, NodeOverlays and
	// CapacityBuffers.
	Declared []unstructured.Unstructured `json:"declared"`

	// Events are those that Coppice wrote.
	Events []eventsv1.Event `json:"events"`
	// Decisions are the controller's record, empty if it couldn't be asked.
	Decisions []record.Entry `json:"decisions"`
	// Controller is what it works with, nil if it couldn't be asked.
	Controller *Controller `json:"controller,omitempty"`
}

// Reporter is the name under which Coppice writes events; some have one below its own
// API group.
const Reporter = "coppice"

// page is how many objects are asked for at once: kubectl's own size.
const page = 500

// Take reads a cluster at time now.
func Take(ctx context.Context, c client.Reader, now time.Time) (*Snapshot, error) {
	s := &Snapshot{APIVersion: APIVersion, Kind: Kind, TakenAt: now.UTC().Truncate(time.Second)}
	err := errors.Join(
		list(ctx, c, &karpenter.NodePoolList{}, func(l *karpenter.NodePoolList) { s.NodePools = append(s.NodePools, l.Items...) }),
		list(ctx, c, &aws.EC2NodeClassList{}, func(l *aws.EC2NodeClassList) { s.NodeClasses = append(s.NodeClasses, l.Items...) }),
		list(ctx, c, &karpenter.NodeClaimList{}, func(l *karpenter.NodeClaimList) { s.NodeClaims = append(s.NodeClaims, l.Items...) }),
		list(ctx, c, &coppice.NodeSourceList{}, func(l *coppice.NodeSourceList) { s.NodeSources = append(s.NodeSources, l.Items...) }),
		list(ctx, c, &corev1.NodeList{}, func(l *corev1.NodeList) { s.Nodes = append(s.Nodes, l.Items...) }),
		list(ctx, c, &corev1.PodList{}, func(l *corev1.PodList) { s.Pods = append(s.Pods, l.Items...) }),
		list(ctx, c, &appsv1.DaemonSetList{}, func(l *appsv1.DaemonSetList) { s.DaemonSets = append(s.DaemonSets, l.Items...) }),
		list(ctx, c, &policyv1.PodDisruptionBudgetList{}, func(l *policyv1.PodDisruptionBudgetList) { s.Budgets = append(s.Budgets, l.Items...) }),
		list(ctx, c, &corev1.NamespaceList{}, func(l *corev1.NamespaceList) { s.Namespaces = append(s.Namespaces, l.Items...) }),
		list(ctx, c, &corev1.PersistentVolumeList{}, func(l *corev1.PersistentVolumeList) { s.Volumes = append(s.Volumes, l.Items...) }),
		list(ctx, c, &corev1.PersistentVolumeClaimList{}, func(l *corev1.PersistentVolumeClaimList) { s.Claims = append(s.Claims, l.Items...) }),
		list(ctx, c, &storagev1.StorageClassList{}, func(l *storagev1.StorageClassList) { s.Classes = append(s.Classes, l.Items...) }),
		list(ctx, c, &storagev1.CSINodeList{}, func(l *storagev1.CSINodeList) { s.CSINodes = append(s.CSINodes, l.Items...) }),
		list(ctx, c, &eventsv1.EventList{}, func(l *eventsv1.EventList) {
			s.Events = append(s.Events, slices.DeleteFunc(l.Items, func(e eventsv1.Event) bool {
				return e.ReportingController != Reporter && !strings.HasPrefix(e.ReportingController, coppice.Group+"/")
			})...)
		}),
	)
	if err != nil {
		return nil, err
	}
	if s.Declared, err = takeDeclared(ctx, c); err != nil {
		return nil, err
	}
	s.strip()
	s.sort()
	return s, nil
}

// list reads all pages of a kind, each into a copy of an empty list: what is decoded
// into a list that has been used before is mixed with what was there.
func list[L client.ObjectList](ctx context.Context, c client.Reader, empty L, add func(L)) error {
	for token := ""; ; {
		into, ok := empty.DeepCopyObject().(L)
		if !ok {
			panic(fmt.Sprintf("a copy of a %T is none", empty))
		}
		if err := c.List(ctx, into, client.Limit(page), client.Continue(token)); err != nil {
			return fmt.Errorf("list %s: %w", strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", into), "*"), "List"), err)
		}
		add(into)
		if token = into.GetContinue(); token == "" {
			return nil
		}
	}
}

func (s *Snapshot) sort() {
	byName(s.NodePools)
	byName(s.NodeClasses)
	byName(s.NodeClaims)
	byName(s.NodeSources)
	byName(s.Nodes)
	byName(s.Pods)
	byName(s.DaemonSets)
	byName(s.Budgets)
	byName(s.Namespaces)
	byName(s.Volumes)
	byName(s.Claims)
	byName(s.Classes)
	byName(s.CSINodes)
	byName(s.Events)
}

func byName[T any, P interface {
	*T
	client.Object
}](items []T) {
	slices.SortFunc(items, func(a, b T) int {
		x, y := P(&a), P(&b)
		return strings.Compare(x.GetNamespace()+"/"+x.GetName(), y.GetNamespace()+"/"+y.GetName())
	})
}

// Write writes the snapshot as indented JSON.
func (s *Snapshot) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(s); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Read reads what Write wrote.
func Read(r io.Reader) (*Snapshot, error) {
	s := &Snapshot{}
	d := json.NewDecoder(r)
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("read snapshot: %w; 'coppice snapshot' writes one", err)
	}
	if s.Kind != Kind || s.APIVersion != APIVersion {
		return nil, fmt.Errorf("read snapshot: it is %q of %q, not %q of %q; 'coppice snapshot' writes one", s.Kind, s.APIVersion, Kind, APIVersion)
	}
	return s, nil
}
