package testkit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit/await"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

func TestGit(t *testing.T) {
	g := Git(t, "fleet")
	clone := func(user, password string) error {
		_, err := git.Clone(memory.NewStorage(), nil, &git.CloneOptions{URL: g.Repo("fleet"), Auth: &githttp.BasicAuth{Username: user, Password: password}})
		return err
	}
	if err := clone(g.Username, g.Password); !errors.Is(err, transport.ErrEmptyRemoteRepository) {
		t.Errorf("clone of an empty repository: %v", err)
	}
	if err := clone(g.Username, "wrong"); !errors.Is(err, transport.ErrAuthenticationRequired) {
		t.Errorf("clone with a wrong password: %v", err)
	}
}

func TestEC2(t *testing.T) {
	sim, _ := EC2(t, ec2sim.Config{Keys: map[string]string{"AKIAONE": "one"}, Clusters: []ec2sim.Cluster{{Name: "demo"}}})
	cfg, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out, err := ec2.NewFromConfig(cfg).DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Subnets) < 3 || cfg.Region != "us-west-2" {
		t.Errorf("%d subnets in %s", len(out.Subnets), cfg.Region)
	}
	if n := len(sim.Instances()); n != 0 {
		t.Errorf("a new account has %d instances", n)
	}
}

// TestSandbox uses everything that a test of a controller needs.
func TestSandbox(t *testing.T) {
	env := Sandbox(t, "--boot-delay=0s")
	env.Setenv(t)
	if cfg, err := config.LoadDefaultConfig(t.Context()); err != nil || cfg.BaseEndpoint == nil || *cfg.BaseEndpoint != env.EC2 {
		t.Errorf("the AWS SDK doesn't find the sandbox: %v", err)
	}
	c := Client(t, env.REST)
	InstallCRDs(t, c)
	InstallCRDs(t, c) // of no effect

	src := &coppice.NodeSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fleet"},
		Spec:       coppice.NodeSourceSpec{URL: "ftp://example.com"},
	}
	if err := c.Create(t.Context(), src); err == nil || !strings.Contains(err.Error(), "spec.url") {
		t.Errorf("the CRD took an FTP URL: %v", err)
	}
	key := types.NamespacedName{Namespace: "default", Name: "fleet"}
	seen := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		seen <- await.Object(ctx, c, &coppice.NodeSourceList{}, key, func(s *coppice.NodeSource) (bool, string) {
			return s != nil && s.Labels["stage"] == "two", "nothing"
		})
	}()
	src = &coppice.NodeSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fleet", Labels: map[string]string{"stage": "one"}},
		Spec:       coppice.NodeSourceSpec{URL: env.Repo("fleet")},
	}
	if err := c.Create(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	src.Labels["stage"] = "two"
	if err := c.Update(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	if err := <-seen; err != nil {
		t.Error(err)
	}
	AwaitObject(t, c, "the NodeSource", 20*time.Second, &coppice.NodeSourceList{}, key, func(s *coppice.NodeSource) (bool, string) {
		return s != nil, "nothing"
	})
	Delete(t, c, src)
	AwaitGone(t, c, 20*time.Second, &coppice.NodeSourceList{}, key)
	Delete(t, c, src) // gone already

	// In vain, it says what it has seen.
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("enough"))
	defer cancel()
	err := await.Objects(ctx, c, &corev1.NamespaceList{}, func(all []*corev1.Namespace) (bool, string) {
		return false, "namespace " + all[0].Name
	})
	if err == nil || err.Error() != "enough; last seen: namespace default" {
		t.Errorf("got %v", err)
	}
}
