package ec2sim

func ssmActions() map[string]action {
	return map[string]action{
		"GetParameter":  {run: (*Server).getParameter},
		"GetParameters": {run: (*Server).getParameters},
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

func (s *Server) answerParameter(name string) (parameterAnswer, bool) {
	value, ok := s.parameters[name]
	if !ok {
		return parameterAnswer{}, false
	}
	return parameterAnswer{
		// Public parameters belong to no account.
		ARN:      "arn:aws:ssm:" + s.cfg.Region + "::parameter" + name,
		DataType: "text", Name: name, Type: "String", Value: value, Version: 1,
		LastModifiedDate: float64(s.began.Unix()),
	}, true
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
		return fail("ParameterNotFound", "Parameter %s not found.", in.Name)
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
