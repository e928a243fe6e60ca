package ec2sim

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// queue is an SQS standard queue.
type queue struct {
	name     string
	messages []*message
	// wake is closed, and replaced, when a message may have become visible.
	wake chan struct{}
}

type message struct {
	id, body string
	sent     time.Time
	first    time.Time
	visible  time.Time
	receives int
	receipt  string
}

// SQS's defaults and limits.
const (
	defaultVisibility = 30
	maxVisibility     = 43_200
	maxWait           = 20
	maxBatch          = 10
	maxMessage        = 1 << 20
	retention         = 4 * 24 * time.Hour
)

func newQueue(name string) *queue { return &queue{name: name, wake: make(chan struct{})} }

func sqsActions() map[string]action {
	return map[string]action{
		"ChangeMessageVisibility": {run: (*Server).changeMessageVisibility},
		"CreateQueue":             {run: (*Server).createQueue},
		"DeleteMessage":           {run: (*Server).deleteMessage},
		"DeleteMessageBatch":      {run: (*Server).deleteMessageBatch},
		"DeleteQueue":             {run: (*Server).deleteQueue},
		"GetQueueAttributes":      {run: (*Server).getQueueAttributes},
		"GetQueueUrl":             {run: (*Server).getQueueURL},
		"PurgeQueue":              {run: (*Server).purgeQueue},
		"ReceiveMessage":          {run: (*Server).receiveMessage, free: true},
		"SendMessage":             {run: (*Server).sendMessage},
	}
}

// url is where the queue claims to be. Clients send it back; they dial the
// endpoint that they were configured with.
func (s *Server) url(c *call, q *queue) string {
	return "http://" + c.http.Host + "/" + s.cfg.Account + "/" + q.name
}

func noQueue() *apiError {
	return &apiError{status: 400, code: "com.amazonaws.sqs#QueueDoesNotExist", message: "The specified queue does not exist."}
}

// queryCode is the code that SQS's query protocol had for an error.
func queryCode(code string) string {
	code = code[strings.LastIndexByte(code, '#')+1:]
	if code == "QueueDoesNotExist" {
		return "AWS.SimpleQueueService.NonExistentQueue"
	}
	return code
}

func (s *Server) queueAt(url string) (*queue, error) {
	if url == "" {
		return nil, fail("MissingParameter", "The request must contain the parameter QueueUrl.")
	}
	if q := s.queues[url[strings.LastIndexByte(url, '/')+1:]]; q != nil {
		return q, nil
	}
	return nil, noQueue()
}

func (s *Server) getQueueURL(c *call) error {
	var in struct{ QueueName string }
	if err := c.decode(&in); err != nil {
		return err
	}
	q := s.queues[in.QueueName]
	if q == nil {
		return noQueue()
	}
	c.out = map[string]string{"QueueUrl": s.url(c, q)}
	return nil
}

func (s *Server) createQueue(c *call) error {
	var in struct{ QueueName string }
	if err := c.decode(&in); err != nil {
		return err
	}
	if !profileName.MatchString(in.QueueName) || len(in.QueueName) > 80 {
		return fail("InvalidParameterValue", "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	if s.queues[in.QueueName] == nil {
		s.queues[in.QueueName] = newQueue(in.QueueName)
	}
	c.out = map[string]string{"QueueUrl": s.url(c, s.queues[in.QueueName])}
	return nil
}

func (s *Server) deleteQueue(c *call) error {
	var in struct{ QueueUrl string }
	if err := c.decode(&in); err != nil {
		return err
	}
	q, err := s.queueAt(in.QueueUrl)
	if err != nil {
		return err
	}
	delete(s.queues, q.name)
	q.rouse()
	return nil
}

func (s *Server) purgeQueue(c *call) error {
	var in struct{ QueueUrl string }
	if err := c.decode(&in); err != nil {
		return err
	}
	q, err := s.queueAt(in.QueueUrl)
	if err != nil {
		return err
	}
	q.messages = nil
	return nil
}

func (s *Server) getQueueAttributes(c *call) error {
	var in struct {
		QueueUrl       string
		AttributeNames []string
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	q, err := s.queueAt(in.QueueUrl)
	if err != nil {
		return err
	}
	visible, hidden := 0, 0
	for _, m := range q.messages {
		if m.visible.After(s.clock.Now()) {
			hidden++
		} else {
			visible++
		}
	}
	all := map[string]string{
		"ApproximateNumberOfMessages":           strconv.Itoa(visible),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(hidden),
		"CreatedTimestamp":                      strconv.FormatInt(s.began.Unix(), 10),
		"MessageRetentionPeriod":                strconv.Itoa(int(retention.Seconds())),
		"QueueArn":                              s.arn("sqs", q.name),
		"VisibilityTimeout":                     strconv.Itoa(defaultVisibility),
	}
	for name := range all {
		if !slices.Contains(in.AttributeNames, name) && !slices.Contains(in.AttributeNames, "All") {
			delete(all, name)
		}
	}
	c.out = map[string]any{"Attributes": all}
	return nil
}

func (s *Server) sendMessage(c *call) error {
	var in struct {
		QueueUrl, MessageBody string
		DelaySeconds          int
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	q, err := s.queueAt(in.QueueUrl)
	if err != nil {
		return err
	}
	switch {
	case in.MessageBody == "":
		return fail("MissingParameter", "The request must contain the parameter MessageBody.")
	case len(in.MessageBody) > maxMessage:
		return fail("InvalidParameterValue", "One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", maxMessage)
	case in.DelaySeconds < 0 || in.DelaySeconds > 900:
		return fail("InvalidParameterValue", "Value %d for parameter DelaySeconds is invalid. Reason: Must be between 0 and 900, if provided.", in.DelaySeconds)
	}
	m := s.send(q, in.MessageBody, time.Duration(in.DelaySeconds)*time.Second)
	c.out = map[string]string{"MessageId": m.id, "MD5OfMessageBody": md5Hex(m.body)}
	return nil
}

// send puts a message into a queue and wakes who waits for one.
func (s *Server) send(q *queue, body string, delay time.Duration) *message {
	now := s.clock.Now()
	m := &message{id: s.fleetID()[len("fleet-"):], body: body, sent: now, visible: now.Add(delay)}
	q.messages = append(q.messages, m)
	s.show(q, delay)
	return m
}

// show rouses the queue once a message becomes visible.
func (s *Server) show(q *queue, in time.Duration) {
	if in <= 0 {
		q.rouse()
		return
	}
	s.after(in, q.rouse)
}

func (q *queue) rouse() {
	close(q.wake)
	q.wake = make(chan struct{})
}

type receiveRequest struct {
	QueueUrl                    string
	MaxNumberOfMessages         int
	VisibilityTimeout           *int
	WaitTimeSeconds             int
	AttributeNames              []string
	MessageSystemAttributeNames []string
}

func (s *Server) receiveMessage(c *call) error {
	in := receiveRequest{MaxNumberOfMessages: 1}
	if err := c.decode(&in); err != nil {
		return err
	}
	visibility := defaultVisibility
	if in.VisibilityTimeout != nil {
		visibility = *in.VisibilityTimeout
	}
	switch {
	case in.MaxNumberOfMessages < 1 || in.MaxNumberOfMessages > maxBatch:
		return fail("InvalidParameterValue", "Value %d for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and %d, if provided.", in.MaxNumberOfMessages, maxBatch)
	case in.WaitTimeSeconds < 0 || in.WaitTimeSeconds > maxWait:
		return fail("InvalidParameterValue", "Value %d for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= %d, if provided.", in.WaitTimeSeconds, maxWait)
	case visibility < 0 || visibility > maxVisibility:
		return fail("InvalidParameterValue", "Value %d for parameter VisibilityTimeout is invalid. Reason: Must be between 0 and %d, if provided.", visibility, maxVisibility)
	}
	over := make(chan struct{})
	stop := s.clock.AfterFunc(time.Duration(in.WaitTimeSeconds)*time.Second, func() { close(over) })
	defer stop()
	for {
		s.mu.Lock()
		q, err := s.queueAt(in.QueueUrl)
		if err != nil {
			s.mu.Unlock()
			return err
		}
		got := s.receive(q, in, time.Duration(visibility)*time.Second)
		wake := q.wake
		s.mu.Unlock()
		if len(got) > 0 || in.WaitTimeSeconds == 0 {
			if len(got) > 0 {
				c.out = map[string]any{"Messages": got}
			}
			return nil
		}
		select {
		case <-wake:
		case <-over:
			return nil
		case <-s.closing:
			return nil
		case <-c.http.Context().Done():
			return nil
		}
	}
}

// receive takes what is visible and hides it.
func (s *Server) receive(q *queue, in receiveRequest, visibility time.Duration) []map[string]any {
	now := s.clock.Now()
	q.messages = slices.DeleteFunc(q.messages, func(m *message) bool { return now.Sub(m.sent) > retention })
	var got []map[string]any
	for _, m := range q.messages {
		if m.visible.After(now) || len(got) == in.MaxNumberOfMessages {
			continue
		}
		if m.receives == 0 {
			m.first = now
		}
		m.receives++
		m.visible = now.Add(visibility)
		m.receipt = fmt.Sprintf("%s#%d", m.id, m.receives)
		s.show(q, visibility)
		out := map[string]any{"MessageId": m.id, "ReceiptHandle": m.receipt, "Body": m.body, "MD5OfBody": md5Hex(m.body)}
		if attributes := m.attributes(s, slices.Concat(in.AttributeNames, in.MessageSystemAttributeNames)); len(attributes) > 0 {
			out["Attributes"] = attributes
		}
		got = append(got, out)
	}
	return got
}

func (m *message) attributes(s *Server, names []string) map[string]string {
	all := map[string]string{
		"SentTimestamp":                    strconv.FormatInt(m.sent.UnixMilli(), 10),
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(m.first.UnixMilli(), 10),
		"ApproximateReceiveCount":          strconv.Itoa(m.receives),
		"SenderId":                         s.cfg.Account,
	}
	for name := range all {
		if !slices.Contains(names, name) && !slices.Contains(names, "All") {
			delete(all, name)
		}
	}
	return all
}

func (q *queue) byReceipt(receipt string) (int, error) {
	id, _, ok := strings.Cut(receipt, "#")
	if !ok {
		return 0, fail("ReceiptHandleIsInvalid", "The input receipt handle %q is not a valid receipt handle.", receipt)
	}
	// A message that is gone already is no error to delete.
	return slices.IndexFunc(q.messages, func(m *message) bool { return m.id == id }), nil
}

func (s *Server) deleteMessage(c *call) error {
	var in struct{ QueueUrl, ReceiptHandle string }
	if err := c.decode(&in); err != nil {
		return err
	}
	q, err := s.queueAt(in.QueueUrl)
	if err != nil {
		return err
	}
	n, err := q.byReceipt(in.ReceiptHandle)
	if err != nil {
		return err
	}
	if n >= 0 {
		q.messages = slices.Delete(q.messages, n, n+1)
	}
	return nil
}

func (s *Server) deleteMessageBatch(c *call) error {
	var in struct {
		QueueUrl string
		Entries  []struct{ Id, ReceiptHandle string }
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	q, err := s.queueAt(in.QueueUrl)
	if err != nil {
		return err
	}
	if len(in.Entries) == 0 || len(in.Entries) > maxBatch {
		return fail("AWS.SimpleQueueService.TooManyEntriesInBatchRequest", "A batch has 1 to %d entries.", maxBatch)
	}
	done, failed := []map[string]string{}, []map[string]any{}
	for _, e := range in.Entries {
		n, err := q.byReceipt(e.ReceiptHandle)
		if err != nil {
			failed = append(failed, map[string]any{"Id": e.Id, "Code": "ReceiptHandleIsInvalid", "SenderFault": true})
			continue
		}
		if n >= 0 {
			q.messages = slices.Delete(q.messages, n, n+1)
		}
		done = append(done, map[string]string{"Id": e.Id})
	}
	c.out = map[string]any{"Successful": done, "Failed": failed}
	return nil
}

func (s *Server) changeMessageVisibility(c *call) error {
	var in struct {
		QueueUrl, ReceiptHandle string
		VisibilityTimeout       int
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	q, err := s.queueAt(in.QueueUrl)
	if err != nil {
		return err
	}
	n, err := q.byReceipt(in.ReceiptHandle)
	if err != nil {
		return err
	}
	if in.VisibilityTimeout < 0 || in.VisibilityTimeout > maxVisibility {
		return fail("InvalidParameterValue", "Value %d for parameter VisibilityTimeout is invalid.", in.VisibilityTimeout)
	}
	if n < 0 || !q.messages[n].visible.After(s.clock.Now()) {
		return fail("com.amazonaws.sqs#MessageNotInflight", "The message is not in flight.")
	}
	d := time.Duration(in.VisibilityTimeout) * time.Second
	q.messages[n].visible = s.clock.Now().Add(d)
	s.show(q, d)
	return nil
}

func md5Hex(body string) string {
	sum := md5.Sum([]byte(body))
	return hex.EncodeToString(sum[:])
}
