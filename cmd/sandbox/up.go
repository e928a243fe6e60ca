package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/cmd/sandbox/stack"
	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
)

type upOptions struct {
	cloudOptions
	info  string
	quiet bool
}

func upCommand(stdout io.Writer, stderr *os.File) *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a sandbox and keep it until Ctrl-C",
		Long: `Start a sandbox and keep it until Ctrl-C, SIGTERM or the end of the parent process.

What it listens on is printed when it is ready, and written as JSON with --info.
Unless --data-dir names a folder, everything is in a temporary one that is removed
at the end.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return up(cmd.Context(), o, stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.info, "info", "", "write addresses and credentials as JSON to this `file`, or as one line to stdout if it is -")
	f.StringVar(&o.DataDir, "data-dir", "", "keep data and logs in this `folder`, which must be empty, and leave it there")
	f.BoolVar(&o.quiet, "quiet", false, "log only what goes wrong")
	o.cloud(f)
	f.DurationVar(&o.ReadyDelay, "node-ready-delay", time.Second, "`time` from a node's registration to its being ready")
	f.DurationVar(&o.PodDelay, "pod-delay", 200*time.Millisecond, "`time` from a pod's being bound to its running")
	f.DurationVar(&o.NodeGrace, "node-grace", 50*time.Second, "how long a node may be silent before it counts as lost")
	return cmd
}

func up(ctx context.Context, o upOptions, stdout io.Writer, stderr *os.File) (err error) {
	began := time.Now()
	if err := o.load(); err != nil {
		return err
	}
	dir, remove, err := makeDataDir(o.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	o.DataDir = dir
	if err := divertStderr(filepath.Join(dir, "components.log"), stderr); err != nil {
		return err
	}
	level := slog.LevelInfo
	if o.quiet {
		level = slog.LevelWarn
	}
	o.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))

	s, err := stack.Up(ctx, o.Config)
	if err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop before it was ready
		}
		return err
	}
	defer s.Close()
	talk := stdout
	switch o.info {
	case "":
	case "-":
		line, err := json.Marshal(s.Endpoints)
		if err != nil {
			return fmt.Errorf("encode the endpoints: %w", err)
		}
		if _, err := fmt.Fprintf(stdout, "%s\n", line); err != nil {
			return fmt.Errorf("write the endpoints: %w", err)
		}
		talk = stderr
	default:
		if err := s.Endpoints.Write(o.info); err != nil {
			return err
		}
	}
	if !o.quiet {
		describe(talk, s.Endpoints, time.Since(began))
	}
	select {
	case err := <-s.Failed():
		return err
	case <-ctx.Done():
		if cause := context.Cause(ctx); !o.quiet {
			fmt.Fprintf(talk, "%v: stopping\n", cause)
		}
		return nil
	}
}

// describe prints where everything is.
func describe(w io.Writer, e endpoints.Endpoints, took time.Duration) {
	fmt.Fprintf(w, "sandbox is ready after %.1f s\n\n", took.Seconds())
	fmt.Fprintf(w, "  Kubernetes  %s\n", e.APIServer)
	fmt.Fprintf(w, "              export KUBECONFIG=%s\n", e.Kubeconfig)
	describeEC2(w, e)
	fmt.Fprintf(w, "  Git         %s\n", e.CloneURL("NAME"))
	fmt.Fprintf(w, "              a repository is made by the first push to it\n")
	fmt.Fprintf(w, "  data, logs  %s\n\n", e.DataDir)
}
