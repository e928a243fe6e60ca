package ec2sim

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// image is an Amazon machine image.
type image struct {
	id, name, arch, description string
	// owner is an account number.
	owner   string
	created time.Time
	windows bool
	// extraDevice is a second volume that the image maps, if any.
	extraDevice string
}

// alias is the name that Amazon's accounts go by, empty for the user's own.
func (i image) alias(account string) string {
	if i.owner == account {
		return ""
	}
	return "amazon"
}

func (i image) rootDevice() string {
	if i.windows {
		return "/dev/sda1"
	}
	return "/dev/xvda"
}

func (s *Server) registerImage(c *call) error {
	name, arch := c.p.str("Name"), cmp.Or(c.p.str("Architecture"), "i386")
	switch {
	case len(name) < 3 || len(name) > 128:
		return fail("InvalidAMIName.Malformed", "AMI names must be between 3 and 128 characters long.")
	case arch != "x86_64" && arch != "arm64":
		return invalidParameter("Images of architecture %s are not simulated.", arch)
	}
	for _, img := range s.images {
		if img.owner == s.cfg.Account && img.name == name {
			return fail("InvalidAMIName.Duplicate", "AMI name %s is already in use by AMI %s", name, img.id)
		}
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	img := image{id: s.id("ami"), name: name, arch: arch, description: c.p.str("Description"), owner: s.cfg.Account, created: s.clock.Now()}
	s.images[img.id] = img
	s.tag(img.id, tagSpecifications(c.p)["image"])
	c.x.str("imageId", img.id)
	return nil
}

func (s *Server) deregisterImage(c *call) error {
	id := c.p.str("ImageId")
	img, ok := s.images[id]
	switch {
	case !ok:
		return fail("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
	case img.owner != s.cfg.Account:
		return fail("AuthFailure", "Not authorized for image:%s", id)
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	delete(s.images, id)
	delete(s.tags, id)
	c.x.bool("return", true)
	return nil
}

func (s *Server) describeImages(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	ids, owners := c.p.strs("ImageId"), c.p.strs("Owner")
	for _, id := range ids {
		if _, ok := s.images[id]; !ok {
			return fail("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
		}
	}
	filters := parseFilters(c.p)
	var found []image
	for _, id := range sortedKeys(s.images) {
		img := s.images[id]
		ok, err := passes(filters, s.tags[id], func(name string) ([]string, bool) {
			switch name {
			case "image-id":
				return []string{img.id}, true
			case "name":
				return []string{img.name}, true
			case "architecture":
				return []string{img.arch}, true
			case "state":
				return []string{"available"}, true
			case "owner-id":
				return []string{img.owner}, true
			case "owner-alias":
				return []string{img.alias(s.cfg.Account)}, true
			case "is-public":
				return []string{strconv.FormatBool(img.owner != s.cfg.Account)}, true
			case "platform":
				if img.windows {
					return []string{"windows"}, true
				}
				return nil, true
			case "virtualization-type":
				return []string{"hvm"}, true
			case "root-device-type":
				return []string{"ebs"}, true
			case "image-type":
				return []string{"machine"}, true
			case "hypervisor":
				return []string{"xen"}, true
			}
			return nil, false
		})
		if err != nil {
			return err
		}
		owned := len(owners) == 0 || slices.ContainsFunc(owners, func(o string) bool {
			return o == img.owner || o == img.alias(s.cfg.Account) || o == "self" && img.owner == s.cfg.Account
		})
		if ok && owned && (len(ids) == 0 || slices.Contains(ids, img.id)) {
			found = append(found, img)
		}
	}
	shown, next, err := page(c.p, found, func(i image) string { return i.id }, 1, 1000)
	if err != nil {
		return err
	}
	c.x.in("imagesSet", func() {
		each(&c.x, "item", shown, func(i image) { s.writeImage(&c.x, i) })
	})
	c.x.opt("nextToken", next)
	return nil
}

func (s *Server) writeImage(x *xmlWriter, i image) {
	alias := i.alias(s.cfg.Account)
	x.str("imageId", i.id)
	x.str("imageLocation", cmp.Or(alias, i.owner)+"/"+i.name)
	x.str("imageState", "available")
	x.str("imageOwnerId", i.owner)
	x.opt("imageOwnerAlias", alias)
	x.time("creationDate", i.created)
	if alias != "" {
		// Amazon's images are deprecated two years after their release.
		x.time("deprecationTime", i.created.AddDate(2, 0, 0))
	}
	x.bool("isPublic", alias != "")
	x.str("architecture", i.arch)
	x.str("imageType", "machine")
	x.str("name", i.name)
	x.str("description", i.description)
	x.str("rootDeviceType", "ebs")
	x.str("rootDeviceName", i.rootDevice())
	x.in("blockDeviceMapping", func() {
		for _, device := range []string{i.rootDevice(), i.extraDevice} {
			if device == "" {
				continue
			}
			x.in("item", func() {
				x.str("deviceName", device)
				x.in("ebs", func() {
					x.int("volumeSize", 20)
					x.str("volumeType", "gp3")
					x.bool("deleteOnTermination", true)
					x.bool("encrypted", false)
				})
			})
		}
	})
	x.str("virtualizationType", "hvm")
	x.bool("enaSupport", true)
	x.str("hypervisor", "xen")
	if i.windows {
		x.str("platform", "windows")
		x.str("platformDetails", "Windows")
		x.str("usageOperation", "RunInstances:0002")
	} else {
		x.str("platformDetails", "Linux/UNIX")
		x.str("usageOperation", "RunInstances")
	}
	x.str("bootMode", cmp.Or(map[string]string{"arm64": "uefi"}[i.arch], "uefi-preferred"))
	s.writeTags(x, i.id)
}
