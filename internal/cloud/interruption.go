package cloud

import "time"

// InterruptionKind says what is about to happen to an instance, or has.
type InterruptionKind string

// Kinds of interruptions, by the names that Karpenter's metrics give them.
const (
	// SpotInterrupted: EC2 takes a spot instance back in two minutes.
	SpotInterrupted InterruptionKind = "spot_interrupted"
	// RebalanceRecommended: EC2 may take it back soon.
	RebalanceRecommended InterruptionKind = "rebalance_recommendation"
	// ScheduledChange: AWS will stop, reboot or retire the instance.
	ScheduledChange InterruptionKind = "scheduled_change"
	// InstanceStopped and InstanceTerminated: somebody ends it.
	InstanceStopped    InterruptionKind = "instance_stopped"
	InstanceTerminated InterruptionKind = "instance_terminated"
	// ReservationInterrupted: the owner of an interruptible reservation takes it back.
	ReservationInterrupted InterruptionKind = "capacity_reservation_interrupted"
	// StatusCheckFailed: EC2's checks of the instance or its host have failed for minutes.
	StatusCheckFailed InterruptionKind = "instance_status_failed"
	// NoInterruption: a message that is about something else.
	NoInterruption InterruptionKind = "no_op"
)

// Interruption is a message about instances.
type Interruption struct {
	Kind InterruptionKind
	// Instances are their IDs.
	Instances []string
	// At is when the cloud said so, or since when a check has failed, or when a plan
	// that was found by asking begins; zero if the cloud didn't say.
	At time.Time
	// Receipt is what the message is acknowledged with, "" for what was asked for.
	Receipt string
}
