package ec2sim

// counter tells of the calls to one action.
type counter struct {
	calls  int
	errors map[string]int
}

// Calls is how often an action was called, and how often with which error.
type Calls struct {
	// Action is service and action, as in ec2:CreateFleet.
	Action string         `json:"action"`
	Calls  int            `json:"calls"`
	Errors map[string]int `json:"errors,omitempty"`
}

func (s *Server) count(c *call, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := c.service.name + ":" + c.action
	n := s.counters[name]
	if n == nil {
		n = &counter{errors: map[string]int{}}
		s.counters[name] = n
	}
	n.calls++
	if err == nil {
		return
	}
	code := "InternalError"
	if refusal, ok := err.(*apiError); ok {
		code = refusal.code
	}
	n.errors[code]++
}

// Counters returns the calls so far, by action, those that were refused included.
func (s *Server) Counters() []Calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Calls
	for _, name := range sortedKeys(s.counters) {
		n := s.counters[name]
		errors := map[string]int{}
		for code, times := range n.errors {
			errors[code] = times
		}
		all = append(all, Calls{Action: name, Calls: n.calls, Errors: errors})
	}
	return all
}

// ResetCounters begins to count from zero.
func (s *Server) ResetCounters() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counters = map[string]*counter{}
}
