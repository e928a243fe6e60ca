package ec2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/coppice-dev/coppice/internal/cloud"
)

const (
	// receiveWait is how long an empty queue is listened to per call, and receiveMax how
	// many messages come at once: SQS's greatest.
	// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
	receiveWait = 20
	receiveMax  = 10
	// visibility is how long others don't see a message that is being handled: much
	// longer than that takes, much shorter than a spot instance's two minutes.
	visibility = 20
)

// notice is an EventBridge event, as far as it matters here.
type notice struct {
	Source     string    `json:"source"`
	DetailType string    `json:"detail-type"`
	Time       time.Time `json:"time"`
	Detail     struct {
		InstanceID string `json:"instance-id"`
		State      string `json:"state"`
		Service    string `json:"service"`
		Category   string `json:"eventTypeCategory"`
		Affected   []struct {
			Value string `json:"entityValue"`
		} `json:"affectedEntities"`
	} `json:"detail"`
}

// readNotice says what a message means. One that isn't an event, or an event of
// another kind, interrupts nothing.
func readNotice(body string) cloud.Interruption {
	none := cloud.Interruption{Kind: cloud.NoInterruption}
	var n notice
	if err := json.Unmarshal([]byte(body), &n); err != nil {
		return none
	}
	out := cloud.Interruption{At: n.Time}
	if n.Detail.InstanceID != "" {
		out.Instances = []string{n.Detail.InstanceID}
	}
	switch n.Source + "/" + n.DetailType {
	case "aws.ec2/EC2 Spot Instance Interruption Warning":
		out.Kind = cloud.SpotInterrupted
	case "aws.ec2/EC2 Instance Rebalance Recommendation":
		out.Kind = cloud.RebalanceRecommended
	case "aws.ec2/EC2 Capacity Reservation Instance Interruption Warning":
		out.Kind = cloud.ReservationInterrupted
	case "aws.ec2/EC2 Instance State-change Notification":
		switch n.Detail.State {
		case "stopping", "stopped":
			out.Kind = cloud.InstanceStopped
		case "shutting-down", "terminated":
			out.Kind = cloud.InstanceTerminated
		default:
			return none
		}
	case "aws.health/AWS Health Event":
		if n.Detail.Service != "EC2" || n.Detail.Category != "scheduledChange" {
			return none
		}
		out.Kind, out.Instances = cloud.ScheduledChange, nil
		for _, e := range n.Detail.Affected {
			out.Instances = append(out.Instances, e.Value)
		}
	default:
		return none
	}
	return out
}

// Interruptions waits for messages in the interruption queue, for 20 s at most. A
// message comes again until it is acknowledged.
func (p *Provider) Interruptions(ctx context.Context) ([]cloud.Interruption, error) {
	url, err := p.queueURL(ctx)
	if err != nil {
		return nil, err
	}
	out, err := p.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: receiveMax, WaitTimeSeconds: receiveWait, VisibilityTimeout: visibility,
	})
	if err != nil {
		return nil, fmt.Errorf("receive from queue %s: %w", p.cfg.InterruptionQueue, err)
	}
	list := make([]cloud.Interruption, 0, len(out.Messages))
	for _, m := range out.Messages {
		i := readNotice(aws.ToString(m.Body))
		i.Receipt = aws.ToString(m.ReceiptHandle)
		list = append(list, i)
	}
	return list, nil
}

// Acknowledge removes messages that were handled, ten at most.
func (p *Provider) Acknowledge(ctx context.Context, receipts []string) error {
	if len(receipts) == 0 {
		return nil
	}
	url, err := p.queueURL(ctx)
	if err != nil {
		return err
	}
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &url}
	for i, r := range receipts {
		in.Entries = append(in.Entries, sqstypes.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &r})
	}
	out, err := p.sqs.DeleteMessageBatch(ctx, in)
	if err != nil {
		return fmt.Errorf("delete from queue %s: %w", p.cfg.InterruptionQueue, err)
	}
	var errs []error
	for _, f := range out.Failed {
		errs = append(errs, fmt.Errorf("delete from queue %s: %s", p.cfg.InterruptionQueue, aws.ToString(f.Message)))
	}
	return errors.Join(errs...)
}

// queueURL finds the queue once.
func (p *Provider) queueURL(ctx context.Context) (string, error) {
	return p.queues.get(ctx, p.cfg.InterruptionQueue, func(ctx context.Context) (string, error) {
		out, err := p.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &p.cfg.InterruptionQueue})
		if err != nil {
			return "", fmt.Errorf("find queue %s: %w", p.cfg.InterruptionQueue, err)
		}
		return aws.ToString(out.QueueUrl), nil
	})
}

// Lost says that EC2 has taken an instance of an offering back, so that the next
// launch doesn't ask for the same.
func (p *Provider) Lost(capacityType, instanceType, zone, reservation string) {
	k := offeringKey{capacityType: capacityType, instanceType: instanceType, zone: zone}
	if capacityType == cloud.Reserved {
		k.reservation = reservation
	}
	p.unavailable.mark(k, p.clock.Now())
}
