package ec2

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coppice-dev/coppice/internal/cloud"
)

func TestReadNotice(t *testing.T) {
	tests := map[string]struct {
		why, body string
		kind      cloud.InterruptionKind
		instances []string
	}{
		"spot": {"two minutes' notice", `{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","detail":{"instance-id":"i-1","instance-action":"terminate"}}`,
			cloud.SpotInterrupted, []string{"i-1"}},
		"rebalance": {"a recommendation", `{"source":"aws.ec2","detail-type":"EC2 Instance Rebalance Recommendation","detail":{"instance-id":"i-1"}}`,
			cloud.RebalanceRecommended, []string{"i-1"}},
		"stopping": {"somebody stops it", `{"source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","detail":{"instance-id":"i-1","state":"stopping"}}`,
			cloud.InstanceStopped, []string{"i-1"}},
		"terminated": {"somebody ends it", `{"source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","detail":{"instance-id":"i-1","state":"shutting-down"}}`,
			cloud.InstanceTerminated, []string{"i-1"}},
		"started": {"nothing to do", `{"source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","detail":{"instance-id":"i-1","state":"running"}}`,
			cloud.NoInterruption, nil},
		"maintenance": {"several at once", `{"source":"aws.health","detail-type":"AWS Health Event","detail":{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"i-1"},{"entityValue":"i-2"}]}}`,
			cloud.ScheduledChange, []string{"i-1", "i-2"}},
		"another service's maintenance": {"not EC2's", `{"source":"aws.health","detail-type":"AWS Health Event","detail":{"service":"RDS","eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"i-1"}]}}`,
			cloud.NoInterruption, nil},
		"an issue": {"not a scheduled change", `{"source":"aws.health","detail-type":"AWS Health Event","detail":{"service":"EC2","eventTypeCategory":"issue","affectedEntities":[{"entityValue":"i-1"}]}}`,
			cloud.NoInterruption, nil},
		"no JSON":  {"somebody else's message must not stay in the queue", "hello", cloud.NoInterruption, nil},
		"no event": {"nor must this", `[]`, cloud.NoInterruption, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			want := cloud.Interruption{Kind: tc.kind, Instances: tc.instances}
			if diff := cmp.Diff(want, readNotice(tc.body), cmpopts.IgnoreFields(cloud.Interruption{}, "At")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
