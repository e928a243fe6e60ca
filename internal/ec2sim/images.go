package ec2sim

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// image is an Amazon machine image.
type image struct {
	id, name, arch, description string
	created                     time.Time
}

// amiReleases are the dates of the Amazon Linux 2023 EKS images that exist, the
// newest first. Two of them, so that an AMI can fall behind.
func amiReleases() []string { return []string{"20261119", "20261022"} }

// amiVersions are the Kubernetes minor versions that images exist for: those
// that EKS could support, and two more on either side.
func amiVersions() []string {
	var versions []string
	for minor := 28; minor <= 40; minor++ {
		versions = append(versions, fmt.Sprintf("1.%d", minor))
	}
	return versions
}

// amiVariants lists architecture and variant of the AL2023 EKS images.
func amiVariants() [][2]string {
	return [][2]string{{"x86_64", "standard"}, {"arm64", "standard"}, {"x86_64", "nvidia"}, {"arm64", "nvidia"}, {"x86_64", "neuron"}}
}

// imageOwner is the account that publishes EKS images.
const imageOwner = "602401143452"

func amiName(arch, variant, version, release string) string {
	return fmt.Sprintf("amazon-eks-node-al2023-%s-%s-%s-v%s", arch, variant, version, release)
}

// newImages makes the EKS images. An image's ID follows from its name, so it is
// the same in every run with one seed.
func (s *Server) newImages() map[string]image {
	images := map[string]image{}
	for _, version := range amiVersions() {
		for _, v := range amiVariants() {
			for _, release := range amiReleases() {
				created, err := time.Parse("20060102", release)
				if err != nil {
					panic("release date: " + err.Error())
				}
				name := amiName(v[0], v[1], version, release)
				img := image{
					id: s.imageID(name), name: name, arch: v[0], created: created.Add(21 * time.Hour),
					description: fmt.Sprintf("EKS-optimized Kubernetes node based on Amazon Linux 2023, (k8s: %s, %s)", version, v[1]),
				}
				images[img.id] = img
			}
		}
	}
	return images
}

func (s *Server) imageID(name string) string { return fmt.Sprintf("ami-0%016x", s.hash("image", name)) }

var amiParameter = regexp.MustCompile(`^/aws/service/eks/optimized-ami/([0-9.]+)/amazon-linux-2023/(x86_64|arm64)/(standard|nvidia|neuron)/([^/]+)/(image_id|image_name|release_version)$`)

// parameter answers the public SSM parameters of the EKS images.
func (s *Server) parameter(name string) (string, bool) {
	m := amiParameter.FindStringSubmatch(name)
	if m == nil {
		return "", false
	}
	version, arch, variant, which, field := m[1], m[2], m[3], m[4], m[5]
	imageName := which
	if which == "recommended" {
		imageName = amiName(arch, variant, version, amiReleases()[0])
	}
	img, ok := s.images[s.imageID(imageName)]
	prefix := fmt.Sprintf("amazon-eks-node-al2023-%s-%s-%s-", arch, variant, version)
	if !ok || !strings.HasPrefix(img.name, prefix) {
		return "", false
	}
	switch field {
	case "image_name":
		return img.name, true
	case "release_version":
		return version + "-" + strings.TrimPrefix(strings.TrimPrefix(img.name, prefix), "v"), true
	}
	return img.id, true
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
				return []string{imageOwner}, true
			case "owner-alias":
				return []string{"amazon"}, true
			case "is-public":
				return []string{"true"}, true
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
		owned := len(owners) == 0 || slices.Contains(owners, "amazon") || slices.Contains(owners, imageOwner)
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
	x.str("imageId", i.id)
	x.str("imageLocation", "amazon/"+i.name)
	x.str("imageState", "available")
	x.str("imageOwnerId", imageOwner)
	x.str("imageOwnerAlias", "amazon")
	x.time("creationDate", i.created)
	// EKS images are deprecated two years after their release.
	x.time("deprecationTime", i.created.AddDate(2, 0, 0))
	x.bool("isPublic", true)
	x.str("architecture", i.arch)
	x.str("imageType", "machine")
	x.str("name", i.name)
	x.str("description", i.description)
	x.str("rootDeviceType", "ebs")
	x.str("rootDeviceName", "/dev/xvda")
	x.in("blockDeviceMapping", func() {
		x.in("item", func() {
			x.str("deviceName", "/dev/xvda")
			x.in("ebs", func() {
				x.int("volumeSize", 20)
				x.str("volumeType", "gp3")
				x.bool("deleteOnTermination", true)
				x.bool("encrypted", false)
			})
		})
	})
	x.str("virtualizationType", "hvm")
	x.bool("enaSupport", true)
	x.str("hypervisor", "xen")
	x.str("platformDetails", "Linux/UNIX")
	x.str("usageOperation", "RunInstances")
	x.str("bootMode", cmp.Or(map[string]string{"arm64": "uefi"}[i.arch], "uefi-preferred"))
	s.writeTags(x, i.id)
}
