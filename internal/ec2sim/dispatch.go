package ec2sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// protocol is how a service is spoken to.
type protocol int

const (
	ec2Query protocol = iota // form in, XML out, EC2's envelope
	query                    // form in, XML out, IAM's and STS's envelope
	jsonRPC                  // JSON with an X-Amz-Target header
	rest                     // JSON with paths
)

// service is one AWS service: how it speaks, and what it can do.
type service struct {
	name      string
	protocol  protocol
	namespace string // of the XML answers
	mediaType string // of the JSON answers
	actions   map[string]action
}

// action answers one call. It runs with the world locked unless it is free, and
// writes to c.x or sets c.out.
type action struct {
	run func(*Server, *call) error
	// free actions lock by themselves, as those that wait must.
	free bool
	// anonymous actions are called without a signature.
	anonymous bool
}

// call is one request on its way through an action.
type call struct {
	service *service
	action  string
	id      string
	region  string
	p       *params
	body    []byte
	http    *http.Request

	x   xmlWriter
	out any
}

// decode reads the JSON body.
func (c *call) decode(v any) error {
	if len(c.body) == 0 {
		return nil
	}
	if err := json.Unmarshal(c.body, v); err != nil {
		return fail("SerializationException", "%s", err)
	}
	return nil
}

// dryRun ends a call that asked only whether it would be allowed.
func (c *call) dryRun() error {
	if c.p.bool("DryRun") {
		return dryRunOperation()
	}
	return nil
}

// services lists everything that the simulator speaks, by SigV4 service name.
func services() map[string]*service {
	all := []*service{
		{name: "ec2", protocol: ec2Query, namespace: "http://ec2.amazonaws.com/doc/2016-11-15/", actions: ec2Actions()},
		{name: "iam", protocol: query, namespace: "https://iam.amazonaws.com/doc/2010-05-08/", actions: iamActions()},
		{name: "sts", protocol: query, namespace: "https://sts.amazonaws.com/doc/2011-06-15/", actions: stsActions()},
		{name: "ssm", protocol: jsonRPC, mediaType: "application/x-amz-json-1.1", actions: ssmActions()},
		{name: "sqs", protocol: jsonRPC, mediaType: "application/x-amz-json-1.0", actions: sqsActions()},
		{name: "pricing", protocol: jsonRPC, mediaType: "application/x-amz-json-1.1", actions: pricingActions()},
		{name: "eks", protocol: rest, mediaType: "application/json", actions: eksActions()},
		{name: "arc-zonal-shift", protocol: rest, mediaType: "application/json", actions: zonalShiftActions()},
	}
	byName := map[string]*service{}
	for _, v := range all {
		byName[v.name] = v
	}
	return byName
}

// latency passes in real time between the arrival of a request and the work on
// it. An answer that is faster than any network meets a race in the AWS SDK
// (seen in smithy-go v1.27.3): it closes the request's body as soon as the
// answer's header is there; if net/http is at that moment still looking for the
// body's end, it takes the close for a failed write and drops the connection
// with the rest of the answer. To wait before the work, not after it, also lets
// a client in the same process have the processor.
const latency = time.Millisecond

// maxBody bounds a request; the largest CreateFleet seen has 60 kB.
const maxBody = 4 << 20

// ServeHTTP answers a request to any of the services, or to the control API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, controlPrefix) {
		s.serveControl(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	time.Sleep(latency)
	c := &call{id: s.requestID(), body: body, http: r}
	c.reply(w, s.handle(c))
}

// handle finds out what is asked for and by whom, and does it.
func (s *Server) handle(c *call) error {
	sc, signed := parseScope(c.http)
	c.region = sc.region
	c.service = s.route(sc, c.http, c.body)
	if c.service == nil {
		c.service = s.services["ec2"]
		return fail("UnknownService", "no service %q here", sc.service)
	}
	if err := c.parse(); err != nil {
		return err
	}
	if act := c.service.actions[c.action]; act.anonymous && !signed {
		return s.perform(c)
	}
	if err := s.authorize(c.http, c.body, sc, signed, c.service); err != nil {
		s.count(c, err)
		return err
	}
	return s.perform(c)
}

// route finds the service by the signature's scope, or, for a request without a
// usable signature, by what it looks like, so that the refusal can be worded in
// its protocol.
func (s *Server) route(sc scope, r *http.Request, body []byte) *service {
	if sc.service != "" {
		return s.services[sc.service]
	}
	switch target, _, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); target {
	case "AmazonSSM":
		return s.services["ssm"]
	case "AmazonSQS":
		return s.services["sqs"]
	case "AWSPriceListService":
		return s.services["pricing"]
	}
	if bytes.Contains(body, []byte("Action=AssumeRoleWithWebIdentity")) {
		return s.services["sts"]
	}
	if strings.HasPrefix(r.URL.Path, "/clusters") {
		return s.services["eks"]
	}
	return s.services["ec2"]
}

// parse finds the action and its parameters.
func (c *call) parse() error {
	switch c.service.protocol {
	case ec2Query, query:
		form, err := url.ParseQuery(string(c.body))
		if err != nil {
			return fail("MalformedQueryString", "%s", err)
		}
		for name, values := range c.http.URL.Query() {
			form[name] = append(form[name], values...)
		}
		c.p = parseParams(form)
		c.action = c.p.str("Action")
		if c.action == "" {
			return fail("MissingAction", "The request is missing an action or a required parameter.")
		}
	case jsonRPC:
		_, c.action, _ = strings.Cut(c.http.Header.Get("X-Amz-Target"), ".")
	case rest:
		c.action = c.http.Method + " " + firstSegment(c.http.URL.Path)
	}
	return nil
}

func firstSegment(path string) string {
	segment, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return segment
}

// perform runs the action, after the throttle and the scenario's faults have had
// their say.
func (s *Server) perform(c *call) error {
	act, ok := c.service.actions[c.action]
	if !ok {
		err := fail("InvalidAction", "The action %s is not valid for this web service.", c.action)
		if c.service.protocol == jsonRPC {
			err.code = "UnknownOperationException"
		}
		s.count(c, err)
		return err
	}
	err := s.admit(c)
	if err == nil {
		if !act.free {
			s.mu.Lock()
		}
		err = act.run(s, c)
		if !act.free {
			s.mu.Unlock()
		}
	}
	s.count(c, err)
	return err
}

func (s *Server) requestID() string {
	n := s.requests.Add(1)
	h := s.hash("request", fmt.Sprint(n))
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", h>>32, h>>16&0xffff, h&0xfff, n>>48&0xfff, n&0xffffffffffff)
}

// reply writes the answer, or the error, in the service's protocol.
func (c *call) reply(w http.ResponseWriter, err error) {
	var refusal *apiError
	if err != nil && !errors.As(err, &refusal) {
		refusal = fail("InternalError", "%s", err)
	}
	w.Header().Set("X-Amzn-Requestid", c.id)
	status := http.StatusOK
	var body string
	switch {
	case c.service.protocol == ec2Query || c.service.protocol == query:
		w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
		body = c.xmlBody(refusal)
	default:
		w.Header().Set("Content-Type", c.service.mediaType)
		body = c.jsonBody(w, refusal)
	}
	if refusal != nil {
		status = refusal.status
	}
	w.WriteHeader(status)
	// The client has gone if this fails; there is nobody to tell.
	_, _ = io.WriteString(w, body)
}

const xmlHeader = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"

func (c *call) xmlBody(refusal *apiError) string {
	var x xmlWriter
	x.b.WriteString(xmlHeader)
	switch {
	case refusal != nil && c.service.protocol == ec2Query:
		x.in("Response", func() {
			x.in("Errors", func() {
				x.in("Error", func() { x.str("Code", refusal.code); x.str("Message", refusal.message) })
			})
			x.str("RequestID", c.id)
		})
	case refusal != nil:
		kind := "Sender"
		if refusal.status >= http.StatusInternalServerError {
			kind = "Receiver"
		}
		x.in("ErrorResponse", func() {
			x.in("Error", func() { x.str("Type", kind); x.str("Code", refusal.code); x.str("Message", refusal.message) })
			x.str("RequestId", c.id)
		})
	case c.service.protocol == ec2Query:
		x.b.WriteString("<" + c.action + `Response xmlns="` + c.service.namespace + `">`)
		x.str("requestId", c.id)
		x.b.WriteString(c.x.b.String())
		x.b.WriteString("</" + c.action + "Response>")
	default:
		x.b.WriteString("<" + c.action + `Response xmlns="` + c.service.namespace + `">`)
		x.in(c.action+"Result", func() { x.b.WriteString(c.x.b.String()) })
		x.in("ResponseMetadata", func() { x.str("RequestId", c.id) })
		x.b.WriteString("</" + c.action + "Response>")
	}
	return x.b.String()
}

func (c *call) jsonBody(w http.ResponseWriter, refusal *apiError) string {
	var v any = c.out
	if refusal != nil {
		w.Header().Set("X-Amzn-Errortype", refusal.code)
		if c.service.name == "sqs" {
			// SQS once spoke the query protocol; clients go by its old codes.
			w.Header().Set("X-Amzn-Query-Error", queryCode(refusal.code)+";Sender")
		}
		v = map[string]string{"__type": refusal.code, "message": refusal.message}
	}
	if v == nil {
		return "{}"
	}
	data, err := json.Marshal(v)
	if err != nil {
		// Answers are maps and structs of plain values.
		panic("marshal answer: " + err.Error())
	}
	return string(data)
}
