package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/render/convert"
)

// importable is a kind that import reads from a cluster, in versions from the newest to
// the oldest: an API server gives each object in whichever version it is asked for.
type importable struct {
	group, resource string
	versions        []string
}

func importables() []importable {
	return []importable{
		{"karpenter.k8s.aws", "ec2nodeclasses", []string{"v1", "v1beta1"}},
		{"karpenter.k8s.aws", "awsnodetemplates", []string{"v1alpha1"}},
		{"karpenter.sh", "nodepools", []string{"v1", "v1beta1"}},
		{"karpenter.sh", "provisioners", []string{"v1alpha5"}},
		{"karpenter.sh", "nodeoverlays", []string{"v1alpha1"}},
		{"autoscaling.x-k8s.io", "capacitybuffers", []string{"v1beta1"}},
	}
}

// liveSources reads the objects of a cluster, one source for each.
func liveSources(ctx context.Context, kubeconfig string) ([]convert.Source, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, usagef("read the kubeconfig: %w; name one with --kubeconfig", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, &ExitError{Code: ExitFailed, Err: err}
	}
	var out []convert.Source
	for _, kind := range importables() {
		items, err := kind.list(ctx, client)
		if err != nil {
			return nil, &ExitError{Code: ExitFailed, Err: fmt.Errorf("list %s: %w", kind.resource, err)}
		}
		for _, item := range items {
			// What the server says of an object itself is no part of it.
			for _, name := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
				unstructured.RemoveNestedField(item.Object, "metadata", name)
			}
			text, err := yaml.Marshal(item.Object)
			if err != nil {
				return nil, &ExitError{Code: ExitFailed, Err: err}
			}
			out = append(out, convert.Source{Name: kind.resource + "/" + item.GetName(), Text: text})
		}
	}
	if len(out) == 0 {
		return nil, usagef("the cluster has no NodePools, EC2NodeClasses, Provisioners or AWSNodeTemplates; give node groups as FILE, from 'aws eks describe-nodegroup'")
	}
	return out, nil
}

// list reads all objects of the kind, none if the cluster doesn't have it.
func (k importable) list(ctx context.Context, client dynamic.Interface) ([]unstructured.Unstructured, error) {
	for _, version := range k.versions {
		all, err := client.Resource(schema.GroupVersionResource{Group: k.group, Version: version, Resource: k.resource}).List(ctx, metav1.ListOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		default:
			return all.Items, nil
		}
	}
	return nil, nil
}
