package ec2sim

import "time"

// tokenResult is what a client token made.
type tokenResult struct {
	request string
	result  any
	at      time.Time
}

// tokenLife is how long a token is remembered: EC2 keeps those of instances for
// a day at least.
const tokenLife = 24 * time.Hour

// repeat returns what an earlier call with the same token made, the zero value
// if there was none. The same token with other parameters is refused, as is one
// whose result is no longer valid.
func repeat[T any](s *Server, c *call, valid func(T) bool) (T, error) {
	var none T
	token := c.p.str("ClientToken")
	if token == "" {
		return none, nil
	}
	if len(token) > 64 {
		return none, invalidParameter("The client token may have at most 64 characters.")
	}
	before, ok := s.tokens[c.action+" "+token]
	if !ok || s.clock.Now().Sub(before.at) > tokenLife {
		return none, nil
	}
	if before.request != c.p.canonical("ClientToken") {
		return none, fail("IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
	}
	result, ok := before.result.(T)
	if !ok || !valid(result) {
		return none, nil
	}
	return result, nil
}

// remember keeps what a call made under its token.
func (s *Server) remember(c *call, result any) {
	token := c.p.str("ClientToken")
	if token == "" {
		return
	}
	now := s.clock.Now()
	if len(s.tokens) > 10_000 {
		for key, t := range s.tokens {
			if now.Sub(t.at) > tokenLife {
				delete(s.tokens, key)
			}
		}
	}
	s.tokens[c.action+" "+token] = tokenResult{request: c.p.canonical("ClientToken"), result: result, at: now}
}
