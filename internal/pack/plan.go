package pack

// Policy says what preferences are worth: preferred node and pod affinity,
// ScheduleAnyway spread, and taints with PreferNoSchedule.
type Policy uint8

// Policies.
const (
	// Priced weighs a preference against the money that it costs: weight times
	// [Options.WeightMicroUSD] an hour at most.
	Priced Policy = iota
	// Respect treats preferences as required and gives them up one at a time when
	// the pod finds no place otherwise.
	Respect
	// Ignore drops them.
	Ignore
)

// MinValuesPolicy says what happens where a pool's minValues cannot be met.
type MinValuesPolicy uint8

// Policies for minValues.
const (
	// Strict refuses the node.
	Strict MinValuesPolicy = iota
	// BestEffort lowers the number and says so in [NewNode.Relaxed].
	BestEffort
)

// Options bound a solution. The zero value is the default.
type Options struct {
	// Preferences is the policy for pods' preferences.
	Preferences Policy
	// WeightMicroUSD is what one unit of a preference's weight is worth per pod
	// and hour under [Priced]. Zero means 100: a weight of 100 is worth a cent an
	// hour, about a quarter of a small node's vCPU.
	WeightMicroUSD int64
	// MinValues is the policy for minValues.
	MinValues MinValuesPolicy
	// MarginPercent bounds the price of the types that a new node may fall back
	// to, over its cheapest. Zero means 25.
	MarginPercent int
	// MinTypes is how many types a new node keeps whatever they cost, if that
	// many fit. Zero means 15, the number below which a spot request is thought
	// too narrow.
	MinTypes int
	// Stop is asked now and then once every pod has had its turn; when it returns
	// true the best plan so far is returned. Nil never stops. A plan that Stop cut
	// short depends on when it did. The package reads no clock: who calls it says
	// how long a plan may take.
	Stop func() bool
	// Work caps the rounds of making the plan cheaper, so that the result depends
	// on nothing but the input. Zero means 64; a negative number returns the
	// first plan, packed but not searched for a cheaper one.
	Work int
}

// Plan is what to do about the pending pods.
type Plan struct {
	// Assignments are the pods that go to existing nodes, sorted by pod.
	Assignments []Assignment
	// NewNodes are the nodes to open, sorted by pool and price, then pods.
	NewNodes []NewNode
	// Unschedulable are the pods that fit nowhere, sorted by pod.
	Unschedulable []Unschedulable
	// MicroUSD is what the new nodes cost an hour at their cheapest offerings.
	MicroUSD int64
	// LowerBound is what new nodes for the same pods cost an hour at least,
	// whatever the packing; MicroUSD over LowerBound is the gap.
	LowerBound int64
}

// Gap returns how far the plan is over its lower bound at most, in thousandths
// of the bound. It is zero for a plan that opens nothing.
func (p *Plan) Gap() int64 {
	if p.LowerBound <= 0 || p.MicroUSD <= p.LowerBound {
		return 0
	}
	return (p.MicroUSD - p.LowerBound) * 1000 / p.LowerBound
}

// Assignment puts a pending pod on an existing node.
type Assignment struct {
	Pod, Node string
}

// NewNode is a node to open.
type NewNode struct {
	// Pool is the pool to open it from.
	Pool string
	// Requirements are the pool's, narrowed to what its pods need, sorted by key.
	// They include [LabelInstanceType], [LabelZone] and
	// [LabelCapacityType] as the options allow.
	Requirements []Requirement
	// Labels are the pool's and those custom ones of which a value had to be
	// chosen for the pods.
	Labels map[string]string
	// Options are the acceptable instance types, the cheapest first.
	Options []Option
	// Requests are those of its pods and of the daemons that any option will run
	// at least.
	Requests Resources
	// Pods are sorted.
	Pods []string
	// MicroUSD is the price per hour of the cheapest offering of the first option.
	MicroUSD int64
	// ReservationID is set when the node takes an instance of a reservation.
	ReservationID string
	// Relaxed is true if minValues had to be lowered for it.
	Relaxed bool
}

// Option is an instance type that a new node may become.
type Option struct {
	// Type is its name.
	Type string
	// Offerings are those that suit the pods and are available, the cheapest
	// first. They are not to be changed.
	Offerings []Offering
}

// Unschedulable is a pod without a place.
type Unschedulable struct {
	Pod string
	// Reasons has one entry a pool in the order in which pools are tried, or one
	// without a pool if there are none.
	Reasons []Reason
}

// Cause says which kind of constraint stood in the way.
type Cause uint8

// Causes, the last that could be passed being the nearest miss.
const (
	// NoPools: there is nothing to open nodes from.
	NoPools Cause = iota
	// Untolerated: Taint is not tolerated.
	Untolerated
	// Incompatible: the pod's requirement for Key excludes what the pool allows.
	Incompatible
	// UndefinedLabel: Key is a custom label that the pool does not define.
	UndefinedLabel
	// NoType: no instance type meets all requirements at once; Key is the one
	// whose removal would help, if one would.
	NoType
	// TooLarge: no type that meets the requirements has enough of Resource. Have
	// is the most that one has free of daemons, Want what the pod asks.
	TooLarge
	// NoOffering: types fit but none is for sale now in a zone and capacity type
	// that suits.
	NoOffering
	// MinValuesUnmet: too few distinct values of Key remain. Have, Want.
	MinValuesUnmet
	// LimitReached: the pool's limit for Resource leaves Have, Want is what the
	// smallest suitable type has.
	LimitReached
	// ClusterLimitReached is the same for the limit over all pools.
	ClusterLimitReached
	// SpreadSkew: every domain of Key would exceed the maximum skew.
	SpreadSkew
	// AffinityUnmet: no domain of Key that can be reached has a pod that the
	// affinity asks for.
	AffinityUnmet
	// AntiAffinityBlocked: every domain of Key that can be reached has a pod that
	// the anti-affinity, of either side, excludes.
	AntiAffinityBlocked
	// NotBeside: no node has both room and a pod that PodSpec.Beside asks for.
	NotBeside
	// VolumeElsewhere: the pod's volumes cannot be attached where it may run.
	VolumeElsewhere
	// AttachLimit: no type attaches as many volumes of driver Resource.
	AttachLimit
	// PortTaken: the host port is taken on every node that could be opened, by a
	// daemon.
	PortTaken
)

// Reason says why a pool has no place for a pod.
type Reason struct {
	// Pool is empty when the reason is not about one.
	Pool  string
	Cause Cause
	// Key is the label key concerned, if any.
	Key string
	// Requirement is the pod's requirement concerned, if any.
	Requirement Requirement
	// Resource, Have and Want describe a shortage.
	Resource   string
	Have, Want int64
	// Taint is the one not tolerated.
	Taint Taint
	// Nearest names the instance type that came nearest, if any.
	Nearest string
	// Hint is a label key of the pool that Key may have been meant for.
	Hint string
}
