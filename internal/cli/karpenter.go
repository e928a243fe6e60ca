package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/spf13/pflag"
)

// karpenterFlags are the flags of Karpenter that are called otherwise here or have
// nothing to say. They are taken so that a Deployment's arguments and environment can
// stay as they are.
type karpenterFlags struct {
	metricsPort, healthPort int
	noElection              bool
	idle                    map[string]*string // by name, as given
}

// idleFlag is a flag that changes nothing.
type idleFlag struct {
	name string
	flag bool // it may be given without a value
	// usual are the values that need no word: what they ask for is so anyway.
	usual   []string
	instead string // what is so instead of any other
}

// idleFlags are Karpenter's of 1.14 and 1.15.
// https://karpenter.sh/docs/reference/settings/
func idleFlags() []idleFlag {
	return []idleFlag{
		{"aws-feature-gates", false, nil, "none of these gates is known"},
		{"cpu-requests", false, []string{"1000", "1000m", "1"}, "the number of workers doesn't depend on it"},
		{"disable-cluster-state-observability", true, []string{"false"}, "metrics of nodes and pools are served all the same"},
		{"disable-controller-warmup", true, []string{"true"}, "controllers begin once their replica leads"},
		{"eks-control-plane", true, []string{"true", "false"}, ""}, // the version is the API server's
		{"ignore-dra-requests", true, []string{"true"}, "resource claims of pods are not looked at"},
		{"karpenter-service", false, []string{"*"}, ""}, // was for webhooks that are no more
		{"leader-election-name", false, []string{"karpenter-leader-election"}, "the Lease keeps its own name"},
		{"legacy-node-repair", true, []string{"false"}, "there is one kind of node repair"},
		{"log-error-output-paths", false, []string{"stderr"}, "logs go to the standard error"},
		{"log-output-paths", false, []string{"stdout", "stderr"}, "logs go to the standard error"},
		{"scheduler-config", false, nil, "the scheduler's configuration isn't read"},
	}
}

func (k *karpenterFlags) register(f *pflag.FlagSet) {
	f.IntVar(&k.metricsPort, "metrics-port", 0, "`port` of the metrics server on all addresses; --metrics-bind-address says more [METRICS_PORT]")
	f.IntVar(&k.healthPort, "health-probe-port", 0, "`port` of the health probes on all addresses; --health-probe-bind-address says more [HEALTH_PROBE_PORT]")
	f.BoolVar(&k.noElection, "disable-leader-election", false, "the same as --leader-elect=false [DISABLE_LEADER_ELECTION]")
	k.idle = map[string]*string{}
	for _, i := range idleFlags() {
		k.idle[i.name] = f.String(i.name, "", "accepted for Karpenter's sake")
		if i.flag {
			f.Lookup(i.name).NoOptDefVal = "true"
		}
		f.Lookup(i.name).Hidden = true
	}
}

// apply carries them over to ours, which win, and returns what to tell of the others.
func (k *karpenterFlags) apply(o *controllerOptions, f *pflag.FlagSet) ([]string, error) {
	var errs []error
	for _, x := range []struct {
		flag, ours string
		port       int
		address    *string
	}{
		{"metrics-port", "metrics-bind-address", k.metricsPort, &o.metricsAddress},
		{"health-probe-port", "health-probe-bind-address", k.healthPort, &o.healthAddress},
	} {
		switch {
		case x.port < 0 || x.port > math.MaxUint16:
			errs = append(errs, fmt.Errorf("--%s %d isn't a port; give one from 1 to %d, or 0 for none of its own", x.flag, x.port, math.MaxUint16))
		case x.port > 0 && !f.Changed(x.ours):
			*x.address = ":" + strconv.Itoa(x.port)
		}
	}
	if k.noElection && !f.Changed("leader-elect") {
		o.leaderElection = false
	}
	var words []string
	for _, i := range idleFlags() {
		if v := *k.idle[i.name]; v != "" && !slices.Contains(i.usual, v) && !slices.Contains(i.usual, "*") {
			words = append(words, fmt.Sprintf("--%s=%s changes nothing: %s", i.name, v, i.instead))
		}
	}
	return words, errors.Join(errs...)
}
