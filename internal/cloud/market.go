package cloud

import "time"

// Market is what machines cost in a region, as far as a provider has learnt it.
type Market struct {
	Region string `json:"region"`
	// At is when spot prices were asked for, or list prices where spot's aren't known; zero
	// if neither is and OnDemand holds the catalogue's.
	At time.Time `json:"at,omitzero"`
	// OnDemand are the list prices by instance type, Spot those of spot by instance type and
	// zone, in millionths of a dollar an hour. Spot is nil if it isn't known: the provider
	// takes it to cost what on-demand does then.
	OnDemand map[string]int64            `json:"onDemandMicroUSD"`
	Spot     map[string]map[string]int64 `json:"spotMicroUSD,omitempty"`
}
