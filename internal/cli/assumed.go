package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/snapshot"
)

// assumed are flags of the controller that a plan is to take it to run with.
type assumed struct {
	preferences, minValues string
	limits                 map[string]string
	memoryOverhead         float64
	reservedENIs           int
	// given tells which of the flags were.
	given func(name string) bool
}

func (a *assumed) flags(f *pflag.FlagSet) {
	usual := snapshot.DefaultSettings()
	f.StringVar(&a.preferences, "preference-policy", usual.PreferencePolicy, "take the controller to run with this flag, whatever it says itself: Priced, Respect or Ignore")
	f.StringVar(&a.minValues, "min-values-policy", usual.MinValuesPolicy, "the same: Strict or BestEffort")
	f.StringToStringVar(&a.limits, "cluster-limits", nil, "the same, as in cpu=1000,memory=4Ti,nodes=200")
	f.Float64Var(&a.memoryOverhead, "vm-memory-overhead-percent", usual.MemoryOverhead, "the same")
	f.IntVar(&a.reservedENIs, "reserved-enis", usual.ReservedENIs, "the same")
}

// settings are what the controller is taken to run with: what it told, or else the
// defaults, but for the flags that are given. They are nil if none is.
func (a assumed) settings(told *snapshot.Controller) (*snapshot.Settings, error) {
	s := snapshot.DefaultSettings()
	if told != nil {
		s = told.Settings
	}
	var errs []error
	given := false
	take := func(name string, do func() error) {
		if a.given(name) {
			given, errs = true, append(errs, do())
		}
	}
	take("preference-policy", func() error {
		s.PreferencePolicy = a.preferences
		_, err := cluster.PreferencePolicy(a.preferences)
		return err
	})
	take("min-values-policy", func() error {
		s.MinValuesPolicy = a.minValues
		_, err := cluster.MinValuesPolicy(a.minValues)
		return err
	})
	take("cluster-limits", func() (err error) {
		s.ClusterLimits, err = clusterLimits(a.limits)
		return err
	})
	take("vm-memory-overhead-percent", func() error {
		if s.MemoryOverhead = a.memoryOverhead; s.MemoryOverhead < 0 || s.MemoryOverhead >= 1 {
			return fmt.Errorf("--vm-memory-overhead-percent %v: give a part of the whole, as in 0.075", a.memoryOverhead)
		}
		return nil
	})
	take("reserved-enis", func() error {
		if s.ReservedENIs = a.reservedENIs; s.ReservedENIs < 0 {
			return fmt.Errorf("--reserved-enis %d: give 0 or more", a.reservedENIs)
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		return nil, usagef("%v", err)
	}
	if !given {
		return nil, nil
	}
	return &s, nil
}
