package install

import (
	"bytes"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// objects decodes what Write writes, strictly.
func objects(t *testing.T, o Options) []runtime.Object {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, o); err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var out []runtime.Object
	for _, doc := range strings.Split(b.String(), "\n---\n") {
		obj, _, err := strict.Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		out = append(out, obj)
	}
	return out
}

func TestWrite(t *testing.T) {
	// A value that is YAML, or a template, stays a value.
	hostile := "--queue={{.Image}}\"\n- x: y # z"
	o := Options{Namespace: "ours", Image: "example.org:5000/coppice@sha256:00", Replicas: 3, RoleARN: "arn:aws:iam::111122223333:role/path/coppice", Flags: []string{"--cluster-name=c", hostile}}
	for _, obj := range objects(t, o) {
		switch x := obj.(type) {
		case *appsv1.Deployment:
			c := x.Spec.Template.Spec.Containers[0]
			if x.Namespace != "ours" || *x.Spec.Replicas != 3 || c.Image != o.Image || len(c.Args) != 3 || c.Args[2] != hostile {
				t.Errorf("the Deployment is in %s, %d of %s with %q", x.Namespace, *x.Spec.Replicas, c.Image, c.Args)
			}
		case *corev1.ServiceAccount:
			if x.Annotations["eks.amazonaws.com/role-arn"] != o.RoleARN {
				t.Errorf("the service account has annotations %v", x.Annotations)
			}
		case *rbacv1.ClusterRoleBinding:
			if x.Subjects[0].Namespace != "ours" {
				t.Errorf("rights go to %v", x.Subjects)
			}
		case *rbacv1.ClusterRole:
			for _, r := range x.Rules {
				for _, list := range [][]string{r.Verbs, r.APIGroups, r.Resources, r.NonResourceURLs} {
					for _, s := range list {
						if strings.Contains(s, "*") {
							t.Errorf("ClusterRole %s has a right to everything: %v", x.Name, r)
						}
					}
				}
				for _, s := range r.Resources {
					if s == "secrets" && x.Name != "coppice-sources" {
						t.Errorf("ClusterRole %s reads Secrets of all namespaces", x.Name)
					}
				}
			}
		}
	}
}

func TestRefused(t *testing.T) {
	good := Options{Namespace: "n", Image: "i", Replicas: 1}
	for name, test := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"namespace": {func(o *Options) { o.Namespace = "a\nb" }, "is no name of one"},
		"image":     {func(o *Options) { o.Image = "i: latest" }, "is no reference to one"},
		"replicas":  {func(o *Options) { o.Replicas = 0 }, "run nothing"},
		"role":      {func(o *Options) { o.RoleARN = "coppice" }, "is no ARN"},
	} {
		o := good
		test.change(&o)
		var b bytes.Buffer
		if err := Write(&b, o); err == nil || !strings.Contains(err.Error(), test.want) || b.Len() > 0 {
			t.Errorf("%s: wrote %d bytes, %v; want an error with %q", name, b.Len(), err, test.want)
		}
	}
}
