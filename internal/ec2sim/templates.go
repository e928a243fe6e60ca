package ec2sim

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// template is a launch template with all its versions.
type template struct {
	id, name string
	created  time.Time
	versions []*templateVersion
	// standard is the number of the default version.
	standard int
	// gone counts the versions deleted; numbers are not used again.
	last int
}

type templateVersion struct {
	number      int
	data        *params
	description string
	created     time.Time
}

var templateName = regexp.MustCompile(`^[a-zA-Z0-9().\-/_]{3,128}$`)

func (s *Server) createLaunchTemplate(c *call) error {
	name, data := c.p.str("LaunchTemplateName"), c.p.at("LaunchTemplateData")
	switch {
	case name == "":
		return missingParameter("LaunchTemplateName")
	case data == nil:
		return missingParameter("LaunchTemplateData")
	case !templateName.MatchString(name):
		return fail("InvalidLaunchTemplateName.MalformedException", "The specified launch template name must be between 3 and 128 characters long, and may contain letters, numbers and ( ) . - / _")
	}
	if err := checkTemplateData(data); err != nil {
		return err
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	t, err := repeat(s, c, func(t *template) bool { return s.templates[t.id] == t })
	if err != nil {
		return err
	}
	if t == nil {
		if s.templateNamed(name) != nil {
			return fail("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
		}
		now := s.clock.Now()
		t = &template{id: s.id("lt"), name: name, created: now, standard: 1, last: 1}
		t.versions = []*templateVersion{{number: 1, data: data, description: c.p.str("VersionDescription"), created: now}}
		s.templates[t.id] = t
		s.tag(t.id, tagSpecifications(c.p)["launch-template"])
		s.remember(c, t)
	}
	c.x.in("launchTemplate", func() { s.writeTemplate(&c.x, t) })
	return nil
}

func (s *Server) createLaunchTemplateVersion(c *call) error {
	t, err := s.findTemplate(c.p)
	if err != nil {
		return err
	}
	data := c.p.at("LaunchTemplateData")
	if data == nil {
		return missingParameter("LaunchTemplateData")
	}
	if err := checkTemplateData(data); err != nil {
		return err
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	if source := c.p.str("SourceVersion"); source != "" {
		from, err := t.version(source)
		if err != nil {
			return err
		}
		data = overlay(from.data, data)
	}
	t.last++
	v := &templateVersion{number: t.last, data: data, description: c.p.str("VersionDescription"), created: s.clock.Now()}
	t.versions = append(t.versions, v)
	c.x.in("launchTemplateVersion", func() { s.writeTemplateVersion(&c.x, t, v) })
	return nil
}

// overlay returns a tree with the top-level fields of both, those of above first.
func overlay(below, above *params) *params {
	merged := &params{kids: map[string]*params{}}
	for _, layer := range []*params{below, above} {
		for name, kid := range layer.kids {
			merged.kids[name] = kid
		}
	}
	return merged
}

// checkTemplateData refuses what EC2 refuses at once; references to images,
// groups and profiles are judged only at launch.
func checkTemplateData(data *params) error {
	if len(data.kids) == 0 {
		return fail("InvalidParameterValue", "The launch template data must contain at least one parameter.")
	}
	if len(data.list("NetworkInterface")) > 0 && len(data.list("SecurityGroupId"))+len(data.list("SecurityGroup")) > 0 {
		return fail("InvalidParameterCombination", "Network interfaces and an instance-level security groups may not be specified on the same request")
	}
	_, err := decodeUserData(data.str("UserData"))
	return err
}

func (s *Server) templateNamed(name string) *template {
	for _, t := range s.templates {
		if t.name == name {
			return t
		}
	}
	return nil
}

// findTemplate finds the one that LaunchTemplateId or LaunchTemplateName names.
func (s *Server) findTemplate(p *params) (*template, error) {
	id, name := p.str("LaunchTemplateId"), p.str("LaunchTemplateName")
	switch {
	case id != "" && name != "":
		return nil, fail("InvalidParameterCombination", "Both launch template ID and name were specified; specify one of them.")
	case id != "":
		return s.templateByID(id)
	case name != "":
		if t := s.templateNamed(name); t != nil {
			return t, nil
		}
		return nil, fail("InvalidLaunchTemplateName.NotFoundException", "The specified launch template, with template name %s, does not exist.", name)
	}
	return nil, fail("MissingParameter", "The request must contain a launch template ID or name.")
}

func (s *Server) templateByID(id string) (*template, error) {
	if !strings.HasPrefix(id, "lt-") {
		return nil, fail("InvalidLaunchTemplateId.Malformed", "The specified launch template ID %s is malformed.", id)
	}
	if t := s.templates[id]; t != nil {
		return t, nil
	}
	return nil, fail("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", id)
}

// version finds a version by number, $Latest or $Default; empty is $Default.
func (t *template) version(name string) (*templateVersion, error) {
	number := t.standard
	switch name {
	case "", "$Default":
	case "$Latest":
		number = t.versions[len(t.versions)-1].number
	default:
		n, err := strconv.Atoi(name)
		if err != nil {
			return nil, fail("InvalidLaunchTemplateId.VersionNotFound", "Could not find the specified version %s for the launch template with ID %s.", name, t.id)
		}
		number = n
	}
	for _, v := range t.versions {
		if v.number == number {
			return v, nil
		}
	}
	return nil, fail("InvalidLaunchTemplateId.VersionNotFound", "Could not find the specified version %s for the launch template with ID %s.", cmp.Or(name, "$Default"), t.id)
}

func (s *Server) describeLaunchTemplates(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	ids, names := c.p.strs("LaunchTemplateId"), c.p.strs("LaunchTemplateName")
	var found []*template
	for _, id := range ids {
		t, err := s.templateByID(id)
		if err != nil {
			return err
		}
		found = append(found, t)
	}
	for _, name := range names {
		t := s.templateNamed(name)
		if t == nil {
			return fail("InvalidLaunchTemplateName.NotFoundException", "At least one of the launch templates specified in the request does not exist.")
		}
		found = append(found, t)
	}
	if len(ids)+len(names) == 0 {
		for _, id := range sortedKeys(s.templates) {
			found = append(found, s.templates[id])
		}
	}
	filters := parseFilters(c.p)
	kept := found[:0]
	for _, t := range found {
		ok, err := passes(filters, s.tags[t.id], func(name string) ([]string, bool) {
			switch name {
			case "launch-template-name":
				return []string{t.name}, true
			case "create-time":
				return []string{t.created.UTC().Format(timeLayout)}, true
			}
			return nil, false
		})
		if err != nil {
			return err
		}
		if ok {
			kept = append(kept, t)
		}
	}
	slices.SortFunc(kept, func(a, b *template) int { return cmp.Compare(a.id, b.id) })
	shown, next, err := page(c.p, slices.Compact(kept), func(t *template) string { return t.id }, 1, 200)
	if err != nil {
		return err
	}
	c.x.in("launchTemplates", func() {
		each(&c.x, "item", shown, func(t *template) { s.writeTemplate(&c.x, t) })
	})
	c.x.opt("nextToken", next)
	return nil
}

func (s *Server) describeLaunchTemplateVersions(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	t, err := s.findTemplate(c.p)
	if err != nil {
		return err
	}
	var found []*templateVersion
	for _, name := range c.p.strs("LaunchTemplateVersion") {
		v, err := t.version(name)
		if err != nil {
			return err
		}
		found = append(found, v)
	}
	if len(found) == 0 {
		found = slices.Clone(t.versions)
	}
	slices.SortFunc(found, func(a, b *templateVersion) int { return cmp.Compare(b.number, a.number) })
	key := func(v *templateVersion) string { return fmt.Sprintf("%010d", 1<<31-v.number) }
	shown, next, err := page(c.p, slices.Compact(found), key, 1, 200)
	if err != nil {
		return err
	}
	c.x.in("launchTemplateVersionSet", func() {
		each(&c.x, "item", shown, func(v *templateVersion) { s.writeTemplateVersion(&c.x, t, v) })
	})
	c.x.opt("nextToken", next)
	return nil
}

func (s *Server) deleteLaunchTemplate(c *call) error {
	t, err := s.findTemplate(c.p)
	if err != nil {
		return err
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	c.x.in("launchTemplate", func() { s.writeTemplate(&c.x, t) })
	delete(s.templates, t.id)
	delete(s.tags, t.id)
	return nil
}

func (s *Server) writeTemplate(x *xmlWriter, t *template) {
	x.str("launchTemplateId", t.id)
	x.str("launchTemplateName", t.name)
	x.time("createTime", t.created)
	x.str("createdBy", s.caller())
	x.int("defaultVersionNumber", int64(t.standard))
	x.int("latestVersionNumber", int64(t.versions[len(t.versions)-1].number))
	s.writeTags(x, t.id)
}

func (s *Server) writeTemplateVersion(x *xmlWriter, t *template, v *templateVersion) {
	x.str("launchTemplateId", t.id)
	x.str("launchTemplateName", t.name)
	x.int("versionNumber", int64(v.number))
	x.opt("versionDescription", v.description)
	x.time("createTime", v.created)
	x.str("createdBy", s.caller())
	x.bool("defaultVersion", v.number == t.standard)
	x.in("launchTemplateData", func() { writeTemplateData(x, v.data) })
}

// caller is the ARN of whoever signs the requests.
func (s *Server) caller() string { return "arn:aws:iam::" + s.cfg.Account + ":user/coppice" }

// listName spells a list of a launch template as the answer does.
func listName(name string) string {
	switch name {
	case "BlockDeviceMapping", "NetworkInterface", "SecurityGroup", "SecurityGroupId", "TagSpecification", "Tag":
		return strings.ToLower(name[:1]) + name[1:] + "Set"
	case "LicenseSpecification":
		return "licenseSet"
	case "Ipv6Addresses", "PrivateIpAddresses":
		return strings.ToLower(name[:1]) + name[1:] + "Set"
	}
	return strings.ToLower(name[:1]) + name[1:]
}

// writeTemplateData gives back what was stored. The names of the answer are
// those of the request with a small first letter, but for the lists.
func writeTemplateData(x *xmlWriter, data *params) {
	for _, name := range sortedKeys(data.kids) {
		kid, out, member := data.kids[name], strings.ToLower(name[:1])+name[1:], "item"
		list := data.list(name)
		switch {
		case kid.set:
			x.str(out, kid.value)
			continue
		case len(list) == 0:
			x.in(out, func() { writeTemplateData(x, kid) })
			continue
		case name == "SecurityGroupId" && data.has("DeviceIndex"):
			out, member = "groupSet", "groupId"
		default:
			out = listName(name)
		}
		x.in(out, func() {
			for _, m := range list {
				if m.set {
					x.str(member, m.value)
					continue
				}
				x.in("item", func() { writeTemplateData(x, m) })
			}
		})
	}
}

// tagSpecifications reads TagSpecification.N, by resource type.
func tagSpecifications(p *params) map[string]map[string]string {
	specs := map[string]map[string]string{}
	for _, spec := range p.list("TagSpecification") {
		kind := spec.str("ResourceType")
		if specs[kind] == nil {
			specs[kind] = map[string]string{}
		}
		for _, t := range spec.list("Tag") {
			specs[kind][t.str("Key")] = t.str("Value")
		}
	}
	return specs
}
