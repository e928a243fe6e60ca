package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// settings are all of Karpenter's, with a value that isn't the default.
// https://karpenter.sh/docs/reference/settings/
func settings() map[string]string {
	return map[string]string{
		"aws-feature-gates": "NodeClassCEL=true", "batch-idle-duration": "2s", "batch-max-duration": "20s",
		"cluster-ca-bundle": "Q0E=", "cluster-endpoint": "https://10.0.0.1", "cluster-name": "demo", "cpu-requests": "4",
		"ami-refresh-interval": "5m", "subnet-refresh-interval": "5m", "security-group-refresh-interval": "5m",
		"disable-cluster-state-observability": "true", "disable-controller-warmup": "false", "disable-dry-run": "true",
		"disable-leader-election": "true", "eks-control-plane": "true", "enable-profiling": "true", "enable-zonal-shift": "true",
		"feature-gates":     "ReservedCapacity=true,SpotToSpotConsolidation=true,NodeRepair=false,NodeOverlay=false,StaticCapacity=false",
		"health-probe-port": "9081", "ignore-dra-requests": "false", "interruption-queue": "q", "isolated-vpc": "true",
		"karpenter-service": "karpenter", "kube-client-burst": "400", "kube-client-qps": "300",
		"leader-election-name": "mine", "leader-election-namespace": "kube-system", "legacy-node-repair": "true",
		"log-error-output-paths": "/tmp/e", "log-level": "debug", "log-output-paths": "stdout", "memory-limit": "1000000000",
		"metrics-port": "9080", "min-values-policy": "BestEffort", "preference-policy": "Ignore", "reserved-enis": "1",
		"scheduler-config": "x", "vm-memory-overhead-percent": "0.05",
	}
}

// Whoever ran Karpenter with any of its settings can run Coppice with them.
func TestKarpentersSettings(t *testing.T) {
	check := func(t *testing.T, o *controllerOptions, f *pflag.FlagSet) {
		t.Helper()
		words, err := o.karpenter.apply(o, f)
		if err != nil {
			t.Fatal(err)
		}
		got := []any{o.metricsAddress, o.healthAddress, o.leaderElection, o.memoryLimit, o.profiling}
		if diff := cmp.Diff([]any{":9080", ":9081", false, int64(1e9), true}, got); diff != "" {
			t.Errorf("obeyed (-want +got):\n%s", diff)
		}
		want := `--aws-feature-gates=NodeClassCEL=true changes nothing: none of these gates is known
--cpu-requests=4 changes nothing: the number of workers doesn't depend on it
--disable-cluster-state-observability=true changes nothing: metrics of nodes and pools are served all the same
--disable-controller-warmup=false changes nothing: controllers begin once their replica leads
--ignore-dra-requests=false changes nothing: resource claims of pods are not looked at
--leader-election-name=mine changes nothing: the Lease keeps its own name
--legacy-node-repair=true changes nothing: there is one kind of node repair
--log-error-output-paths=/tmp/e changes nothing: logs go to the standard error
--scheduler-config=x changes nothing: the scheduler's configuration isn't read`
		if diff := cmp.Diff(want, strings.Join(words, "\n")); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	}
	t.Run("flags", func(t *testing.T) {
		var o controllerOptions
		f := pflag.NewFlagSet("controller", pflag.ContinueOnError)
		o.register(f)
		var args []string
		for k, v := range settings() {
			args = append(args, "--"+k+"="+v)
		}
		if err := f.Parse(args); err != nil {
			t.Fatal(err)
		}
		check(t, &o, f)
	})
	t.Run("environment", func(t *testing.T) {
		var o controllerOptions
		f := pflag.NewFlagSet("controller", pflag.ContinueOnError)
		o.register(f)
		for k, v := range settings() {
			t.Setenv(strings.ToUpper(strings.ReplaceAll(k, "-", "_")), v)
		}
		if err := fromEnvironment(f); err != nil {
			t.Fatal(err)
		}
		check(t, &o, f)
	})
	t.Run("a Service's variable", func(t *testing.T) {
		var o controllerOptions
		f := pflag.NewFlagSet("controller", pflag.ContinueOnError)
		o.register(f)
		t.Setenv("METRICS_PORT", "tcp://10.96.0.7:80")
		if err := fromEnvironment(f); err != nil || f.Changed("metrics-port") {
			t.Errorf("METRICS_PORT of a Service was read: %v", err)
		}
	})
	t.Run("ours win", func(t *testing.T) {
		var o controllerOptions
		f := pflag.NewFlagSet("controller", pflag.ContinueOnError)
		o.register(f)
		if err := f.Parse([]string{"--metrics-port=9080", "--metrics-bind-address=127.0.0.1:1", "--disable-leader-election", "--leader-elect", "--disable-cluster-state-observability"}); err != nil {
			t.Fatal(err)
		}
		words, err := o.karpenter.apply(&o, f)
		if err != nil || len(words) != 1 || o.metricsAddress != "127.0.0.1:1" || !o.leaderElection {
			t.Errorf("metrics at %s, election %t, told %q, %v", o.metricsAddress, o.leaderElection, words, err)
		}
	})
}
