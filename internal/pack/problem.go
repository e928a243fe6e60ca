package pack

// Problem is everything that a plan depends on. Order carries no meaning in any
// of its slices, other than in the alternatives of a pod's affinity.
type Problem struct {
	// Pools are what new nodes may be opened from. Leave out pools that are not
	// ready, are being deleted, or have a fixed number of replicas; their nodes
	// may still be listed in Nodes.
	Pools []Pool
	// Nodes are the nodes that exist or are on their way. Nodes on their way out
	// are left out, and their pods listed as pending.
	Nodes []Node
	// Pods are the pending pods (Node is empty) and the running ones.
	Pods []Pod
	// Daemons are the pods that every matching node will run.
	Daemons []Daemon
	// Limits caps what the nodes of all pools together may have; see
	// [Pool.Limits]. What they have today is summed over Nodes.
	Limits Resources
	// WellKnown are the label keys that pods may ask for although nothing defines
	// them: the cloud sets them on its nodes. A requirement for any other label
	// that the pool does not define is refused.
	WellKnown []string
}

// Resources are amounts by resource name: cpu in thousandths of a core, memory
// and ephemeral-storage in bytes, everything else (pods, extended resources) in
// units. In limits, the name "nodes" counts nodes.
type Resources map[string]int64

// Resource names that the package gives meaning to.
const (
	// CPU is counted in thousandths of a core.
	CPU = "cpu"
	// Memory is counted in bytes.
	Memory = "memory"
	// Pods counts pods. Every pod takes one whether its requests say so or not.
	Pods = "pods"
	// NodeCount is a name for limits only.
	NodeCount = "nodes"
)

// Label keys that the package gives meaning to.
const (
	// LabelHostname has a value of its own on every node.
	LabelHostname = "kubernetes.io/hostname"
	// LabelZone comes from the offering.
	LabelZone = "topology.kubernetes.io/zone"
	// LabelCapacityType comes from the offering.
	LabelCapacityType = "karpenter.sh/capacity-type"
	// LabelInstanceType is the type's name.
	LabelInstanceType = "node.kubernetes.io/instance-type"
	// LabelPool is the pool's name.
	LabelPool = "karpenter.sh/nodepool"
	// FieldName stands for the node's name, as a matchFields term does. Existing
	// nodes have it; a new node's name is not known beforehand.
	FieldName = "metadata.name"
)

// Capacity types, the values of [LabelCapacityType].
const (
	Reserved = "reserved"
	Spot     = "spot"
	OnDemand = "on-demand"
)

// InstanceType is what a pool can launch.
type InstanceType struct {
	// Name is unique within a pool's types and becomes [LabelInstanceType].
	Name string
	// Labels are what a node of the type carries, one value a key. A key that
	// other types of the pool have and this one lacks is absent on its nodes.
	Labels map[string]string
	// Capacity is what the node reports; limits count it.
	Capacity Resources
	// Allocatable is what pods may use, those of daemons included.
	Allocatable Resources
	// Attach caps how many volumes of each CSI driver can be attached, for nodes
	// of which nothing better is known. A driver that is absent has no cap.
	Attach map[string]int
	// Offerings are the ways to buy it.
	Offerings []Offering
}

// Offering is one way to buy an instance type.
type Offering struct {
	// CapacityType is one of [Reserved], [Spot] and [OnDemand].
	CapacityType string
	// Zone becomes [LabelZone].
	Zone string
	// Labels are what a node bought so carries in addition, as with a zone's ID
	// or a reservation's.
	Labels map[string]string
	// MicroUSD is the price per hour in millionths of a dollar.
	MicroUSD int64
	// Available is false while the cloud is known to be out of it.
	Available bool
	// ReservationID names the reservation of a [Reserved] offering. Offerings of
	// several pools with the same ID draw on the same ReservedCount.
	ReservationID string
	// ReservedCount is how many more instances the reservation holds. Where
	// offerings disagree the least counts.
	ReservedCount int
}

// Pool is a kind of node that may be opened.
type Pool struct {
	// Name is unique and becomes [LabelPool].
	Name string
	// Weight orders pools: a pod goes to a new node of the heaviest pool that can
	// host it. Pools of one weight compete by price.
	Weight int
	// Requirements bound the labels of the pool's nodes. Custom labels are
	// defined by In and Exists requirements or by Labels.
	Requirements []Requirement
	// Labels are on every node of the pool.
	Labels map[string]string
	// Taints are on every node of the pool for good. Startup taints, which go
	// before pods come, are left out.
	Taints []Taint
	// Limits caps the summed capacity of the pool's nodes, "nodes" their number.
	// A resource that is absent has no cap.
	Limits Resources
	// Usage is what the pool's nodes have, when Nodes does not list them all. Nil
	// means: summed over the pool's nodes in the problem.
	Usage Resources
	// Preferences is the policy for the preferences of pods on the pool's nodes, if
	// it isn't that of the [Options]. A pod's own policy goes before it.
	Preferences *Policy
	// Types are what the pool can launch. Pools may share one slice, which also
	// makes them cheaper. The slice is kept and not changed.
	Types []InstanceType
}

// Node is a node that exists or is on its way.
type Node struct {
	// Name is unique.
	Name string
	// Pool is the pool that the node belongs to, empty for nodes of nobody.
	Pool string
	// Labels are what the node carries, or will.
	Labels map[string]string
	// Requirements say what is known about labels that the node does not carry
	// yet, as with the zone of a claim that is not launched. A pod may use such a
	// node only if every outcome suits it.
	Requirements []Requirement
	// Taints count for scheduling. For a node that is not initialized the caller
	// leaves out startup taints and those that go by themselves.
	Taints []Taint
	// Capacity counts towards limits.
	Capacity Resources
	// Allocatable is the total for pods, running ones and daemons included.
	Allocatable Resources
	// Attach caps volumes by CSI driver; a driver that is absent has no cap.
	Attach map[string]int
	// MicroUSD is the node's price per hour in millionths of a dollar.
	MicroUSD int64
	// Initialized is false while the node is on its way. Pods go to initialized
	// nodes first.
	Initialized bool
	// Closed nodes take no further pods, but what runs on them counts.
	Closed bool
}

// Taint repels pods that do not tolerate it.
type Taint struct {
	Key, Value string
	Effect     Effect
}

// Effect is what a taint does.
type Effect uint8

// Effects. AnyEffect is for tolerations alone.
const (
	AnyEffect Effect = iota
	NoSchedule
	PreferNoSchedule
	NoExecute
)

// Toleration lets a pod onto nodes with a taint. With Exists the value does not
// matter; an empty key with Exists tolerates every taint.
type Toleration struct {
	Key, Value string
	Exists     bool
	Effect     Effect
}

// Pod is one pod, pending or running.
type Pod struct {
	// Name is unique among all pods, as a UID or namespace/name is.
	Name string
	// Namespace and Labels are what other pods' selectors see.
	Namespace string
	Labels    map[string]string
	// Node is where the pod runs, empty for a pending pod. A pod on a node that
	// the problem does not list counts nowhere.
	Node string
	// Priority goes first where not all pods can have a place.
	Priority int32
	// Daemon is true for pods that belong to their node, those of daemons and
	// static ones. They are not moved when their node goes.
	Daemon bool
	// Leaving is true for a pod that is being ended. It takes its room and keeps others
	// away until it is gone, but spread counts it no longer, as the scheduler doesn't.
	Leaving bool
	// Spec is what the pod asks for. Pods may share one, which also makes them
	// cheaper. It is kept and not changed. Pods whose specs are equal in content
	// are treated as one shape, whether they share it or not.
	Spec *PodSpec
}

// Daemon is a pod that every matching node will run.
type Daemon struct {
	// Name is unique among daemons.
	Name string
	// Spec is what the pod asks for; topology and pod affinity do not count.
	Spec *PodSpec
}

// PodSpec is what a pod asks for.
type PodSpec struct {
	// Requests hold the effective requests: init and sidecar containers, pod
	// overhead and pod-level resources are already in.
	Requests Resources
	// NodeSelector must hold, whichever term of Affinity does.
	NodeSelector []Requirement
	// Affinity are the required node affinity terms, of which one must hold. Nil
	// asks for nothing. A term without requirements holds nowhere.
	Affinity [][]Requirement
	// Preferred are the preferred node affinity terms.
	Preferred []Preference
	// Preferences is the policy for the pod's preferences, if it isn't that of
	// [Options].
	Preferences *Policy
	// Tolerations open tainted nodes.
	Tolerations []Toleration
	// Spread are the topology spread constraints.
	Spread []Spread
	// PodAffinity and PodAntiAffinity are the required terms.
	PodAffinity     []PodTerm
	PodAntiAffinity []PodTerm
	// PreferredPodAffinity and PreferredPodAntiAffinity are the preferred ones.
	PreferredPodAffinity     []WeightedPodTerm
	PreferredPodAntiAffinity []WeightedPodTerm
	// Beside selects pods of the same namespace: for each selector the pod's node must
	// run one that matches, as where volumes can be attached to one node only. Unlike
	// with PodAffinity the pod itself doesn't count.
	Beside []Selector
	// HostPorts are the node's ports that the pod binds.
	HostPorts []HostPort
	// Volumes are the pod's volumes that matter to placement.
	Volumes []Volume
}

// Preference is a node affinity term that the pod would like to hold.
type Preference struct {
	// Weight is from 1 to 100.
	Weight       int32
	Requirements []Requirement
}

// Spread limits how unevenly matching pods may lie over the values of a label.
type Spread struct {
	TopologyKey string
	// MaxSkew is how many more matching pods a domain may have than the emptiest.
	MaxSkew int32
	// MinDomains, if more than zero, makes the emptiest domain count as zero
	// while there are fewer domains.
	MinDomains int32
	// ScheduleAnyway makes it a preference.
	ScheduleAnyway bool
	// Selector says which pods of the same namespace count. Label keys to match
	// are merged into it by the caller.
	Selector Selector
	// IgnoreAffinity counts nodes that the pod's node affinity excludes
	// (nodeAffinityPolicy: Ignore).
	IgnoreAffinity bool
	// HonorTaints leaves out nodes whose taints the pod does not tolerate
	// (nodeTaintsPolicy: Honor).
	HonorTaints bool
}

// PodTerm selects pods that share the value of a label's node.
type PodTerm struct {
	TopologyKey string
	// Namespaces are where the pods are; namespace selectors are resolved by the
	// caller, and an empty list means the pod's own.
	Namespaces []string
	// AllNamespaces selects in every namespace.
	AllNamespaces bool
	// Selector says which pods count. Label keys to match or mismatch are merged
	// into it by the caller.
	Selector Selector
}

// WeightedPodTerm is a PodTerm that the pod would like to hold.
type WeightedPodTerm struct {
	// Weight is from 1 to 100.
	Weight int32
	PodTerm
}

// Selector selects pods by label: all requirements must hold. NotIn and
// DoesNotExist hold where the key is absent. The zero Selector selects all.
type Selector struct {
	// Nothing selects no pod, as an absent selector does.
	Nothing bool
	// Requirements use In, NotIn, Exists and DoesNotExist.
	Requirements []Requirement
}

// HostPort is a port of the node. An empty IP, 0.0.0.0 and :: stand for all.
type HostPort struct {
	IP       string
	Protocol string
	Port     int32
}

// Volume is a volume that bounds where its pod may run.
type Volume struct {
	// Name is the volume's or claim's unique name. A pod that names it twice attaches
	// it once. Pods that share it are counted as if each attached one of its own, so
	// that a node may turn out to take more of them than planned, never fewer. Where all
	// must be on one node, see Beside, the Driver may be left to one of them.
	Name string
	// Driver is the CSI driver whose attach limit counts, empty for none.
	Driver string
	// Terms say where it can be attached: one must hold. Nil means anywhere.
	Terms [][]Requirement
}
