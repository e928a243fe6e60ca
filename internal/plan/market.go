package plan

import "fmt"

// Market says which instance types a pool may launch, as the embedded catalogue of a
// region knows them, before a change and after. It needs no cluster.
type Market struct {
	Pool   string `json:"pool"`
	Region string `json:"region"`
	// Before and After are nil where there is no such pool.
	Before *Choice `json:"before,omitempty"`
	After  *Choice `json:"after,omitempty"`
}

// Choice is what a pool can choose from.
type Choice struct {
	// Types counts the instance types, Offerings their ways to be bought.
	Types     int `json:"types"`
	Offerings int `json:"offerings"`
	// Cheapest is the offering with the lowest price for each of its cores, "" if the
	// pool can launch nothing.
	Cheapest     string `json:"cheapest,omitempty"`
	CapacityType string `json:"capacityType,omitempty"`
	// MicroUSD is what it costs an hour, PerCPU that for each core, in millionths of a
	// dollar.
	MicroUSD int64 `json:"microUSDPerHour,omitempty"`
	PerCPU   int64 `json:"microUSDPerCPUHour,omitempty"`
}

func (c *Choice) String() string {
	switch {
	case c == nil:
		return "no pool"
	case c.Cheapest == "":
		return "no type"
	}
	return fmt.Sprintf("%s, the cheapest core %s/h (%s %s at %s/h)", plural(c.Types, "type"), dollars(c.PerCPU), c.CapacityType, c.Cheapest, dollars(c.MicroUSD))
}

func (m Market) line() string {
	if m.Before == nil {
		return fmt.Sprintf("NodePool %s in %s: %s", m.Pool, m.Region, m.After)
	}
	return fmt.Sprintf("NodePool %s in %s: %s → %s", m.Pool, m.Region, m.Before, m.After)
}

func (p *Plan) marketLines() []string {
	var out []string
	for _, m := range p.Market {
		out = append(out, m.line())
	}
	return out
}
