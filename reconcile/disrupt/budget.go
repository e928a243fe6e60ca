package disrupt

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Allowed returns how many nodes of a pool may be on their way out for a reason at
// time now: the least of what the budgets that are active and cover the reason say.
// Percentages are of nodes and round up. With no such budget it is unlimited.
// A budget that can't be read allows none, and comes with the error.
func Allowed(budgets []karpenter.Budget, reason karpenter.DisruptionReason, nodes int, now time.Time) (int, error) {
	allowed := math.MaxInt
	for i, b := range budgets {
		if len(b.Reasons) > 0 && !slices.Contains(b.Reasons, reason) {
			continue
		}
		on, err := active(b, now)
		if err != nil {
			return 0, fmt.Errorf("budgets[%d]: %w", i, err)
		}
		if !on {
			continue
		}
		n, err := count(b.Nodes, nodes)
		if err != nil {
			return 0, fmt.Errorf("budgets[%d]: %w", i, err)
		}
		allowed = min(allowed, n)
	}
	return allowed, nil
}

// active reports whether now lies within duration after one of the schedule's times.
func active(b karpenter.Budget, now time.Time) (bool, error) {
	if b.Schedule == nil {
		return true, nil
	}
	// Schedules are in UTC whatever the machine's zone, as the API says.
	s, err := cron.ParseStandard("TZ=UTC " + *b.Schedule)
	if err != nil {
		return false, fmt.Errorf("schedule %q: %w", *b.Schedule, err)
	}
	if b.Duration == nil {
		return false, fmt.Errorf("schedule %q has no duration", *b.Schedule)
	}
	// Next is strictly later than its argument, so a window that opened exactly
	// duration ago has just closed.
	return !s.Next(now.UTC().Add(-b.Duration.Duration)).After(now), nil
}

func count(text string, nodes int) (int, error) {
	percent, isPercent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(percent)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("nodes %q is neither a count nor a percentage", text)
	}
	if isPercent {
		return (n*nodes + 99) / 100, nil
	}
	return n, nil
}
