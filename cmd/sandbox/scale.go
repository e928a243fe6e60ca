package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/cmd/sandbox/scale"
)

func scaleCommand(stdout io.Writer, stderr *os.File) *cobra.Command {
	var cfg scale.Config
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Grow a sandbox to many nodes and pods and measure the controller",
		Long: `Start a sandbox and the coppice controller, create pods, and wait until each has its
node. Then print how long that took, how soon the nodes were initialized that came at
once, and what the controller used of processor and memory, under load and at rest.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Out = stdout
			return runScale(cmd.Context(), cfg, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Coppice, "coppice", filepath.Join("bin", "coppice"), "the coppice `program`")
	f.IntVar(&cfg.Nodes, "nodes", 1000, "`number` of nodes")
	f.IntVar(&cfg.Pods, "pods", 20_000, "`number` of pods, a multiple of that of nodes")
	f.BoolVar(&cfg.Bound, "bound", false, "create nodes with their pods instead of pods that wait for nodes; only the rest is measured then, but sooner")
	f.DurationVar(&cfg.BootDelay, "boot-delay", 10*time.Second, "`time` that machines take to boot; what is launched within it comes at once")
	f.DurationVar(&cfg.Settle, "settle", time.Minute, "`time` between the growth and the rest that is measured")
	f.DurationVar(&cfg.Rest, "rest", 2*time.Minute, "`time` that the controller is measured at rest")
	f.StringVar(&cfg.DataDir, "data-dir", "", "keep data and logs in this `folder`, which must be empty, and leave it there")
	return cmd
}

func runScale(ctx context.Context, cfg scale.Config, stderr *os.File) (err error) {
	if cfg.Coppice, err = exec.LookPath(cfg.Coppice); err != nil {
		return usageError{fmt.Errorf("find the coppice program: %w: build it with make build, or name it with --coppice", err)}
	}
	if err := cfg.Validate(); err != nil {
		return usageError{err}
	}
	dir, remove, err := makeDataDir(cfg.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	cfg.DataDir = dir
	if err := divertStderr(filepath.Join(dir, "components.log"), stderr); err != nil {
		return err
	}
	return scale.Run(ctx, cfg)
}
