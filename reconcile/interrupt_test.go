package reconcile_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/reconcile"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// left is how many messages are in the interruption queue, those that somebody handles
// included.
func (l *loop) left() int {
	l.t.Helper()
	cfg, err := config.LoadDefaultConfig(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	queue := sqs.NewFromConfig(cfg)
	at, err := queue.GetQueueUrl(l.t.Context(), &sqs.GetQueueUrlInput{QueueName: &l.env.Queue})
	if err != nil {
		l.t.Fatal(err)
	}
	names := []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameApproximateNumberOfMessages, sqstypes.QueueAttributeNameApproximateNumberOfMessagesNotVisible}
	out, err := queue.GetQueueAttributes(l.t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: at.QueueUrl, AttributeNames: names})
	if err != nil {
		l.t.Fatal(err)
	}
	sum := 0
	for _, name := range names {
		n, err := strconv.Atoi(out.Attributes[string(name)])
		if err != nil {
			l.t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// TestFifteenThousandNotices lets a controller find as many messages as a large fleet's
// queue holds after an outage, a few of which concern its nodes, some of them twice.
func TestFifteenThousandNotices(t *testing.T) {
	l := prepare(t, thrifty, "--boot-delay", "500ms")
	stop := l.run(reconcile.Options{Interruptions: true})
	l.deploy("web", 3, "3")
	l.running("web", 3)
	l.settled()
	stop()
	var before karpenter.NodeClaimList
	if err := l.kube.List(t.Context(), &before); err != nil || len(before.Items) == 0 {
		t.Fatalf("%d claims, %v", len(before.Items), err)
	}
	victim := before.Items[0]
	id := victim.Status.ProviderID[strings.LastIndexByte(victim.Status.ProviderID, '/')+1:]

	const notices = 15_000
	l.send(notices, func(i int) string {
		if i%5000 == 17 {
			return `{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","detail":{"instance-id":"` + id + `","instance-action":"terminate"}}`
		}
		return fmt.Sprintf(`{"source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","detail":{"instance-id":"i-%017d","state":"terminated"}}`, i)
	})
	if n := l.left(); n != notices {
		t.Fatalf("%d messages are queued, want %d", n, notices)
	}
	began := time.Now()
	l.run(reconcile.Options{Interruptions: true})
	for l.left() > 0 {
		if time.Since(began) > 5*time.Minute {
			t.Fatalf("%d messages are left after %v", l.left(), time.Since(began))
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d messages were handled in %.1f s, the controller's start included", notices, time.Since(began).Seconds())
	testkit.AwaitGone(t, l.kube, time.Minute, &karpenter.NodeClaimList{}, types.NamespacedName{Name: victim.Name})
	l.running("web", 3)
	l.settled()
	var after karpenter.NodeClaimList
	if err := l.kube.List(t.Context(), &after); err != nil {
		t.Fatal(err)
	}
	kept := map[types.UID]bool{}
	for _, c := range after.Items {
		kept[c.UID] = true
	}
	for _, c := range before.Items[1:] {
		if !kept[c.UID] {
			t.Errorf("NodeClaim %s is gone, about which nothing was said", c.Name)
		}
	}
}
