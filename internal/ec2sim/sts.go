package ec2sim

func stsActions() map[string]action {
	return map[string]action{"GetCallerIdentity": {run: (*Server).getCallerIdentity}}
}

func (s *Server) getCallerIdentity(c *call) error {
	c.x.str("Arn", s.caller())
	c.x.str("UserId", s.iamID("AIDA", "user", "coppice"))
	c.x.str("Account", s.cfg.Account)
	return nil
}
