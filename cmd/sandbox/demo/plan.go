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
)

// planLines is how much of a plan is printed: its summary, the object and the nodes.
const planLines = 24

// showPlan asks coppice what the author's edits would do, before they are pushed.
func (s *scene) showPlan(ctx context.Context) error {
	dir := filepath.Join(s.cfg.DataDir, "edited")
	if err := s.author.export(dir); err != nil {
		return err
	}
	began := time.Now()
	cmd := exec.CommandContext(ctx, s.cfg.Coppice, "plan", dir, "--kubeconfig", s.stack.Endpoints.Kubeconfig)
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
