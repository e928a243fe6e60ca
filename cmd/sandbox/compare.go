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

	"github.com/coppice-dev/coppice/cmd/sandbox/compare"
)

func compareCommand(stdout io.Writer, stderr *os.File) *cobra.Command {
	var cfg compare.Config
	var minutes float64
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Measure Coppice beside an unmodified Karpenter on one sandbox",
		Long: `Play the same scenarios with Coppice and with Karpenter in turn, on one sandbox,
and print what each took: time until pods are bound, nodes, dollars, EC2 calls,
processor time and memory, each as a ratio beside the bar that was set for it.

The scenario named proof compares nothing: it checks that Karpenter, unmodified,
works on the sandbox as on EC2.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Out, cfg.Trough = stdout, time.Duration(minutes*float64(time.Minute))
			return runCompare(cmd.Context(), cfg, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Coppice, "coppice", filepath.Join("bin", "coppice"), "the coppice `program`")
	f.StringVar(&cfg.Karpenter, "karpenter", filepath.Join("bin", "karpenter"), "the karpenter `program`")
	f.StringVar(&cfg.Examples, "examples", "examples", "`folder` of the examples")
	f.StringSliceVar(&cfg.Scenarios, "scenarios", nil, "`names` of the scenarios to play, in this order (default all)")
	f.IntVar(&cfg.Rounds, "rounds", 3, "`number` of times that each is played with each controller")
	f.Float64Var(&minutes, "minutes", 15, "how many `minutes` the constrained trough is watched")
	f.DurationVar(&cfg.Window, "window", 4*time.Minute, "`time` that consolidation is watched after a scale-down")
	f.DurationVar(&cfg.BootDelay, "boot-delay", 0, "`time` that machines take to boot; at 0 what is compared is the controllers' own time")
	f.BoolVar(&cfg.EqualBatch, "equal-batch", false, "give Karpenter Coppice's batch window in place of its default")
	f.StringArrayVar(&cfg.KarpenterEnv, "karpenter-env", nil, "a further environment variable of Karpenter, as in `NAME=value`")
	f.StringVar(&cfg.OutFile, "out", "", "write the results as JSON to this `file`")
	f.StringVar(&cfg.DataDir, "data-dir", "", "keep data and logs in this `folder`, which must be empty, and leave it there")
	return cmd
}

func runCompare(ctx context.Context, cfg compare.Config, stderr *os.File) (err error) {
	for _, program := range []struct {
		name string
		path *string
	}{{"coppice", &cfg.Coppice}, {"karpenter", &cfg.Karpenter}} {
		if *program.path, err = exec.LookPath(*program.path); err != nil {
			return usageError{fmt.Errorf("find the %s program: %w: build it with make %[1]s, or name it with --%[1]s", program.name, err)}
		}
	}
	if _, err := os.Stat(filepath.Join(cfg.Examples, "workloads")); err != nil {
		return usageError{fmt.Errorf("find the examples: %w: run this in Coppice's folder, or name theirs with --examples", err)}
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
	return compare.Run(ctx, cfg)
}
