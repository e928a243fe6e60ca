package ec2sim

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// profile is an IAM instance profile.
type profile struct {
	name, path string
	role       string
	created    time.Time
	// visible is when EC2 has learnt of it.
	visible time.Time
	tags    map[string]string
}

func iamActions() map[string]action {
	return map[string]action{
		"AddRoleToInstanceProfile":      {run: (*Server).addRoleToInstanceProfile},
		"CreateInstanceProfile":         {run: (*Server).createInstanceProfile},
		"DeleteInstanceProfile":         {run: (*Server).deleteInstanceProfile},
		"GetInstanceProfile":            {run: (*Server).getInstanceProfile},
		"GetRole":                       {run: (*Server).getRole},
		"ListInstanceProfiles":          {run: (*Server).listInstanceProfiles},
		"RemoveRoleFromInstanceProfile": {run: (*Server).removeRoleFromInstanceProfile},
		"TagInstanceProfile":            {run: (*Server).tagInstanceProfile},
		"UntagInstanceProfile":          {run: (*Server).untagInstanceProfile},
	}
}

var (
	profileName = regexp.MustCompile(`^[\w+=,.@-]{1,128}$`)
	iamPath     = regexp.MustCompile(`^/(?:[\x21-\x7e]{0,510}/)?$`)
)

func (s *Server) addProfile(name, path string, tags map[string]string) *profile {
	now := s.clock.Now()
	p := &profile{name: name, path: path, created: now, visible: now.Add(s.cfg.ConsistencyDelay), tags: tags}
	s.profiles[name] = p
	return p
}

func (s *Server) profileARN(p *profile) string {
	return "arn:aws:iam::" + s.cfg.Account + ":instance-profile" + p.path + p.name
}

func (s *Server) profileID(name string) string { return s.iamID("AIPA", "profile", name) }

// iamID makes an ID in IAM's form: a prefix for the kind and 16 letters.
func (s *Server) iamID(prefix string, names ...string) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	b := []byte(prefix)
	h := s.hash(names...)
	for n := range 16 {
		b = append(b, letters[(h>>(n*4))&0xf])
	}
	return string(b) + "Q"
}

func (s *Server) findProfile(p *params) (*profile, error) {
	name := p.str("InstanceProfileName")
	if name == "" {
		return nil, fail("ValidationError", "1 validation error detected: Value null at 'instanceProfileName' failed to satisfy constraint: Member must not be null")
	}
	if found := s.profiles[name]; found != nil {
		return found, nil
	}
	return nil, fail("NoSuchEntity", "Instance Profile %s cannot be found.", name)
}

func iamTags(p *params) map[string]string {
	tags := map[string]string{}
	for _, t := range p.list("Tags") {
		tags[t.str("Key")] = t.str("Value")
	}
	return tags
}

func (s *Server) createInstanceProfile(c *call) error {
	name, path := c.p.str("InstanceProfileName"), cmp.Or(c.p.str("Path"), "/")
	tags := iamTags(c.p)
	switch {
	case !profileName.MatchString(name):
		return fail("ValidationError", "The specified value for instanceProfileName is invalid. It must contain only alphanumeric characters and/or the following: +=,.@_-")
	case !iamPath.MatchString(path):
		return fail("ValidationError", "The specified value for path is invalid. It must begin and end with / and contain only alphanumeric characters and/or / characters.")
	case s.profiles[name] != nil:
		return fail("EntityAlreadyExists", "Instance Profile %s already exists.", name)
	case len(tags) > maxTags:
		return fail("LimitExceeded", "The number of tags has reached the maximum limit.")
	}
	p := s.addProfile(name, path, tags)
	c.x.in("InstanceProfile", func() { s.writeProfile(&c.x, p) })
	return nil
}

func (s *Server) getInstanceProfile(c *call) error {
	p, err := s.findProfile(c.p)
	if err != nil {
		return err
	}
	c.x.in("InstanceProfile", func() { s.writeProfile(&c.x, p) })
	return nil
}

func (s *Server) deleteInstanceProfile(c *call) error {
	p, err := s.findProfile(c.p)
	if err != nil {
		return err
	}
	if p.role != "" {
		return fail("DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")
	}
	delete(s.profiles, p.name)
	return nil
}

func (s *Server) roleExists(name string) bool {
	return s.cfg.Roles == nil || slices.Contains(s.cfg.Roles, name)
}

func (s *Server) addRoleToInstanceProfile(c *call) error {
	p, err := s.findProfile(c.p)
	if err != nil {
		return err
	}
	role := c.p.str("RoleName")
	switch {
	case role == "":
		return fail("ValidationError", "1 validation error detected: Value null at 'roleName' failed to satisfy constraint: Member must not be null")
	case !s.roleExists(role):
		return fail("NoSuchEntity", "The role with name %s cannot be found.", role)
	case p.role != "":
		return fail("LimitExceeded", "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
	}
	p.role = role
	return nil
}

func (s *Server) removeRoleFromInstanceProfile(c *call) error {
	p, err := s.findProfile(c.p)
	if err != nil {
		return err
	}
	if role := c.p.str("RoleName"); p.role == "" || p.role != role {
		return fail("NoSuchEntity", "Cannot find role %s in instance profile %s.", role, p.name)
	}
	p.role = ""
	return nil
}

func (s *Server) getRole(c *call) error {
	name := c.p.str("RoleName")
	if name == "" || !s.roleExists(name) {
		return fail("NoSuchEntity", "The role with name %s cannot be found.", name)
	}
	c.x.in("Role", func() { s.writeRole(&c.x, name) })
	return nil
}

func (s *Server) tagInstanceProfile(c *call) error {
	p, err := s.findProfile(c.p)
	if err != nil {
		return err
	}
	for k, v := range iamTags(c.p) {
		p.tags[k] = v
	}
	return nil
}

func (s *Server) untagInstanceProfile(c *call) error {
	p, err := s.findProfile(c.p)
	if err != nil {
		return err
	}
	for _, k := range c.p.strs("TagKeys") {
		delete(p.tags, k)
	}
	return nil
}

func (s *Server) listInstanceProfiles(c *call) error {
	prefix := cmp.Or(c.p.str("PathPrefix"), "/")
	max, err := c.p.int("MaxItems", 100)
	if err != nil {
		return err
	}
	if max < 1 || max > 1000 {
		return fail("ValidationError", "Value '%d' at 'maxItems' failed to satisfy constraint: between 1 and 1000", max)
	}
	var found []*profile
	for _, name := range sortedKeys(s.profiles) {
		if p := s.profiles[name]; strings.HasPrefix(p.path, prefix) {
			found = append(found, p)
		}
	}
	shown, next, err := cut(found, func(p *profile) string { return p.name }, c.p.str("Marker"), max)
	if err != nil {
		return err
	}
	c.x.bool("IsTruncated", next != "")
	c.x.opt("Marker", next)
	c.x.in("InstanceProfiles", func() {
		each(&c.x, "member", shown, func(p *profile) { s.writeProfile(&c.x, p) })
	})
	return nil
}

const iamTime = "2006-01-02T15:04:05Z"

func (s *Server) writeProfile(x *xmlWriter, p *profile) {
	x.str("InstanceProfileId", s.profileID(p.name))
	x.in("Roles", func() {
		if p.role != "" {
			x.in("member", func() { s.writeRole(x, p.role) })
		}
	})
	x.str("InstanceProfileName", p.name)
	x.str("Path", p.path)
	x.str("Arn", s.profileARN(p))
	x.str("CreateDate", p.created.UTC().Format(iamTime))
	x.in("Tags", func() {
		each(x, "member", sortedKeys(p.tags), func(k string) { x.str("Key", k); x.str("Value", p.tags[k]) })
	})
}

func (s *Server) writeRole(x *xmlWriter, name string) {
	x.str("Path", "/")
	x.str("Arn", fmt.Sprintf("arn:aws:iam::%s:role/%s", s.cfg.Account, name))
	x.str("RoleName", name)
	x.str("RoleId", s.iamID("AROA", "role", name))
	x.str("CreateDate", s.began.UTC().Format(iamTime))
	x.str("AssumeRolePolicyDocument", `%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22%3A%22Allow%22%2C%22Principal%22%3A%7B%22Service%22%3A%22ec2.amazonaws.com%22%7D%2C%22Action%22%3A%22sts%3AAssumeRole%22%7D%5D%7D`)
}
