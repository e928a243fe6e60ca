package disrupt

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/consolidate"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// Pool is a NodePool with what its annotations ask for beyond its spec.
type Pool struct {
	*karpenter.NodePool
	Options sugar.Options
	// Err says which annotations can't be read. None of the pool's nodes is taken away
	// voluntarily then.
	Err error
	// Target names what the pool would launch today, for approvals.
	Target string
}

// approved reports whether drifted nodes may be replaced by what the pool would launch.
func (p Pool) approved() bool {
	return p.Options.DriftApproval == "" || p.Options.DriftApproval == p.Target
}

// NewPool reads a NodePool's annotations.
func NewPool(p *karpenter.NodePool) Pool {
	o, err := sugar.Parse(p.Annotations)
	return Pool{NodePool: p, Options: o, Err: err}
}

// settleTime is how long a node must have been quiet before it is consolidated for a
// reason.
func (p Pool) settleTime(reason karpenter.DisruptionReason) karpenter.NillableDuration {
	text := ""
	if c := p.Options.ConsolidateAfter; c != nil {
		if reason == karpenter.DisruptionReasonEmpty {
			text = c.Empty
		} else {
			text = c.Underutilized
		}
	}
	if text != "" {
		if d, err := karpenter.ParseNillableDuration(text); err == nil {
			return d
		}
	}
	return p.Spec.Disruption.ConsolidateAfter
}

// duration reads a duration that was checked before; "" is 0.
func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return d
}

// bounds is what a search may do to the pool's nodes.
func (p Pool) bounds(budget int) consolidate.Pool {
	out := consolidate.Pool{
		Budget:   budget,
		Balanced: p.Spec.Disruption.ConsolidationPolicy == karpenter.ConsolidationPolicyBalanced,
		Chosen:   p.Options.MinSavings != "",
	}
	text, percent := strings.CutSuffix(p.Options.MinSavings, "%")
	if v, err := strconv.ParseFloat(text, 64); err == nil && percent {
		out.MinPermille = int64(math.Round(v * 10))
	} else if err == nil {
		out.MinSavings = int64(math.Round(v * 1e6))
	}
	return out
}
