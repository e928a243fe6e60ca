package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/cmd/sandbox/demo"
)

func demoCommand(stdout io.Writer, stderr *os.File) *cobra.Command {
	var cfg demo.Config
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play Coppice's main story on a sandbox, and check every step",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Out = stdout
			return runDemo(cmd.Context(), cfg, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Coppice, "coppice", filepath.Join("bin", "coppice"), "the coppice `program`")
	f.StringVar(&cfg.Examples, "examples", "examples", "`folder` of the examples")
	f.BoolVar(&cfg.Keep, "keep", false, "leave everything running at the end, until Ctrl-C")
	f.IntVar(&cfg.Patience, "patience", 1, "multiply every limit by this `number`, for a slow or busy machine")
	f.StringVar(&cfg.DataDir, "data-dir", "", "keep data and logs in this `folder`, which must be empty, and leave it there")
	return cmd
}

func runDemo(ctx context.Context, cfg demo.Config, stderr *os.File) (err error) {
	if cfg.Coppice, err = exec.LookPath(cfg.Coppice); err != nil {
		return usageError{fmt.Errorf("find the coppice program: %w: build it, or name it with --coppice", err)}
	}
	if _, err := os.Stat(filepath.Join(cfg.Examples, "single-cluster")); err != nil {
		return usageError{fmt.Errorf("find the examples: %w: run this in Coppice's folder, or name theirs with --examples", err)}
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
	return demo.Run(ctx, cfg)
}
