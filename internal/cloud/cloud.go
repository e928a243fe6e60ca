// Package cloud is what the reconcilers ask of a cloud, and nothing more.
//
// It holds values and one small interface. internal/cloud/ec2 stands behind it;
// nothing above this package knows which API is called. All money is in
// micro-dollars per hour and all sizes are Kubernetes quantities, so that no
// floating point reaches a decision.
package cloud

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Capacity types, as in the label karpenter.sh/capacity-type.
const (
	Spot     = "spot"
	OnDemand = "on-demand"
	Reserved = "reserved"
)

// Tags of every instance of ours.
const (
	// TagNodeClaim holds the claim's name, for people who look at the console.
	TagNodeClaim = "karpenter.sh/nodeclaim"
	// TagNodeClaimUID holds the claim's UID. The launch of a single instance sets it, so
	// that it can be traced to its claim whatever crashed after it; those of a fleet get
	// it some time later.
	TagNodeClaimUID = "coppice.dev/nodeclaim-uid"
	// TagFleet holds the token of the fleet that the instance was launched with.
	TagFleet = "coppice.dev/fleet"
)

// Offering is one way to buy an instance type.
type Offering struct {
	CapacityType string
	Zone         string
	ZoneID       string
	// MicroUSD is the price per hour in millionths of a dollar.
	MicroUSD int64
	// Available is false while the cloud is known to be out of it.
	Available bool
	// ReservationID and ReservedCount are set for reserved capacity alone.
	ReservationID string
	ReservedCount int
}

// InstanceType is what a NodeClass would get if it launched one.
type InstanceType struct {
	Name string
	// Labels are the well-known labels that a node of the type will carry, one
	// value each; zone and capacity type come from the offering.
	Labels map[string]string
	// Capacity is what the node will report; Allocatable is Capacity less the
	// kubelet's reservations and eviction thresholds.
	Capacity    corev1.ResourceList
	Allocatable corev1.ResourceList
	// Offerings are sorted by price, then capacity type, then zone.
	Offerings []Offering
}

// LaunchRequest asks for one instance.
type LaunchRequest struct {
	Claim *karpenter.NodeClaim
	Class *aws.EC2NodeClass
	// Token makes the call repeatable: the same token never launches twice. It
	// is the claim's UID.
	Token string
	// Types holds the acceptable instance types, the cheapest first. Offerings
	// that the claim's requirements exclude are already removed.
	Types []InstanceType
	// Labels, Taints and StartupTaints are what the kubelet registers with, the
	// unregistered taint not included.
	Labels        map[string]string
	Taints        []corev1.Taint
	StartupTaints []corev1.Taint
	// Fleet, if set, is launched at once for all its claims, of which this is one. All
	// else in the request but claim and token is then the same for each of them.
	Fleet *Fleet
}

// Instance is a virtual machine of ours.
type Instance struct {
	ID           string
	ProviderID   string
	Type         string
	Zone         string
	ZoneID       string
	CapacityType string
	// ReservationID is set for reserved capacity alone.
	ReservationID string
	ImageID       string
	SubnetID      string
	// SecurityGroupIDs is sorted.
	SecurityGroupIDs []string
	// Profile is the name of its instance profile, "" if it has none.
	Profile string
	// State is EC2's name: pending, running, shutting-down, terminated, stopping, stopped.
	State      string
	LaunchTime time.Time
	Tags       map[string]string
	// ClaimUID is the claim's that it was launched for, as its tag has it or, before it
	// has one, as this process knows. It is "" if neither tells.
	ClaimUID string
}

// Provider is a cloud. Every method may be called concurrently.
type Provider interface {
	// ResolveClass finds what the class's selectors mean now, and whether a launch
	// would be let through. It makes what that needs, an instance profile and a
	// launch template, and nothing else. What a person has to mend is in the status'
	// conditions; the error is what may pass, and the status is good beside it.
	ResolveClass(ctx context.Context, class *aws.EC2NodeClass) (aws.EC2NodeClassStatus, error)
	// InstanceTypes lists what the class can launch, sorted by name. The result
	// is shared: callers do not change it.
	InstanceTypes(ctx context.Context, class *aws.EC2NodeClass) ([]InstanceType, error)
	// Market is what the provider knows of prices. It is the caller's own.
	Market(ctx context.Context) (Market, error)
	// Launch starts one instance, or finds the one that the same token started. The
	// instances of a fleet are all started by the first of its claims that comes; a claim
	// for which there is none of them gets one of its own.
	// It returns *InsufficientCapacityError when nothing asked for is to be had.
	Launch(ctx context.Context, req LaunchRequest) (Instance, error)
	// Instances lists the cluster's instances that are not terminated, sorted by ID.
	// Callers that come together share one answer, which shows at once what this
	// process has launched or terminated.
	Instances(ctx context.Context) ([]Instance, error)
	// Terminate ends an instance. It returns nil when the instance is gone or going.
	Terminate(ctx context.Context, id string) error
	// Reboot restarts an instance, which isn't awaited.
	Reboot(ctx context.Context, id string) error
	// Tag adds tags to an instance.
	Tag(ctx context.Context, id string, tags map[string]string) error
	// Drifted says why the class would not launch the claim's instance like this
	// today, as the reason of a condition, or "" if it would or the instance is gone.
	// It may judge by a list of instances that is a minute old.
	Drifted(ctx context.Context, class *aws.EC2NodeClass, claim *karpenter.NodeClaim) (string, error)
	// Observe tells what a node of the type and image turned out to have. From then on
	// InstanceTypes promises that instead of an estimate.
	Observe(instanceType, imageID string, capacity corev1.ResourceList)
	// Troubled asks what is wrong with the cluster's running instances: failed status
	// checks and planned events, one item for an instance, sorted by ID. It finds the
	// same again for as long as it holds.
	Troubled(ctx context.Context) ([]Interruption, error)
	// Shifted are the IDs of zones that the cluster's traffic is shifted away from.
	// Nothing is launched there.
	Shifted(ctx context.Context) (map[string]bool, error)
	// Knowledge is what was learnt of the cloud that a restart would lose, as text that
	// is equal while nothing new is known; it holds no secret. Learn takes it over, as
	// far as it still holds.
	Knowledge() ([]byte, error)
	Learn(knowledge []byte) error
	// CleanClass removes what ResolveClass and Launch made for a class: instance
	// profile and launch templates. It is called once no instance uses them.
	CleanClass(ctx context.Context, class *aws.EC2NodeClass) error
}

// InsufficientCapacityError says that none of the offerings asked for is to be
// had now. The provider remembers them and marks them unavailable for a while.
type InsufficientCapacityError struct {
	// Offerings counts what was tried, 0 if there was nothing that would do.
	Offerings int
	// Reason is the cloud's own code, as in InsufficientInstanceCapacity, or says why
	// nothing was tried.
	Reason string
}

// Error names the code and how much was tried.
func (e *InsufficientCapacityError) Error() string {
	if e.Offerings == 0 {
		return "no offering can be tried: " + e.Reason
	}
	return fmt.Sprintf("no capacity in any of %d offerings (%s)", e.Offerings, e.Reason)
}

// TerminalError is a failure that the same request would meet again, as with a
// refused parameter or a missing permission: a person has to act.
type TerminalError struct{ Err error }

// Error returns the cause's text.
func (e *TerminalError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *TerminalError) Unwrap() error { return e.Err }
