package ec2sim_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/coppice-dev/coppice/internal/ec2sim"
)

// mailbox reads the queue of a world.
type mailbox struct {
	t      *testing.T
	client *sqs.Client
	url    *string
}

func (w *world) mailbox() *mailbox {
	w.t.Helper()
	client := sqs.NewFromConfig(w.aws)
	out := must(client.GetQueueUrl(w.t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("interruptions")}))(w.t)
	return &mailbox{w.t, client, out.QueueUrl}
}

func (m *mailbox) receive(max, wait int32) []sqstypes.Message {
	m.t.Helper()
	out := must(m.client.ReceiveMessage(m.t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: m.url, MaxNumberOfMessages: max, WaitTimeSeconds: wait, VisibilityTimeout: 20,
		MessageSystemAttributeNames: []sqstypes.MessageSystemAttributeName{"SentTimestamp"},
	}))(m.t)
	return out.Messages
}

func (m *mailbox) remove(msg sqstypes.Message) {
	m.t.Helper()
	must(m.client.DeleteMessage(m.t.Context(), &sqs.DeleteMessageInput{QueueUrl: m.url, ReceiptHandle: msg.ReceiptHandle}))(m.t)
}

// notice is an EventBridge event as a node provisioner reads it.
type notice struct {
	Version, Source, Account, Region, Time string
	DetailType                             string `json:"detail-type"`
	Resources                              []string
	Detail                                 struct {
		InstanceID string `json:"instance-id"`
		State      string
		Action     string `json:"instance-action"`
	}
}

// drain takes and deletes everything, and returns it in order of arrival.
func (m *mailbox) drain() []notice {
	m.t.Helper()
	var all []notice
	for {
		messages := m.receive(10, 0)
		if len(messages) == 0 {
			return all
		}
		for _, msg := range messages {
			var n notice
			if err := json.Unmarshal([]byte(*msg.Body), &n); err != nil {
				m.t.Fatal(err)
			}
			all = append(all, n)
			m.remove(msg)
		}
	}
}

func TestSQS(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	m := w.mailbox()
	send := func(body string, delay int32) {
		t.Helper()
		must(m.client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: m.url, MessageBody: aws.String(body), DelaySeconds: delay}))(t)
	}
	send("one", 0)
	send("two", 0)
	got := m.receive(10, 0)
	if len(got) != 2 || *got[0].Body != "one" || got[0].Attributes["SentTimestamp"] != fmt.Sprint(began.UnixMilli()) {
		t.Fatalf("received %+v", got)
	}
	if again := m.receive(10, 0); len(again) != 0 {
		t.Errorf("received %d messages that are in flight", len(again))
	}
	m.remove(got[0])
	w.clock.Advance(20 * time.Second)
	if again := m.receive(10, 0); len(again) != 1 || *again[0].Body != "two" {
		t.Errorf("after the visibility timeout: %+v, want the one not deleted", again)
	}

	// A long poll ends when a message comes, and not before.
	poll := make(chan []sqstypes.Message)
	go func() { poll <- m.receive(10, 20) }()
	select {
	case got := <-poll:
		t.Fatalf("the poll of an empty queue returned %+v at once", got)
	case <-time.After(100 * time.Millisecond):
	}
	send("three", 0)
	if got := <-poll; len(got) != 1 || *got[0].Body != "three" {
		t.Errorf("long poll: %+v", got)
	}
	// Or when its time is over.
	go func() { poll <- m.receive(1, 5) }()
	waitFor(t, func() bool { w.clock.Advance(time.Second); return len(poll) > 0 || received(poll, &got) })
	if len(got) != 0 {
		t.Errorf("a poll that ran out: %+v", got)
	}

	// A message that becomes visible during a poll ends it.
	w.clock.Advance(time.Hour)
	for _, msg := range m.receive(10, 0) {
		m.remove(msg)
	}
	send("late", 10)
	sent := w.clock.Now()
	go func() { poll <- m.receive(10, 20) }()
	got = nil
	waitFor(t, func() bool { w.clock.Advance(time.Second); return received(poll, &got) })
	if len(got) != 1 || *got[0].Body != "late" || w.clock.Now().Sub(sent) < 10*time.Second {
		t.Errorf("delayed message: %+v after %s", got, w.clock.Now().Sub(sent))
	}

	_, err := m.client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("missing")})
	wantCode(t, "a missing queue", err, "AWS.SimpleQueueService.NonExistentQueue")
	_, err = m.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: m.url, ReceiptHandle: aws.String("nonsense")})
	wantCode(t, "a bad receipt", err, "ReceiptHandleIsInvalid")
	must(m.client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: m.url}))(t)
	_, err = m.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: m.url})
	wantCode(t, "a deleted queue", err, "AWS.SimpleQueueService.NonExistentQueue")
	must(m.client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("interruptions")}))(t)
	if got := m.receive(10, 0); len(got) != 0 {
		t.Errorf("a new queue holds %+v", got)
	}
}

func TestSQSBatches(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	m := w.mailbox()
	for n := range 4 {
		must(m.client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: m.url, MessageBody: aws.String(fmt.Sprint("message ", n))}))(t)
	}
	counts := func() string {
		t.Helper()
		out := must(m.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: m.url, AttributeNames: []sqstypes.QueueAttributeName{"All"}}))(t)
		return out.Attributes["ApproximateNumberOfMessages"] + " visible, " + out.Attributes["ApproximateNumberOfMessagesNotVisible"] + " in flight"
	}
	got := m.receive(3, 0)
	if counts() != "1 visible, 3 in flight" {
		t.Errorf("counts %s", counts())
	}
	must(m.client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: m.url, ReceiptHandle: got[0].ReceiptHandle, VisibilityTimeout: 0}))(t)
	if counts() != "2 visible, 2 in flight" {
		t.Errorf("counts %s after one was given back", counts())
	}
	_, err := m.client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: m.url, ReceiptHandle: got[0].ReceiptHandle, VisibilityTimeout: 5})
	wantCode(t, "change what is not in flight", err, "MessageNotInflight")
	batch := must(m.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: m.url, Entries: []sqstypes.DeleteMessageBatchRequestEntry{
		{Id: aws.String("one"), ReceiptHandle: got[1].ReceiptHandle}, {Id: aws.String("two"), ReceiptHandle: aws.String("nonsense")},
	}}))(t)
	if len(batch.Successful) != 1 || len(batch.Failed) != 1 || *batch.Failed[0].Code != "ReceiptHandleIsInvalid" || counts() != "2 visible, 1 in flight" {
		t.Errorf("batch %+v, %s", batch, counts())
	}
	must(m.client.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: m.url}))(t)
	if counts() != "0 visible, 0 in flight" {
		t.Errorf("counts %s after a purge", counts())
	}
}

func received(from chan []sqstypes.Message, into *[]sqstypes.Message) bool {
	select {
	case *into = <-from:
		return true
	default:
		return false
	}
}

// waitFor tries for up to ten seconds of real time.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("it did not happen")
}

func TestInterruption(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	m := w.mailbox()
	spotID := w.launch(w.fleetInput("nodes", spot, 1, offer{"m5.large", "us-west-2a"}))[0]
	plainID := w.launch(w.fleetInput("nodes", onDemand, 1, offer{"m5.large", "us-west-2a"}))[0]
	w.clock.Advance(time.Minute)
	m.drain()

	if hit := w.do(ec2sim.Step{Interrupt: &ec2sim.Victims{}}); !slices.Equal(hit, []string{spotID}) {
		t.Fatalf("interrupted %q, want the spot instance alone", hit)
	}
	if hit := w.do(ec2sim.Step{Interrupt: &ec2sim.Victims{}}); len(hit) != 0 {
		t.Errorf("interrupted %q twice", hit)
	}
	got := m.drain()
	if len(got) != 1 || got[0].DetailType != "EC2 Spot Instance Interruption Warning" || got[0].Detail.InstanceID != spotID ||
		got[0].Detail.Action != "terminate" || got[0].Source != "aws.ec2" || got[0].Version != "0" ||
		got[0].Resources[0] != "arn:aws:ec2:us-west-2:123456789012:instance/"+spotID {
		t.Fatalf("warning %+v", got)
	}
	w.clock.Advance(119 * time.Second)
	if i := w.describe(spotID); i.State.Name != "running" {
		t.Errorf("%s before the two minutes are over", i.State.Name)
	}
	w.clock.Advance(time.Second)
	if i := w.describe(spotID); i.State.Name != "shutting-down" || *i.StateReason.Code != "Server.SpotInstanceTermination" {
		t.Errorf("after two minutes %s for %v", i.State.Name, i.StateReason)
	}
	got = m.drain()
	if len(got) != 1 || got[0].DetailType != "EC2 Instance State-change Notification" || got[0].Detail.State != "shutting-down" {
		t.Errorf("state change %+v", got)
	}
	if i := w.describe(plainID); i.State.Name != "running" {
		t.Errorf("the on-demand instance is %s", i.State.Name)
	}

	w.do(ec2sim.Step{Retire: &ec2sim.Victims{IDs: []string{plainID}}})
	got = m.drain()
	if len(got) != 1 || got[0].Source != "aws.health" || got[0].DetailType != "AWS Health Event" || got[0].Resources[0] != plainID {
		t.Errorf("health event %+v", got)
	}
	spotID = w.launch(w.fleetInput("nodes", spot, 1, offer{"m5.large", "us-west-2a"}))[0]
	m.drain()
	w.do(ec2sim.Step{Rebalance: &ec2sim.Victims{}})
	got = m.drain()
	if len(got) != 1 || got[0].DetailType != "EC2 Instance Rebalance Recommendation" || got[0].Detail.InstanceID != spotID {
		t.Errorf("rebalance %+v", got)
	}
}

func TestScenarioFile(t *testing.T) {
	sc, err := ec2sim.ParseScenario([]byte(`
steps:
- at: 10s
  for: 1m
  shortage: {match: {types: ["m5.*"], zones: [usw2-az2]}, left: 0}
- at: 20s
  interrupt: {match: {zones: [us-west-2b]}, count: 1}
- at: 30s
  for: 30s
  outage: {zones: [us-west-2c]}
- at: 40s
  for: 1m
  boot: {delay: 1m, fail: 1}
- at: 3m
  for: 1m
  boot: {hang: 1}
- at: 5m
  for: 1m
  calls: {actions: ["ec2:Describe*"], code: InternalError}
- at: 5m
  for: 1m
  calls: {actions: [ec2:CreateFleet], code: RequestLimitExceeded, count: 1}
`))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *ec2sim.Config) { c.Scenario = &sc })
	w.template("nodes")
	a := w.fleetInput("nodes", spot, 1, offer{"m5.large", "us-west-2a"})
	b := w.fleetInput("nodes", spot, 2, offer{"m5.large", "us-west-2b"})
	c := w.fleetInput("nodes", spot, 1, offer{"m5.large", "us-west-2c"})
	if len(w.fleet(a).Instances) != 1 {
		t.Fatal("no launch before the shortage")
	}
	inB, inC := w.launch(b), w.launch(c)
	w.clock.Advance(10 * time.Second)
	if out := w.fleet(a); len(out.Instances) != 0 {
		t.Error("launched during the shortage")
	}
	w.clock.Advance(20 * time.Second)
	if i := w.describe(inC[0]); i.State.Name != "shutting-down" {
		t.Errorf("in the zone that is down: %s", i.State.Name)
	}
	if out := w.fleet(c); len(out.Instances) != 0 {
		t.Error("launched in a zone that is down")
	}
	w.clock.Advance(30 * time.Second)
	if out := w.fleet(c); len(out.Instances) != 1 {
		t.Errorf("no launch after the outage: %v", errorCodes(out))
	}
	late := w.launch(b)[0]
	w.clock.Advance(10 * time.Second)
	if out := w.fleet(a); len(out.Instances) != 1 {
		t.Errorf("no launch after the shortage: %v", errorCodes(out))
	}
	w.clock.Advance(79 * time.Second)
	if i := w.describe(late); i.State.Name != "pending" {
		t.Errorf("with a minute's delay: %s", i.State.Name)
	}
	w.clock.Advance(time.Second)
	if i := w.describe(late); i.State.Name != "shutting-down" {
		t.Errorf("a boot that fails: %s", i.State.Name)
	}
	var ended int
	for _, id := range inB {
		if w.describe(id).State.Name == "shutting-down" {
			ended++
		}
	}
	if ended != 1 {
		t.Errorf("%d of two interrupted, want 1", ended)
	}
	w.clock.Advance(30 * time.Second)
	hung := w.launch(a)[0]
	w.clock.Advance(time.Minute)
	if i, _ := w.sim.Instance(hung); i.State != ec2sim.StateRunning || !i.Failed {
		t.Errorf("a boot that hangs: %s, failed %t", i.State, i.Failed)
	}
	// The subnets are looked up while that still works.
	x := w.fleetInput("nodes", spot, 1, offer{"m5.large", "us-west-2a"})
	w.clock.Advance(time.Minute)
	_, err = w.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{MaxResults: aws.Int32(5)})
	wantCode(t, "describe", err, "InternalError")
	_, err = w.ec2.CreateFleet(t.Context(), x)
	wantCode(t, "the first fleet", err, "RequestLimitExceeded")
	if out := w.fleet(x); len(out.Instances) != 1 {
		t.Error("the second fleet failed too")
	}
	w.clock.Advance(time.Minute)
	w.subnets()
}

func TestScenarioErrors(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"two things":    {"steps: [{at: 1s, outage: {zones: [a]}, interrupt: {}}]", "exactly one thing"},
		"nothing":       {"steps: [{at: 1s}]", "exactly one thing"},
		"misspelt":      {"steps: [{at: 1s, shortege: {}}]", "unknown field"},
		"capacity type": {"steps: [{interrupt: {match: {capacityTypes: [sport]}}}]", "use spot or on-demand"},
		"pattern":       {"steps: [{interrupt: {match: {types: [\"m5[\"]}}}]", "pattern"},
		"duration":      {"steps: [{at: soon, interrupt: {}}]", "duration"},
		"number":        {"steps: [{at: 5, interrupt: {}}]", "write it as"},
		"factor":        {"steps: [{prices: {match: {}, factor: 0}}]", "above zero"},
		"fractions":     {"steps: [{boot: {fail: 0.7, hang: 0.7}}]", "at most 1"},
	}
	for name, test := range tests {
		if _, err := ec2sim.ParseScenario([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, test.want)
		}
	}
}

func TestSlowCalls(t *testing.T) {
	w := newWorld(t)
	w.do(ec2sim.Step{Calls: &ec2sim.CallFault{Actions: []string{"ec2:DescribeSubnets"}, Delay: ec2sim.Duration(5 * time.Second)}})
	done := make(chan error, 1)
	go func() {
		_, err := w.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("answered at once: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if len(w.groups()) == 0 { // others are not held up
		t.Error("no groups")
	}
	waitFor(t, func() bool { w.clock.Advance(time.Second); return len(done) > 0 })
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestControl(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	ids := w.launch(w.fleetInput("nodes", onDemand, 2, offer{"m5.large", "us-west-2a"}))
	w.clock.Advance(30 * time.Minute)
	get := func(path string, into any) {
		t.Helper()
		status, body := w.send("GET", path, "", "")
		if err := json.Unmarshal([]byte(body), into); err != nil || status != 200 {
			t.Fatalf("GET %s: %d, %v: %s", path, status, err, body)
		}
	}
	var st ec2sim.State
	get("/_sim/state", &st)
	if st.Instances["running"] != 2 || st.MicroUSDPerHour != 192000 || st.SpentMicroUSD != 96000 || len(st.Zones) != 4 {
		t.Errorf("state %+v, want two m5.large at $0.096 for half an hour", st)
	}
	var pools []ec2sim.Pool
	get("/_sim/pools", &pools)
	if len(pools) != 1 || pools[0].Used != 2 || pools[0].Type != "m5.large" || pools[0].Capacity != 10000 {
		t.Errorf("pools %+v", pools)
	}
	var instances []ec2sim.Instance
	get("/_sim/instances", &instances)
	if len(instances) != 2 || instances[0].ID != ids[0] {
		t.Errorf("instances %+v", instances)
	}
	var calls []ec2sim.Calls
	get("/_sim/calls", &calls)
	if !slices.ContainsFunc(calls, func(c ec2sim.Calls) bool { return c.Action == "ec2:CreateFleet" && c.Calls == 1 }) {
		t.Errorf("calls %+v", calls)
	}
	status, body := w.send("POST", "/_sim/do", "", `{"terminate": {"ids": ["`+ids[1]+`"]}}`)
	if status != 200 || !strings.Contains(body, ids[1]) || w.describe(ids[1]).State.Name != "shutting-down" {
		t.Errorf("terminate: %d %s", status, body)
	}
	if status, _ := w.send("POST", "/_sim/do", "", `{"shortage": {"match": {}, "left": 0}, "for": "1h"}`); status != 200 {
		t.Errorf("shortage: %d", status)
	}
	if get("/_sim/state", &st); len(st.Effects) != 1 || st.Effects[0].Shortage == nil || st.Effects[0].For != ec2sim.Duration(time.Hour) {
		t.Errorf("state %+v during a shortage", st)
	}
	if status, _ := w.send("DELETE", "/_sim/effects", "", ""); status != 204 || len(w.sim.State().Effects) != 0 {
		t.Errorf("effects: %d, %+v", status, w.sim.State())
	}
	play := "steps: [{at: 1m, outage: {zones: [us-west-2a]}, for: 5m}]"
	if status, body := w.send("POST", "/_sim/play", "", play); status != 200 {
		t.Errorf("play: %d %s", status, body)
	}
	w.clock.Advance(2 * time.Minute)
	if st := w.sim.State(); len(st.Effects) != 1 || st.Effects[0].Outage == nil || st.Instances["running"] != 0 {
		t.Errorf("state %+v during the outage", st)
	}
	if status, body := w.send("POST", "/_sim/play", "", "steps: [{}]"); status != 400 || !strings.Contains(body, "step 1") {
		t.Errorf("play nonsense: %d %s", status, body)
	}
	for what, body := range map[string]string{"nothing": "", "no step": "{}", "unknown": `{"explode": {}}`, "half": `{"interrupt"`, "zone": `{"outage": {"zones": ["us-west-9a"]}}`} {
		if status, answer := w.send("POST", "/_sim/do", "", body); status != 400 || !strings.Contains(answer, "error") {
			t.Errorf("%s: %d %s", what, status, answer)
		}
	}
	if status, _ := w.send("GET", "/_sim/nothing", "", ""); status != 404 {
		t.Errorf("an unknown path: %d", status)
	}
}

// TestWatchOrder launches and terminates from many goroutines, in real time.
func TestWatchOrder(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) {
		c.Clock, c.Unthrottled = ec2sim.NewClock(1000), true
		c.BootDelay, c.ShutdownDelay, c.BootJitter = 10*time.Second, 5*time.Second, 5*time.Second
	})
	w.template("nodes")
	var mu sync.Mutex
	seen := map[string][]string{}
	stop := w.sim.Watch(func(i ec2sim.Instance) {
		// A callback may call the simulator.
		if _, ok := w.sim.Instance(i.ID); !ok {
			t.Errorf("%s is not there", i.ID)
		}
		mu.Lock()
		defer mu.Unlock()
		seen[i.ID] = append(seen[i.ID], i.State)
	})
	in := w.fleetInput("nodes", spot, 3, offer{"m5.large", "us-west-2a"}, offer{"c5.large", "us-west-2b"})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			own := *in
			own.ClientToken = nil
			for range 5 {
				own.ClientToken = nil
				out, err := w.ec2.CreateFleet(t.Context(), &own)
				if err != nil {
					t.Error(err)
					return
				}
				for _, i := range out.Instances {
					if _, err := w.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: i.InstanceIds[:1]}); err != nil {
						t.Error(err)
					}
				}
				if _, err := w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{filter("instance-state-name", "running")}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	waitFor(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for _, states := range seen {
			if last := states[len(states)-1]; last == "running" || last == "terminated" {
				n++
			}
		}
		return n == 120
	})
	stop()
	mu.Lock()
	defer mu.Unlock()
	orders := []string{"pending running", "pending shutting-down terminated", "pending running shutting-down terminated"}
	for id, states := range seen {
		if !slices.Contains(orders, strings.Join(states, " ")) {
			t.Errorf("%s went through %q", id, states)
		}
	}
}

func TestClose(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.Clock = ec2sim.NewClock(1) })
	m := w.mailbox()
	polled := make(chan struct{})
	go func() { m.receive(10, 20); close(polled) }()
	time.Sleep(50 * time.Millisecond)
	w.sim.Close()
	w.sim.Close()
	select {
	case <-polled:
	case <-time.After(5 * time.Second):
		t.Error("a long poll outlived the simulator")
	}
	_, err := w.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	wantCode(t, "after closing", err, "Unavailable")
	called := false
	w.sim.Watch(func(ec2sim.Instance) { called = true })()
	if called {
		t.Error("a watcher was called after closing")
	}
}

func TestConfigErrors(t *testing.T) {
	for what, c := range map[string]ec2sim.Config{
		"region":   {Region: "xx-north-1"},
		"zones":    {Zones: 9},
		"cluster":  {Clusters: []ec2sim.Cluster{{}}},
		"scenario": {Scenario: &ec2sim.Scenario{Steps: []ec2sim.Step{{}}}},
	} {
		if _, err := ec2sim.New(c); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	for _, region := range []string{"us-west-2", "us-east-1", "eu-west-1"} {
		sim, err := ec2sim.New(ec2sim.Config{Region: region})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(sim)
		w := &world{t: t, url: srv.URL}
		client := ec2.NewFromConfig(w.client("AKID", "secret", region))
		if out := must(client.DescribeAvailabilityZones(t.Context(), &ec2.DescribeAvailabilityZonesInput{}))(t); len(out.AvailabilityZones) < 3 {
			t.Errorf("%s: %d zones", region, len(out.AvailabilityZones))
		}
		sim.Close()
		srv.Close()
	}
}
