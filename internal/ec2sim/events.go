package ec2sim

import (
	"encoding/json"
	"time"
)

// noticeTime is the warning that EC2 gives before it takes a Spot Instance back.
const noticeTime = 2 * time.Minute

// event is what EventBridge delivers.
type event struct {
	Version    string         `json:"version"`
	ID         string         `json:"id"`
	DetailType string         `json:"detail-type"`
	Source     string         `json:"source"`
	Account    string         `json:"account"`
	Time       string         `json:"time"`
	Region     string         `json:"region"`
	Resources  []string       `json:"resources"`
	Detail     map[string]any `json:"detail"`
}

// emit puts an event into every queue.
func (s *Server) emit(source, detailType string, resources []string, detail map[string]any) {
	if len(s.queues) == 0 {
		return
	}
	data, err := json.Marshal(event{
		Version: "0", ID: s.fleetID()[len("fleet-"):], DetailType: detailType, Source: source,
		Account: s.cfg.Account, Time: s.clock.Now().UTC().Format(time.RFC3339), Region: s.cfg.Region,
		Resources: resources, Detail: detail,
	})
	if err != nil {
		panic("marshal event: " + err.Error())
	}
	for _, name := range sortedKeys(s.queues) {
		s.send(s.queues[name], string(data), 0)
	}
}

func (s *Server) instanceARN(i *instance) string { return s.arn("ec2", "instance/"+i.id) }

// announce tells of an instance's new state.
func (s *Server) announce(i *instance) {
	s.emit("aws.ec2", "EC2 Instance State-change Notification", []string{s.instanceARN(i)},
		map[string]any{"instance-id": i.id, "state": i.state})
}

// interrupt warns that a spot instance will be taken back, and takes it back two
// minutes later. It reports false for what is no live spot instance or is being
// interrupted already.
func (s *Server) interrupt(i *instance) bool {
	if i.capacityType != Spot || !i.live() || !i.interruptedAt.IsZero() {
		return false
	}
	i.interruptedAt = s.clock.Now()
	s.emit("aws.ec2", "EC2 Spot Instance Interruption Warning", []string{s.instanceARN(i)},
		map[string]any{"instance-id": i.id, "instance-action": "terminate"})
	s.after(noticeTime, func() { s.terminate(i, "Server.SpotInstanceTermination") })
	return true
}

// reclaim warns that the reservation that an instance runs in is taken back, and ends
// the instance two minutes later. It reports false for what runs in none.
func (s *Server) reclaim(i *instance) bool {
	if i.capacityID == "" || !i.live() || !i.interruptedAt.IsZero() {
		return false
	}
	i.interruptedAt = s.clock.Now()
	s.emit("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning", []string{s.instanceARN(i)}, map[string]any{
		"instance-id": i.id, "instance-action": "terminate",
		"instance-termination-time": i.interruptedAt.Add(noticeTime).UTC().Format(time.RFC3339),
	})
	s.after(noticeTime, func() { s.terminate(i, "Server.CapacityReservationInterruption") })
	return true
}

// rebalance says that a spot instance is at risk.
func (s *Server) rebalance(i *instance) bool {
	if i.capacityType != Spot || !i.live() {
		return false
	}
	s.emit("aws.ec2", "EC2 Instance Rebalance Recommendation", []string{s.instanceARN(i)},
		map[string]any{"instance-id": i.id})
	return true
}

// retire schedules an instance's retirement and says so as AWS Health does.
func (s *Server) retire(i *instance) bool {
	if !i.live() {
		return false
	}
	now := s.clock.Now()
	i.events = append(i.events, instanceEvent{
		id: s.id("instance-event"), code: "instance-retirement",
		description: "The instance is running on degraded hardware", notBefore: now.AddDate(0, 0, 14),
	})
	s.emit("aws.health", "AWS Health Event", []string{i.id}, map[string]any{
		"eventArn":          "arn:aws:health:" + s.cfg.Region + "::event/EC2/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED/" + i.id,
		"service":           "EC2",
		"eventTypeCode":     "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
		"eventTypeCategory": "scheduledChange",
		"startTime":         now.AddDate(0, 0, 14).UTC().Format(time.RFC1123),
		"affectedEntities":  []map[string]any{{"entityValue": i.id}},
	})
	return true
}

// impair fails one of an instance's status checks, system or instance; empty
// heals it.
func (s *Server) impair(i *instance, check string) bool {
	if i.state != StateRunning {
		return false
	}
	i.impairedBy, i.impaired = check, s.clock.Now()
	return true
}
