package ec2sim

import (
	"slices"
	"strings"
)

// EC2's limits on tags.
const (
	maxTags     = 50
	maxTagKey   = 128
	maxTagValue = 256
)

// resourceKind says what kind of resource an ID names, as in DescribeTags, and
// whether the resource exists.
func (s *Server) resourceKind(id string) (kind string, exists bool) {
	prefix := id
	if n := strings.LastIndexByte(id, '-'); n >= 0 {
		prefix = id[:n]
	}
	switch {
	case prefix == "i":
		return "instance", s.instances[id] != nil
	case prefix == "subnet":
		return "subnet", s.net.subnet(id) != nil
	case prefix == "sg":
		return "security-group", s.net.group(id) != nil
	case prefix == "vpc":
		return "vpc", s.net.vpcID == id
	case prefix == "ami":
		_, ok := s.images[id]
		return "image", ok
	case prefix == "lt":
		return "launch-template", s.templates[id] != nil
	case prefix == "cr":
		return "capacity-reservation", s.reservations[id] != nil
	case prefix == "pg":
		return "placement-group", slices.ContainsFunc(sortedKeys(s.groups), func(name string) bool { return s.groups[name].id == id })
	case prefix == "eni":
		return "network-interface", s.ownsPart(func(i *instance) string { return i.eni }, id)
	case prefix == "vol":
		return "volume", s.ownsPart(func(i *instance) string { return i.volume }, id)
	case prefix == "sir":
		return "spot-instances-request", s.ownsPart(func(i *instance) string { return i.spotRequest }, id)
	case strings.HasPrefix(id, "fleet-"):
		return "fleet", s.tags[id] != nil
	}
	return "", false
}

func (s *Server) ownsPart(part func(*instance) string, id string) bool {
	for _, i := range s.instances {
		if part(i) == id {
			return true
		}
	}
	return false
}

func (s *Server) createTags(c *call) error {
	ids, err := s.taggedResources(c)
	if err != nil {
		return err
	}
	tags := map[string]string{}
	for _, t := range c.p.list("Tag") {
		key, value := t.str("Key"), t.str("Value")
		switch {
		case key == "" || len(key) > maxTagKey:
			return invalidParameter("Tag key '%s' must have 1 to %d characters.", key, maxTagKey)
		case len(value) > maxTagValue:
			return invalidParameter("The value of tag '%s' exceeds %d characters.", key, maxTagValue)
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return invalidParameter("Tag keys starting with 'aws:' are reserved for internal use")
		}
		tags[key] = value
	}
	if len(tags) == 0 {
		return missingParameter("Tag")
	}
	for _, id := range ids {
		n := 0
		for key := range s.tags[id] {
			if _, replaced := tags[key]; !replaced && !strings.HasPrefix(key, "aws:") {
				n++
			}
		}
		if n+len(tags) > maxTags {
			return fail("TagLimitExceeded", "%s would have more than %d tags.", id, maxTags)
		}
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	for _, id := range ids {
		s.tag(id, tags)
	}
	c.x.bool("return", true)
	return nil
}

func (s *Server) taggedResources(c *call) ([]string, error) {
	ids := c.p.strs("ResourceId")
	if len(ids) == 0 {
		return nil, missingParameter("ResourceId")
	}
	for _, id := range ids {
		kind, exists := s.resourceKind(id)
		switch {
		case kind == "":
			return nil, fail("InvalidID", "The ID '%s' is not valid", id)
		case kind == "instance":
			if _, err := s.findInstances([]string{id}); err != nil {
				return nil, err
			}
		case kind == "launch-template" && !exists:
			return nil, fail("InvalidLaunchTemplateId.NotFound", "The launch template ID '%s' does not exist", id)
		case !exists:
			return nil, fail("InvalidID", "The ID '%s' does not exist", id)
		}
	}
	return ids, nil
}

func (s *Server) deleteTags(c *call) error {
	ids, err := s.taggedResources(c)
	if err != nil {
		return err
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	wanted := c.p.list("Tag")
	for _, id := range ids {
		for _, key := range sortedKeys(s.tags[id]) {
			if strings.HasPrefix(key, "aws:") {
				continue
			}
			if len(wanted) == 0 || slices.ContainsFunc(wanted, func(t *params) bool {
				// A value given must be the tag's; without one any is deleted.
				return t.str("Key") == key && (!t.has("Value") || t.str("Value") == s.tags[id][key])
			}) {
				delete(s.tags[id], key)
			}
		}
	}
	c.x.bool("return", true)
	return nil
}

func (s *Server) describeTags(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	type row struct{ id, kind, key, value string }
	filters := parseFilters(c.p)
	var found []row
	for _, id := range sortedKeys(s.tags) {
		kind, exists := s.resourceKind(id)
		if !exists {
			continue
		}
		for _, key := range sortedKeys(s.tags[id]) {
			r := row{id, kind, key, s.tags[id][key]}
			ok, err := passes(filters, map[string]string{key: r.value}, func(name string) ([]string, bool) {
				switch name {
				case "resource-id":
					return []string{r.id}, true
				case "resource-type":
					return []string{r.kind}, true
				case "key":
					return []string{r.key}, true
				case "value":
					return []string{r.value}, true
				}
				return nil, false
			})
			if err != nil {
				return err
			}
			if ok {
				found = append(found, r)
			}
		}
	}
	shown, next, err := page(c.p, found, func(r row) string { return r.id + "\x00" + r.key }, 5, 1000)
	if err != nil {
		return err
	}
	c.x.in("tagSet", func() {
		each(&c.x, "item", shown, func(r row) {
			c.x.str("resourceId", r.id)
			c.x.str("resourceType", r.kind)
			c.x.str("key", r.key)
			c.x.str("value", r.value)
		})
	})
	c.x.opt("nextToken", next)
	return nil
}
