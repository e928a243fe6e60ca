package plan

import (
	"fmt"
	"slices"
	"time"
)

// Fleet is what a change does to the nodes of a cluster. Everything in it comes from
// rehearsing the controller's own decisions on a picture of the cluster; Basis says
// what the rehearsal had to assume.
type Fleet struct {
	// At is when the picture was taken. All durations count from a change that is
	// applied at that moment.
	At time.Time `json:"at"`
	// Nodes counts the machines of all pools now.
	Nodes int `json:"nodes"`
	// Replace, Remove and Hold count those that the change puts out of date: replaced or
	// removed within the time that was rehearsed, and held back for longer.
	Replace int `json:"replace"`
	Remove  int `json:"remove"`
	Hold    int `json:"hold"`
	// Already counts the machines that were out of date before the change. They are
	// among the others as well.
	Already int `json:"alreadyDrifted"`
	// InPlace counts those that are changed where they are, by their pool's choice.
	InPlace int `json:"changedInPlace,omitempty"`
	// Moves counts the pods that change nodes, once for each time.
	Moves int `json:"podsMoved"`
	// Waves counts the steps in which machines go.
	Waves int `json:"waves"`
	// Seconds is how long it takes until the last machine that goes has gone. Complete
	// says that nothing out of date is left then.
	Seconds  int64 `json:"seconds"`
	Complete bool  `json:"complete"`
	// Before and After are what the machines cost. Pools whose machines go only because
	// they were out of date already cost what they did: that isn't the change's doing.
	Before Cost `json:"before"`
	After  Cost `json:"after"`
	// Pools are those that the change concerns, sorted by name.
	Pools []PoolEffect `json:"pools"`
	// Launches are the machines that come, sorted by pool, type, capacity type and zone.
	Launches []Launch `json:"launches"`
	// Unplaced are pods that the change leaves without a place, sorted by name.
	Unplaced []Unplaced `json:"unplacedPods"`
	// Prices says which ones the costs are worked out with, nil if none was needed.
	Prices *Prices `json:"prices,omitempty"`
	// Basis says what the figures rest on, one sentence each.
	Basis []string `json:"basis"`
}

// Prices says where prices are from.
type Prices struct {
	// From is controller or catalogue.
	From   string `json:"from"`
	Region string `json:"region"`
	// Date is the catalogue's.
	Date string `json:"date,omitempty"`
	// At is when the controller asked for them, zero if it hasn't got an answer yet.
	// NoSpot says that it has none of spot, which it takes to cost what on-demand does.
	At     time.Time `json:"at,omitzero"`
	NoSpot bool      `json:"noSpot,omitempty"`
}

// Where prices are from.
const (
	PricesController = "controller"
	PricesCatalogue  = "catalogue"
)

// sentence says it for people. When the controller asked is left out where it would make
// a text another one that says the same.
func (p *Prices) sentence(dated bool) string {
	if p.From == PricesCatalogue {
		return fmt.Sprintf("Prices are those of the embedded catalogue for %s, of %s; of spot, the average over zones.", p.Region, p.Date)
	}
	text := fmt.Sprintf("Prices are those that the controller knows for %s", p.Region)
	if p.NoSpot {
		text += "; it has none of spot yet, which it takes to cost what on-demand does"
	} else {
		text += ", of spot by zone"
	}
	if dated && !p.At.IsZero() {
		text += ", as of " + p.At.UTC().Format(time.RFC3339)
	}
	return text + "."
}

// basis is what the figures rest on, prices among it.
func (f *Fleet) basis(dated bool) []string {
	out := slices.Clone(f.Basis)
	if f.Prices != nil {
		out = append(out, f.Prices.sentence(dated))
	}
	slices.Sort(out)
	return out
}

// Cost is what machines cost an hour.
type Cost struct {
	// MicroUSD is in millionths of a dollar.
	MicroUSD int64 `json:"microUSDPerHour"`
	// Unpriced counts machines whose price isn't known; they count for nothing.
	Unpriced int `json:"unpriced,omitempty"`
}

// String is the cost in dollars.
func (c Cost) String() string { return dollars(c.MicroUSD) + "/h" }

// PoolEffect is what becomes of one pool's machines.
type PoolEffect struct {
	Pool string `json:"pool"`
	// Action says what the change does to the pool itself, "" for a pool that is
	// concerned because of its class.
	Action Action `json:"action,omitempty"`
	// Nodes counts its machines now, Stay those that the change leaves alone.
	Nodes int `json:"nodes"`
	Stay  int `json:"stay"`
	// Seconds is how long it takes until the last of its machines that goes has gone.
	Seconds int64 `json:"seconds"`
	// Affected are the machines that don't stay, sorted by name.
	Affected []NodeEffect `json:"affected"`
	// Gates are what paces the pool's replacements.
	Gates []Gate `json:"gates"`
	// Limits are those that the pool's machines exceed once the change is applied: none
	// is launched while they do.
	Limits []LimitEffect `json:"exceededLimits"`
	// Before and After are what the pool's machines cost.
	Before Cost `json:"before"`
	After  Cost `json:"after"`
}

// Outcome is what becomes of a machine.
type Outcome string

// Outcomes.
const (
	// Replaced: another machine was launched for its pods, or they found room elsewhere.
	Replaced Outcome = "replaced"
	// Removed: it goes without anything in its place, with its pool or as it is empty.
	Removed Outcome = "removed"
	// Held: something keeps it for longer than was rehearsed.
	Held Outcome = "held"
)

// NodeEffect is what becomes of one machine.
type NodeEffect struct {
	// Node is the Node's name, or the claim's while there is no Node.
	Node  string `json:"node"`
	Claim string `json:"claim"`
	// Type, Zone and CapacityType are from the claim's labels.
	Type         string `json:"type,omitempty"`
	Zone         string `json:"zone,omitempty"`
	CapacityType string `json:"capacityType,omitempty"`
	// Pods counts those that would have to move.
	Pods int `json:"pods"`
	// Reason is that of the condition Drifted, as in NodePoolDrifted, or Deleted for a
	// pool's end.
	Reason string `json:"reason"`
	// Cause names the fields that make it so, as far as they are known.
	Cause []string `json:"cause,omitempty"`
	// Assumed is true if only the cloud could tell, and the worst was assumed.
	Assumed bool `json:"assumed,omitempty"`
	// Already is true if the machine was out of date before the change.
	Already bool    `json:"alreadyDrifted,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Seconds is when it has gone.
	Seconds int64 `json:"seconds,omitempty"`
	// Hold is what keeps it, nil for one that goes.
	Hold *Hold `json:"hold,omitempty"`
}

// Hold is what keeps a machine.
type Hold struct {
	// Code is one CamelCase word, Message says it for people.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Until is when it ends by itself, zero if that isn't known.
	Until time.Time `json:"until,omitzero"`
}

// Gate is one thing that paces a pool's replacements.
type Gate struct {
	// Kind is budget, window, wave or pause.
	Kind string `json:"kind"`
	// Message says it for people.
	Message string `json:"message"`
	// Until is when it ends, zero if it doesn't by itself.
	Until time.Time `json:"until,omitzero"`
}

// LimitEffect is a limit that a pool's machines exceed.
type LimitEffect struct {
	Resource string `json:"resource"`
	Limit    string `json:"limit"`
	Used     string `json:"used"`
}

// Launch counts machines of one kind that come.
type Launch struct {
	Pool         string `json:"pool"`
	Type         string `json:"type"`
	CapacityType string `json:"capacityType"`
	Zone         string `json:"zone"`
	Count        int    `json:"count"`
	// MicroUSD is what one of them costs an hour, in millionths of a dollar.
	MicroUSD int64 `json:"microUSDPerHour"`
}

// Unplaced is a pod that has no place.
type Unplaced struct {
	// Pod is namespace/name.
	Pod string `json:"pod"`
	// Reason says why, and which pools might have had one.
	Reason string `json:"reason"`
	// Running is true if the pod runs and goes on to: the machine under it is kept for
	// its sake.
	Running bool `json:"running,omitempty"`
}

// Touched counts the machines that don't stay.
func (f *Fleet) Touched() int { return f.Replace + f.Remove + f.Hold }

func (f *Fleet) headline() string {
	text := "no node changes"
	if n := f.Touched() - f.Already; n > 0 {
		text = fmt.Sprintf("%d of %s to go", n, plural(f.Nodes, "node"))
	}
	if f.Before != f.After {
		text += fmt.Sprintf("; %s to %s", f.Before, f.After)
	}
	return text
}

// dollars writes millionths of a dollar, to the hundredth of a cent below ten dollars
// and to the cent above.
func dollars(micro int64) string {
	sign := ""
	if micro < 0 {
		sign, micro = "-", -micro
	}
	if micro < 10e6 {
		return fmt.Sprintf("%s$%d.%04d", sign, (micro+50)/1e6, (micro+50)%1e6/100)
	}
	return fmt.Sprintf("%s$%d.%02d", sign, (micro+5000)/1e6, (micro+5000)%1e6/1e4)
}

// span writes seconds as people say them.
func span(seconds int64) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", seconds)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", (seconds+30)/60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	}
	return fmt.Sprintf("%.1f days", d.Hours()/24)
}
