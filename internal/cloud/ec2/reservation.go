package ec2

import (
	"sync"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/aws"
)

// blockExpiry is how long before its end EC2 may take a capacity block's instances:
// it starts to terminate them 30 minutes before, and nodes need some more to drain.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-how.html
const blockExpiry = 40 * time.Minute

// reservationStatus turns reservations into the status, in the order given.
func reservationStatus(found []ec2types.CapacityReservation, now time.Time) []aws.CapacityReservation {
	var out []aws.CapacityReservation
	for _, r := range found {
		s := aws.CapacityReservation{
			AvailabilityZone:      deref(r.AvailabilityZone),
			ID:                    deref(r.CapacityReservationId),
			InstanceMatchCriteria: string(r.InstanceMatchCriteria),
			InstanceType:          deref(r.InstanceType),
			Interruptible:         deref(r.Interruptible),
			OwnerID:               deref(r.OwnerId),
			ReservationType:       aws.CapacityReservationTypeDefault,
			State:                 aws.CapacityReservationStateActive,
		}
		if r.ReservationType == ec2types.CapacityReservationTypeCapacityBlock {
			s.ReservationType = aws.CapacityReservationTypeCapacityBlock
		}
		if r.EndDate != nil {
			end := metav1.NewTime(*r.EndDate)
			s.EndTime = &end
			if s.ReservationType == aws.CapacityReservationTypeCapacityBlock && !now.Before(r.EndDate.Add(-blockExpiry)) {
				s.State = aws.CapacityReservationStateExpiring
			}
		}
		out = append(out, s)
	}
	return out
}

// reservedLog knows how many instances each reservation has left: what EC2 said
// last, less what was launched into it since.
type reservedLog struct {
	mu      sync.Mutex
	left    map[string]int
	version uint64
	// blocks holds when each capacity block ends.
	blocks map[string]time.Time
}

// observe takes over what EC2 says.
func (l *reservedLog) observe(found []ec2types.CapacityReservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == nil {
		l.left, l.blocks = map[string]int{}, map[string]time.Time{}
	}
	for _, r := range found {
		id, n := deref(r.CapacityReservationId), int(deref(r.AvailableInstanceCount))
		if r.ReservationType == ec2types.CapacityReservationTypeCapacityBlock && r.EndDate != nil {
			l.blocks[id] = *r.EndDate
		}
		if was, known := l.left[id]; !known || was != n {
			l.left[id] = n
			l.version++
		}
	}
}

// expiring says whether the reservation is a capacity block whose instances EC2 will
// soon end, and when it ends.
func (l *reservedLog) expiring(id string, now time.Time) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end, block := l.blocks[id]
	return end, block && !now.Before(end.Add(-blockExpiry))
}

// take says that an instance was launched into the reservation.
func (l *reservedLog) take(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left[id] > 0 {
		l.left[id]--
		l.version++
	}
}

// free returns how many instances each reservation has left. The version changes
// whenever the answer does.
func (l *reservedLog) free() (map[string]int, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]int, len(l.left))
	for id, n := range l.left {
		out[id] = n
	}
	return out, l.version
}
