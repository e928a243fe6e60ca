package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-billy/v5/util"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/snapshot"
)

// planLines is how much of a plan is printed: its summary, the object and the nodes.
const planLines = 24

// showPlan asks coppice what the author's edits would do, before they are pushed.
func (s *scene) showPlan(ctx context.Context) error {
	dir := filepath.Join(s.cfg.DataDir, "edited")
	if err := s.author.export(dir); err != nil {
		return err
	}
	token, err := s.planner(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	// The controller's certificate is its own, made when it started.
	cmd := exec.CommandContext(ctx, s.cfg.Coppice, "plan", dir, "--kubeconfig", s.stack.Endpoints.Kubeconfig,
		"--controller", "https://"+s.coppice.secure, "--insecure-skip-tls-verify", "--token", token)
	cmd.Env = []string{"HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("coppice plan: %w: %s", err, errs.String())
	}
	s.story.say("coppice plan, in %.1f s, before the push:", time.Since(began).Seconds())
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	for i, l := range lines {
		if i == planLines {
			s.story.detail("... and %d lines more", len(lines)-i)
			break
		}
		s.story.detail("%s", l)
	}
	return nil
}

// planner is the token of somebody who may ask the controller what plans count with.
func (s *scene) planner(ctx context.Context) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "planner"}}
	for _, o := range []client.Object{
		account,
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: account.Name},
			Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{snapshot.ControllerPath}, Verbs: []string{"get"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: account.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name}},
		},
	} {
		if err := s.client.Create(ctx, o); err != nil {
			return "", fmt.Errorf("let the planner ask the controller: %w", err)
		}
	}
	request := &authenticationv1.TokenRequest{}
	if err := s.client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("make a token for the planner: %w", err)
	}
	return request.Status.Token, nil
}

// export writes the clone's files to a folder on disk.
func (a *author) export(dir string) error {
	tree, err := a.repo.Worktree()
	if err != nil {
		return fmt.Errorf("open the clone: %w", err)
	}
	return util.Walk(tree.Filesystem, "/", func(name string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := util.ReadFile(tree.Filesystem, name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	})
}
