package testkit

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/install"
	"github.com/coppice-dev/coppice/internal/testkit/await"
	"github.com/coppice-dev/coppice/schemas"
)

// Scheme knows Kubernetes' own kinds, CRDs, and every kind of Coppice.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensionsv1.AddToScheme, schemas.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Client returns a client that reads from the API server, not from a cache.
func Client(t testing.TB, cfg *rest.Config) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: Scheme(t)})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	return c
}

// crdLimit bounds how long the API server may take to serve new kinds; it takes
// about a second.
const crdLimit = 30 * time.Second

// InstallCRDs makes the API server serve every kind of Coppice.
func InstallCRDs(t testing.TB, c client.WithWatch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), crdLimit)
	defer cancel()
	crds := schemas.CRDs()
	for _, crd := range crds {
		if err := c.Create(ctx, crd); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("install %s: %v", crd.Name, err)
		}
	}
	for _, crd := range crds {
		err := await.Object(ctx, c, &apiextensionsv1.CustomResourceDefinitionList{}, types.NamespacedName{Name: crd.Name},
			func(have *apiextensionsv1.CustomResourceDefinition) (bool, string) {
				if have == nil {
					return false, "nothing"
				}
				for _, cond := range have.Status.Conditions {
					if cond.Type == apiextensionsv1.Established && cond.Status == apiextensionsv1.ConditionTrue {
						return true, ""
					}
				}
				return false, fmt.Sprint(have.Status.Conditions)
			})
		if err != nil {
			t.Fatalf("wait until %s is served: %v", crd.Name, err)
		}
	}
}

// Await waits until cond holds for the objects of a list, and fails the test when
// it doesn't within the limit. What is waited for is named by what, as in "every
// pod to run".
func Await[T client.Object](t testing.TB, c client.WithWatch, what string, limit time.Duration, list client.ObjectList, cond await.Condition[T], opts ...client.ListOption) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("%s is over", limit))
	defer cancel()
	if err := await.Objects(ctx, c, list, cond, opts...); err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}

// AwaitObject is Await for one object. The condition gets nil while there is none.
func AwaitObject[T client.Object](t testing.TB, c client.WithWatch, what string, limit time.Duration, list client.ObjectList, key types.NamespacedName, cond func(obj T) (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("%s is over", limit))
	defer cancel()
	if err := await.Object(ctx, c, list, key, cond); err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}

// AwaitGone waits until an object does not exist.
func AwaitGone(t testing.TB, c client.WithWatch, limit time.Duration, list client.ObjectList, key types.NamespacedName) {
	t.Helper()
	AwaitObject(t, c, key.String()+" to be gone", limit, list, key, func(obj client.Object) (bool, string) {
		return obj == nil, "it exists"
	})
}

// deleteLimit bounds a deletion.
const deleteLimit = time.Minute

// Delete deletes an object, which may be gone already. It may be called in a cleanup too,
// when the test's own context is over.
func Delete(t testing.TB, c client.Client, obj client.Object, opts ...client.DeleteOption) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), deleteLimit)
	defer cancel()
	if err := c.Delete(ctx, obj, opts...); err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("delete %s: %v", obj.GetName(), err)
	}
}

// AsInstalled makes what "coppice install" writes but for the Deployment and what belongs
// to it, lets the controller's service account read the Secrets of a namespace, and
// returns the administrator's configuration as that account's: who uses it can do what the
// controller could in a pod.
func AsInstalled(t testing.TB, kube client.Client, admin *rest.Config, namespace string) *rest.Config {
	t.Helper()
	const own = "coppice-system"
	var text bytes.Buffer
	if err := install.Write(&text, install.Options{Namespace: own, Image: "none", Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(text.String(), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		if k := o.GroupVersionKind().Group; k == "apps" || k == "policy" || o.GetKind() == "Service" {
			continue
		}
		if err := kube.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "RoleBinding" && o.GetName() == "coppice-sources" {
			o.SetNamespace(namespace)
			o.SetResourceVersion("")
			if err := kube.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	cfg := rest.CopyConfig(admin)
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + own + ":coppice",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + own, "system:authenticated"},
	}
	return cfg
}
