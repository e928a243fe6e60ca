package ec2sim

import (
	"fmt"
	"strings"
	"time"
)

// Owners of the public images, as AWS documents them.
const (
	amazonOwner       = "137112412989"
	eksOwner          = "602401143452"
	bottlerocketOwner = "092701018921"
	windowsOwner      = "801119661308"
)

// Releases that exist from the start, two of each family, so that an image can
// be behind. They are dates of Amazon Linux and versions of Bottlerocket.
const (
	linuxRelease, linuxBefore               = "20261119", "20261022"
	linux2Release, linux2Before             = "20251112", "20241109"
	bottlerocketRelease, bottlerocketBefore = "1.50.0", "1.20.4"
	windowsRelease                          = "2026.11.11"
)

// Images exist for these Kubernetes minor versions; Amazon Linux 2 ended with 1.32.
const (
	oldestMinor     = 28
	newestMinor     = 40
	lastLinux2Minor = 32
)

// publish makes an image and the SSM parameters that name it. The ID follows
// from the name, so it is the same in every run with one seed.
func (s *Server) publish(img image, parameters map[string]string) {
	img.id = fmt.Sprintf("ami-0%016x", s.hash("image", img.name))
	s.images[img.id] = img
	for name, field := range parameters {
		switch field {
		case "id":
			s.setPublic(name, img.id)
		case "name":
			s.setPublic(name, img.name)
		default:
			s.setPublic(name, field)
		}
	}
}

// publishAll makes every image that there is in a fresh account.
func (s *Server) publishAll() {
	s.publishPlainLinux(linuxRelease)
	for minor := oldestMinor; minor <= newestMinor; minor++ {
		version := fmt.Sprintf("1.%d", minor)
		// The later release comes second and takes over the recommended names.
		s.publishLinux2023(version, linuxBefore)
		s.publishLinux2023(version, linuxRelease)
		if minor <= lastLinux2Minor {
			s.publishLinux2(version, linux2Before)
			s.publishLinux2(version, linux2Release)
		}
		s.publishBottlerocket(version, bottlerocketBefore, day(linux2Before))
		s.publishBottlerocket(version, bottlerocketRelease, day(linuxRelease))
		for _, year := range []string{"2019", "2022", "2025"} {
			s.publishWindows(version, year)
		}
	}
}

// day is when the images of a release were made: in the evening of its date. The
// date has been checked.
func day(release string) time.Time {
	t, err := time.Parse("20060102", release)
	if err != nil {
		panic("release date: " + err.Error())
	}
	return t.Add(21 * time.Hour)
}

// publishPlainLinux makes Amazon Linux 2023 without Kubernetes.
func (s *Server) publishPlainLinux(release string) {
	for _, arch := range []string{"x86_64", "arm64"} {
		s.publish(image{
			name: fmt.Sprintf("al2023-ami-2023.9.%s.0-kernel-6.1-%s", release, arch),
			arch: arch, created: day(release), owner: amazonOwner,
			description: fmt.Sprintf("Amazon Linux 2023 AMI 2023.9.%s.0 %s HVM kernel-6.1", release, arch),
		}, map[string]string{"/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-" + arch: "id"})
	}
}

func (s *Server) publishLinux2023(version, release string) {
	for _, v := range [][2]string{{"x86_64", "standard"}, {"arm64", "standard"}, {"x86_64", "nvidia"}, {"arm64", "nvidia"}, {"x86_64", "neuron"}} {
		arch, variant := v[0], v[1]
		name := fmt.Sprintf("amazon-eks-node-al2023-%s-%s-%s-v%s", arch, variant, version, release)
		s.publish(image{
			name: name, arch: arch, created: day(release), owner: eksOwner,
			description: fmt.Sprintf("EKS-optimized Kubernetes node based on Amazon Linux 2023, (k8s: %s, %s)", version, variant),
		}, eksParameters(fmt.Sprintf("%s/amazon-linux-2023/%s/%s", version, arch, variant), name, version+"-"+release))
	}
}

func (s *Server) publishLinux2(version, release string) {
	for _, v := range [][3]string{{"x86_64", "amazon-linux-2", ""}, {"arm64", "amazon-linux-2-arm64", "-arm64"}, {"x86_64", "amazon-linux-2-gpu", "-gpu"}} {
		name := fmt.Sprintf("amazon-eks%s-node-%s-v%s", v[2], version, release)
		s.publish(image{
			name: name, arch: v[0], created: day(release), owner: eksOwner,
			description: fmt.Sprintf("EKS Kubernetes Worker AMI with AmazonLinux2 image, (k8s: %s)", version),
		}, eksParameters(version+"/"+v[1], name, version+"-"+release))
	}
}

// eksParameters names an EKS image by itself and as the recommended one.
func eksParameters(base, name, release string) map[string]string {
	parameters := map[string]string{}
	for _, which := range []string{name, "recommended"} {
		prefix := "/aws/service/eks/optimized-ami/" + base + "/" + which + "/"
		parameters[prefix+"image_id"] = "id"
		parameters[prefix+"image_name"] = "name"
		parameters[prefix+"release_version"] = release
	}
	return parameters
}

func (s *Server) publishBottlerocket(version, release string, made time.Time) {
	for _, flavour := range []string{"aws-k8s-" + version, "aws-k8s-" + version + "-nvidia"} {
		for _, arch := range []string{"x86_64", "arm64"} {
			parameters := map[string]string{}
			for _, which := range []string{release, "latest"} {
				prefix := "/aws/service/bottlerocket/" + flavour + "/" + arch + "/" + which + "/"
				parameters[prefix+"image_id"] = "id"
				parameters[prefix+"image_version"] = release
			}
			s.publish(image{
				name: fmt.Sprintf("bottlerocket-%s-%s-v%s-%08x", flavour, arch, release, uint32(s.hash(flavour, arch, release))),
				arch: arch, created: made, owner: bottlerocketOwner, extraDevice: "/dev/xvdb",
				description: "Bottlerocket " + release + " for Kubernetes " + version,
			}, parameters)
		}
	}
}

func (s *Server) publishWindows(version, year string) {
	for _, edition := range []string{"Core", "Full"} {
		base := fmt.Sprintf("Windows_Server-%s-English-%s-EKS_Optimized-%s", year, edition, version)
		made := day(strings.ReplaceAll(windowsRelease, ".", ""))
		s.publish(image{
			name: base + "-" + windowsRelease, arch: "x86_64", created: made, owner: windowsOwner, windows: true,
			description: fmt.Sprintf("Microsoft Windows Server %s %s EKS optimized, (k8s: %s)", year, edition, version),
		}, map[string]string{"/aws/service/ami-windows-latest/" + base + "/image_id": "id"})
	}
}
