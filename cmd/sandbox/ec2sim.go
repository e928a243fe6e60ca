package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coppice-dev/coppice/cmd/sandbox/stack"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
)

// cloudOptions are the flags that describe the simulated account.
type cloudOptions struct {
	stack.Config
	scenario string
}

func (o *cloudOptions) cloud(f *pflag.FlagSet) {
	f.StringVar(&o.ClusterName, "cluster-name", "demo", "`name` of the EKS cluster")
	f.StringVar(&o.Region, "region", "us-west-2", "AWS `region` to simulate")
	f.StringVar(&o.Queue, "queue", "", "`name` of the SQS queue for interruptions (default: the cluster's name)")
	f.DurationVar(&o.BootDelay, "boot-delay", 3*time.Second, "`time` from an instance's launch to its running")
	f.DurationVar(&o.BootJitter, "boot-jitter", 0, "spread boots evenly over this `time` around the delay")
	f.DurationVar(&o.ShutdownDelay, "shutdown-delay", 2*time.Second, "`time` from the request to terminate to terminated")
	f.Uint64Var(&o.Seed, "seed", 1, "`number` that the simulator's choices follow from")
	f.BoolVar(&o.Unthrottled, "unthrottled", false, "let any rate of AWS calls through")
	f.StringVar(&o.scenario, "scenario", "", "`file` that says what happens in AWS, and when: shortages, prices, interruptions, outages, failures")
	f.Float64Var(&o.Speed, "speed", 1, "how many times faster than real time passes in AWS")
}

// load checks the flags and reads the scenario.
func (o *cloudOptions) load() error {
	if o.Speed <= 0 {
		return usageError{fmt.Errorf("speed %v: time passes forwards only", o.Speed)}
	}
	if o.scenario == "" {
		return nil
	}
	data, err := os.ReadFile(o.scenario)
	if err != nil {
		return usageError{fmt.Errorf("read the scenario: %w", err)}
	}
	sc, err := ec2sim.ParseScenario(data)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", o.scenario, err)}
	}
	o.Scenario = &sc
	return nil
}

func ec2simCommand(stdout io.Writer) *cobra.Command {
	var o cloudOptions
	var listen, info string
	cmd := &cobra.Command{
		Use:   "ec2sim",
		Short: "Start the EC2 simulator alone and keep it until Ctrl-C",
		Long: `Start the EC2 simulator alone: EC2, SSM, SQS, IAM, STS, EKS, Pricing and zonal
shift for one account and region on one port of 127.0.0.1. Any AWS SDK or CLI can
be pointed at it. Instances boot and end, but nothing runs on them.

sandbox ec2 lists and changes what is in it.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runEC2Sim(cmd.Context(), o, listen, info, stdout)
		},
	}
	f := cmd.Flags()
	o.cloud(f)
	f.StringVar(&listen, "listen", "127.0.0.1:0", "loopback `host:port` to listen on; port 0 takes a free one")
	f.StringVar(&info, "info", "", "write address and credentials as JSON to this `file`")
	return cmd
}

// onLoopback refuses addresses that others could reach.
func onLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return usageError{fmt.Errorf("listen on %q: %w", addr, err)}
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return usageError{fmt.Errorf("listen on %q: the simulator is for this machine alone; use 127.0.0.1", addr)}
	}
	return nil
}

func runEC2Sim(ctx context.Context, o cloudOptions, listen, info string, stdout io.Writer) error {
	if err := errors.Join(o.load(), onLoopback(listen)); err != nil {
		return usageError{err}
	}
	raw := make([]byte, 24)
	if _, err := rand.Read(raw); err != nil {
		return fmt.Errorf("draw a credential: %w", err)
	}
	e := endpoints.Endpoints{
		PID: os.Getpid(), ClusterName: o.ClusterName, Region: o.Region, Queue: cmp.Or(o.Queue, o.ClusterName),
		AccessKeyID: "AKIASANDBOX" + hex.EncodeToString(raw[:4]), SecretAccessKey: hex.EncodeToString(raw[4:]),
	}
	sim, err := ec2sim.New(ec2sim.Config{
		Region: o.Region, Clusters: []ec2sim.Cluster{{Name: o.ClusterName, Endpoint: "https://127.0.0.1:6443"}},
		BootDelay: o.BootDelay, BootJitter: o.BootJitter, ShutdownDelay: o.ShutdownDelay, Seed: o.Seed,
		Keys: map[string]string{e.AccessKeyID: e.SecretAccessKey}, Queues: []string{e.Queue}, Unthrottled: o.Unthrottled,
		Clock: ec2sim.NewClock(o.Speed), Scenario: o.Scenario,
	})
	if err != nil {
		return err
	}
	defer sim.Close()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	e.EC2 = "http://" + l.Addr().String()
	srv := &http.Server{Handler: sim, ReadHeaderTimeout: time.Minute}
	defer srv.Close() // it is the end of the process
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	if info != "" {
		if err := e.Write(info); err != nil {
			return err
		}
	}
	describeEC2(stdout, e)
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
		return nil
	}
}

// describeEC2 prints where AWS is and how to get there.
func describeEC2(w io.Writer, e endpoints.Endpoints) {
	fmt.Fprintf(w, "  EC2         %s for all AWS services, region %s\n", e.EC2, e.Region)
	fmt.Fprintf(w, "              export AWS_ENDPOINT_URL=%s AWS_REGION=%s AWS_ACCESS_KEY_ID=%s AWS_SECRET_ACCESS_KEY=%s\n", e.EC2, e.Region, e.AccessKeyID, e.SecretAccessKey)
}
