package ec2sim

import (
	"strings"
	"time"
)

// parameter is an SSM parameter: one of Amazon's public ones, or the user's.
type parameter struct {
	value, kind string
	version     int
	modified    time.Time
	own         bool
}

func ssmActions() map[string]action {
	return map[string]action{
		"DeleteParameter": {run: (*Server).deleteParameter},
		"GetParameter":    {run: (*Server).getParameter},
		"GetParameters":   {run: (*Server).getParameters},
		"PutParameter":    {run: (*Server).putParameter},
	}
}

// parameterAnswer is an SSM parameter on the wire.
type parameterAnswer struct {
	ARN              string
	DataType         string
	LastModifiedDate float64
	Name             string
	Type             string
	Value            string
	Version          int
}

// answerParameter finds a parameter by name or ARN.
func (s *Server) answerParameter(name string) (parameterAnswer, bool) {
	if _, path, ok := strings.Cut(name, ":parameter/"); ok && strings.HasPrefix(name, "arn:aws:ssm:") {
		name = "/" + path
	}
	p, ok := s.parameters[name]
	if !ok {
		return parameterAnswer{}, false
	}
	// Public parameters belong to no account.
	owner := ""
	if p.own {
		owner = s.cfg.Account
	}
	return parameterAnswer{
		ARN:      "arn:aws:ssm:" + s.cfg.Region + ":" + owner + ":parameter/" + strings.TrimPrefix(name, "/"),
		DataType: "text", Name: name, Type: p.kind, Value: p.value, Version: p.version,
		LastModifiedDate: float64(p.modified.UnixMilli()) / 1000,
	}, true
}

// setPublic sets one of Amazon's parameters.
func (s *Server) setPublic(name, value string) {
	s.parameters[name] = parameter{value: value, kind: "String", version: s.parameters[name].version + 1, modified: s.clock.Now()}
}

func parameterNotFound(name string) *apiError {
	return fail("ParameterNotFound", "Parameter %s not found.", name)
}

func (s *Server) getParameter(c *call) error {
	var in struct{ Name string }
	if err := c.decode(&in); err != nil {
		return err
	}
	if in.Name == "" {
		return fail("ValidationException", "1 validation error detected: Value at 'name' failed to satisfy constraint: Member must not be null")
	}
	p, ok := s.answerParameter(in.Name)
	if !ok {
		return parameterNotFound(in.Name)
	}
	c.out = map[string]any{"Parameter": p}
	return nil
}

func (s *Server) getParameters(c *call) error {
	var in struct{ Names []string }
	if err := c.decode(&in); err != nil {
		return err
	}
	if len(in.Names) == 0 || len(in.Names) > 10 {
		return fail("ValidationException", "1 validation error detected: Value at 'names' failed to satisfy constraint: Member must have length between 1 and 10")
	}
	found, missing := []parameterAnswer{}, []string{}
	for _, name := range in.Names {
		if p, ok := s.answerParameter(name); ok {
			found = append(found, p)
		} else {
			missing = append(missing, name)
		}
	}
	c.out = map[string]any{"Parameters": found, "InvalidParameters": missing}
	return nil
}

func (s *Server) putParameter(c *call) error {
	var in struct {
		Name, Value, Type string
		Overwrite         bool
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	before, exists := s.parameters[in.Name]
	reserved := strings.TrimPrefix(strings.ToLower(in.Name), "/")
	switch {
	case in.Name == "" || in.Value == "":
		return fail("ValidationException", "A parameter needs a name and a value.")
	case strings.HasPrefix(reserved, "aws") || strings.HasPrefix(reserved, "ssm"):
		return fail("ValidationException", "Parameter name: can't be prefixed with \"aws\" or \"ssm\" (case-insensitive).")
	case exists && !in.Overwrite:
		return fail("ParameterAlreadyExists", "The parameter already exists. To overwrite this value, set the overwrite option in the request to true.")
	case in.Type == "" && !exists:
		return fail("ValidationException", "A parameter type is required when you create a parameter.")
	}
	if in.Type == "" {
		in.Type = before.kind
	}
	s.parameters[in.Name] = parameter{value: in.Value, kind: in.Type, version: before.version + 1, modified: s.clock.Now(), own: true}
	c.out = map[string]any{"Version": before.version + 1, "Tier": "Standard"}
	return nil
}

func (s *Server) deleteParameter(c *call) error {
	var in struct{ Name string }
	if err := c.decode(&in); err != nil {
		return err
	}
	if !s.parameters[in.Name].own {
		return parameterNotFound(in.Name)
	}
	delete(s.parameters, in.Name)
	return nil
}
