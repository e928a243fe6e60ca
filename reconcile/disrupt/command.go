package disrupt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Command takes machines away together, after others have come in their place. What
// is written onto claims is all that is needed to go on with it or take it back.
type Command struct {
	coppice.Disruption

	// New are the replacements as planned, Saves is what is saved in micro-dollars an
	// hour and Moves how many pods move.
	New   []pack.NewNode
	Saves int64
	Moves int
}

// newCommand names a command and its replacements. Names are made here, not by the
// API server, so that after a crash it is known which replacements there should be.
func newCommand(reason karpenter.DisruptionReason, nodes []cluster.Node, fresh []pack.NewNode, now time.Time) Command {
	c := Command{Disruption: coppice.Disruption{Reason: reason, Since: now.UTC().Truncate(time.Second)}, New: fresh}
	sum := sha256.New()
	for _, n := range nodes {
		c.Claims = append(c.Claims, n.Claim.Name)
		fmt.Fprintf(sum, "%s\n", n.Claim.UID)
	}
	slices.Sort(c.Claims)
	fmt.Fprintf(sum, "%d", now.UnixNano())
	c.ID = hex.EncodeToString(sum.Sum(nil))[:10]
	for i, n := range fresh {
		c.Replacements = append(c.Replacements, fmt.Sprintf("%s-%s-%d", n.Pool, c.ID, i))
	}
	return c
}

// underWay reads the commands that claims carry, sorted by ID. What can't be read is
// none: its claims are then found to be tainted without a cause.
func underWay(nodes []cluster.Node) []Command {
	byID := map[string]Command{}
	for _, n := range nodes {
		if c, ok := commandOf(n); ok {
			byID[c.ID] = c
		}
	}
	var out []Command
	for _, c := range byID {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Command) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func commandOf(n cluster.Node) (Command, bool) {
	if n.Claim == nil {
		return Command{}, false
	}
	d, ok := coppice.DisruptionOf(n.Claim)
	return Command{Disruption: d}, ok
}

// marks reports whether a machine carries this command.
func (c Command) marks(n cluster.Node) bool {
	have, ok := commandOf(n)
	return ok && have.ID == c.ID
}

// Step is what is due on a command.
type Step uint8

// Steps.
const (
	// Wait: replacements are on their way.
	Wait Step = iota
	// Release: the machines may go.
	Release
	// RollBack: it can't be finished; the machines stay.
	RollBack
	// Drain: the machines are going.
	Drain
)

// patience is how long replacements may take to be ready. Karpenter's value for up to
// some thousands of commands.
const patience = 10 * time.Minute

// step says what is due on a command, and why if it is rolled back.
func (c Command) step(byClaim map[string]cluster.Node, now time.Time) (Step, string) {
	var staying int
	var going, stray bool
	for _, name := range c.Claims {
		n, ok := byClaim[name]
		switch {
		case !ok:
		case n.Deleting():
			going = going || c.marks(n)
		case c.marks(n):
			staying++
		default:
			stray = true // not marked yet, or given back at the last moment
		}
	}
	if stray && !going {
		return RollBack, "it was interrupted before it had begun"
	}
	if staying == 0 {
		return Drain, ""
	}
	up := 0
	for _, name := range c.Replacements {
		n, ok := byClaim[name]
		switch {
		case !ok || n.Deleting():
			return RollBack, fmt.Sprintf("replacement %s is gone", name)
		case n.Initialized() && cluster.Ready(n.Node):
			up++
		}
	}
	if up == len(c.Replacements) {
		return Release, ""
	}
	if now.Sub(c.Since) > patience {
		return RollBack, fmt.Sprintf("%d of %d replacements were ready within %s", up, len(c.Replacements), patience)
	}
	return Wait, ""
}
