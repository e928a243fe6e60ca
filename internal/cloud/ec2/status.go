package ec2

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/coppice-dev/coppice/internal/cloud"
)

const (
	// checksBegin is how old an instance has to be before its status is asked for:
	// EC2's checks run every minute and are initializing for the first few.
	checksBegin = 3 * time.Minute
	// failedFor is how long a status check has to have failed to be believed.
	// Karpenter's value: a reboot fails a check for less.
	failedFor = 2 * time.Minute
	// statusByID is the most instances whose status one call asks for by ID.
	// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceStatus.html
	statusByID = 100
	// statusFiltered is how many calls the questions by filter take, whatever the
	// number of instances.
	statusFiltered = 3
)

// scheduled are the codes of events that an instance with pods on it doesn't survive.
func scheduled() []string {
	return []string{"instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"}
}

// Troubled is as in cloud.Provider. A small fleet is asked about by ID, a large one by
// what is wrong, which costs three calls and also finds other clusters' instances. To a
// capacity block's instances its end is a planned event, told while there is still time
// to drain them.
func (p *Provider) Troubled(ctx context.Context) ([]cloud.Interruption, error) {
	list, known := p.lists.peek(struct{}{}, factsTTL)
	if !known {
		var err error
		if list, err = p.Instances(ctx); err != nil {
			return nil, fmt.Errorf("check instances: %w", err)
		}
	}
	now := p.clock.Now()
	ours := map[string]bool{}
	var ids []string
	for _, i := range list {
		if i.State == string(ec2types.InstanceStateNameRunning) && now.Sub(i.LaunchTime) >= checksBegin {
			ours[i.ID] = true
			ids = append(ids, i.ID)
		}
	}
	var questions []*ec2.DescribeInstanceStatusInput
	if len(ids) <= statusFiltered*statusByID {
		for part := range slices.Chunk(ids, statusByID) {
			questions = append(questions, &ec2.DescribeInstanceStatusInput{InstanceIds: part})
		}
	} else {
		questions = statusQuestions()
	}
	found, err := p.askStatus(ctx, questions)
	if code(err) == codeInstanceNotFound {
		// One of them is gone for so long that EC2 has forgotten it, which spoils the
		// whole question.
		found, err = p.askStatus(ctx, statusQuestions())
	}
	if err != nil {
		return nil, err
	}
	out := troubles(found, ours, now)
	for _, i := range list {
		end, expiring := p.reserved.expiring(i.ReservationID, now)
		if !expiring || i.State != string(ec2types.InstanceStateNameRunning) && i.State != string(ec2types.InstanceStateNamePending) {
			continue
		}
		if !slices.ContainsFunc(out, func(o cloud.Interruption) bool { return o.Instances[0] == i.ID }) {
			out = append(out, cloud.Interruption{Kind: cloud.ScheduledChange, Instances: []string{i.ID}, At: end})
		}
	}
	slices.SortFunc(out, func(a, b cloud.Interruption) int { return strings.Compare(a.Instances[0], b.Instances[0]) })
	return out, nil
}

// statusQuestions ask for everything that is wrong with any instance of the account:
// EC2 joins filters with and, so that each needs a call.
func statusQuestions() []*ec2.DescribeInstanceStatusInput {
	ask := func(f ec2types.Filter) *ec2.DescribeInstanceStatusInput {
		return &ec2.DescribeInstanceStatusInput{Filters: []ec2types.Filter{f}, MaxResults: new(int32(1000))}
	}
	return []*ec2.DescribeInstanceStatusInput{
		ask(filter("instance-status.status", "impaired")),
		ask(filter("system-status.status", "impaired")),
		ask(filter("event.code", scheduled()...)),
	}
}

// askStatus asks the questions at once.
func (p *Provider) askStatus(ctx context.Context, questions []*ec2.DescribeInstanceStatusInput) ([]ec2types.InstanceStatus, error) {
	found := make([][]ec2types.InstanceStatus, len(questions))
	errs := make([]error, len(questions))
	var wg sync.WaitGroup
	for i, q := range questions {
		wg.Go(func() {
			pages := ec2.NewDescribeInstanceStatusPaginator(p.ec2, q)
			for pages.HasMorePages() {
				page, err := pages.NextPage(ctx)
				if err != nil {
					errs[i] = failed("check instances", err)
					return
				}
				found[i] = append(found[i], page.InstanceStatuses...)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(found...), nil
}

// troubles says what is wrong with which of our instances, one item for each. A failed
// check comes before a plan: it is happening now.
func troubles(found []ec2types.InstanceStatus, ours map[string]bool, now time.Time) []cloud.Interruption {
	byID := map[string]cloud.Interruption{}
	for _, s := range found {
		id := deref(s.InstanceId)
		if !ours[id] {
			continue
		}
		out := cloud.Interruption{Instances: []string{id}}
		for _, summary := range []*ec2types.InstanceStatusSummary{s.InstanceStatus, s.SystemStatus} {
			if since, failing := failingSince(summary); failing && now.Sub(since) >= failedFor {
				out.Kind, out.At = cloud.StatusCheckFailed, since
			}
		}
		if e := nextEvent(s.Events); e != nil && out.Kind == "" {
			out.Kind, out.At = cloud.ScheduledChange, deref(e.NotBefore)
		}
		if out.Kind != "" {
			byID[id] = out
		}
	}
	out := make([]cloud.Interruption, 0, len(byID))
	for _, i := range byID {
		out = append(out, i)
	}
	return out
}

// failingSince says since when any of the summary's checks has failed.
func failingSince(s *ec2types.InstanceStatusSummary) (time.Time, bool) {
	var first time.Time
	if s == nil {
		return first, false
	}
	for _, d := range s.Details {
		if d.Status == ec2types.StatusTypeFailed && d.ImpairedSince != nil && (first.IsZero() || d.ImpairedSince.Before(first)) {
			first = *d.ImpairedSince
		}
	}
	return first, !first.IsZero()
}

// nextEvent is the first event that is still to come. EC2 goes on listing one that is
// over for a week, with a note in its description.
func nextEvent(events []ec2types.InstanceStatusEvent) *ec2types.InstanceStatusEvent {
	var next *ec2types.InstanceStatusEvent
	for i := range events {
		e := &events[i]
		text := strings.ToLower(deref(e.Description))
		if !slices.Contains(scheduled(), string(e.Code)) || strings.HasPrefix(text, "[completed]") || strings.HasPrefix(text, "[canceled]") {
			continue
		}
		if next == nil || deref(e.NotBefore).Before(deref(next.NotBefore)) {
			next = e
		}
	}
	return next
}
