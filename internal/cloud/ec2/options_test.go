package ec2

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/aws"
)

// template is what EC2 holds of the launch template that the instance came from.
func (w *world) template(p *Provider, i ec2sim.Instance) *ec2types.ResponseLaunchTemplateData {
	w.t.Helper()
	out, err := p.ec2.DescribeLaunchTemplateVersions(w.t.Context(), &ec2.DescribeLaunchTemplateVersionsInput{
		LaunchTemplateId: new(i.Tags["aws:ec2launchtemplate:id"]), Versions: []string{"$Latest"},
	})
	if err != nil || len(out.LaunchTemplateVersions) != 1 {
		w.t.Fatalf("template of %s (%v): %v", i.ID, i.Tags, err)
	}
	return out.LaunchTemplateVersions[0].LaunchTemplateData
}

// Each setting of a class gets through the dry runs, the launch template and the fleet
// to the machine, past EC2's own checks.
func TestLaunchOptions(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.Clusters[0].Version = "1.32" })
	p := w.provider()
	if _, err := p.ec2.CreatePlacementGroup(t.Context(), &ec2.CreatePlacementGroupInput{GroupName: new("near"), Strategy: ec2types.PlacementStrategyCluster}); err != nil {
		t.Fatal(err)
	}
	alias := func(a string) func(*aws.EC2NodeClass) {
		return func(c *aws.EC2NodeClass) { c.Spec.AMISelectorTerms = []aws.AMISelectorTerm{{Alias: a}} }
	}
	data := func(parts ...string) func(ec2sim.Instance, *ec2types.ResponseLaunchTemplateData) string {
		return func(i ec2sim.Instance, _ *ec2types.ResponseLaunchTemplateData) string {
			for _, part := range parts {
				if !strings.Contains(string(i.UserData), part) {
					return fmt.Sprintf("user data lacks %q:\n%s", part, i.UserData)
				}
			}
			return ""
		}
	}
	quantity := resource.MustParse("100Gi")
	tests := map[string]struct {
		why    string
		types  []string
		change func(*aws.EC2NodeClass)
		wrong  func(ec2sim.Instance, *ec2types.ResponseLaunchTemplateData) string
	}{
		"AL2":          {"bootstrap.sh", []string{"m5.large"}, alias("al2@latest"), data("/etc/eks/bootstrap.sh", "--register-with-taints", "multipart/mixed")},
		"Bottlerocket": {"TOML", []string{"m5.large"}, alias("bottlerocket@latest"), data("[settings.kubernetes]", `cluster-name = 'demo'`, "karpenter.sh/unregistered")},
		"Windows":      {"PowerShell", []string{"m5.large"}, alias("windows2022@latest"), data("<powershell>", "Start-EKSBootstrap.ps1", "karpenter.sh/unregistered")},
		"AL2 RAID": {"local disks are joined", []string{"m5d.large"}, func(c *aws.EC2NodeClass) {
			alias("al2@latest")(c)
			c.Spec.InstanceStorePolicy = new(aws.InstanceStorePolicyRAID0)
		}, data("--local-disks raid0")},
		"AL2023 RAID": {"local disks are joined", []string{"m5d.large"}, func(c *aws.EC2NodeClass) { c.Spec.InstanceStorePolicy = new(aws.InstanceStorePolicyRAID0) }, data("strategy: RAID0")},
		"custom": {"nothing but the author's", []string{"m5.large"}, func(c *aws.EC2NodeClass) {
			c.Spec.AMIFamily, c.Spec.UserData = new(aws.AMIFamilyCustom), new("#!/bin/sh\njoin\n")
		}, func(i ec2sim.Instance, l *ec2types.ResponseLaunchTemplateData) string {
			if string(i.UserData) != "#!/bin/sh\njoin\n" || len(l.BlockDeviceMappings) != 0 {
				return fmt.Sprintf("user data is %q, devices %v", i.UserData, l.BlockDeviceMappings)
			}
			return ""
		}},
		"kubelet": {"any field of the kubelet's", []string{"m5.large"}, func(c *aws.EC2NodeClass) {
			c.Spec.Kubelet = aws.KubeletConfiguration{"maxPods": {Raw: []byte("42")}, "serializeImagePulls": {Raw: []byte("false")}}
		}, data("maxPods: 42", "serializeImagePulls: false")},
		"devices": {"a volume as it is written", []string{"m5.large"}, func(c *aws.EC2NodeClass) {
			c.Spec.BlockDeviceMappings = []*aws.BlockDeviceMapping{{DeviceName: new("/dev/xvda"), EBS: &aws.BlockDevice{
				VolumeSize: &quantity, VolumeType: new("gp3"), IOPS: new(int64(4000)), Throughput: new(int64(250)), Encrypted: new(true), DeleteOnTermination: new(true),
			}}}
		}, func(_ ec2sim.Instance, l *ec2types.ResponseLaunchTemplateData) string {
			if e := l.BlockDeviceMappings[0].Ebs; *e.VolumeSize != 100 || *e.Iops != 4000 || *e.Throughput != 250 || !*e.Encrypted || !*e.DeleteOnTermination {
				return fmt.Sprintf("the volume is %+v", e)
			}
			return ""
		}},
		"metadata": {"the instance's metadata service", []string{"m5.large"}, func(c *aws.EC2NodeClass) {
			c.Spec.MetadataOptions = &aws.MetadataOptions{HTTPEndpoint: new("enabled"), HTTPProtocolIPv6: new("enabled"), HTTPPutResponseHopLimit: new(int64(3)), HTTPTokens: new("optional")}
		}, func(_ ec2sim.Instance, l *ec2types.ResponseLaunchTemplateData) string {
			if m := l.MetadataOptions; m.HttpProtocolIpv6 != "enabled" || *m.HttpPutResponseHopLimit != 3 || m.HttpTokens != "optional" {
				return fmt.Sprintf("metadata options are %+v", m)
			}
			return ""
		}},
		"switches": {"enclaves, monitoring, connection tracking", []string{"m5.xlarge"}, func(c *aws.EC2NodeClass) {
			c.Spec.EnclaveOptions = &aws.EnclaveOptions{Enabled: new(true)}
			c.Spec.DetailedMonitoring = new(true)
			c.Spec.ConnectionTracking = &aws.ConnectionTracking{TCPEstablishedTimeout: new(int32(600)), UDPTimeout: new(int32(45))}
			c.Spec.AssociatePublicIPAddress = new(false)
			c.Spec.IPPrefixCount = new(int32(2))
		}, func(_ ec2sim.Instance, l *ec2types.ResponseLaunchTemplateData) string {
			n := l.NetworkInterfaces[0]
			if !*l.EnclaveOptions.Enabled || !*l.Monitoring.Enabled || *n.AssociatePublicIpAddress || *n.Ipv4PrefixCount != 2 ||
				*n.ConnectionTrackingSpecification.TcpEstablishedTimeout != 600 || *n.ConnectionTrackingSpecification.UdpTimeout != 45 {
				return fmt.Sprintf("interface is %+v", n)
			}
			return ""
		}},
		"interfaces": {"several network interfaces", []string{"m5.xlarge"}, func(c *aws.EC2NodeClass) {
			c.Spec.NetworkInterfaces = []*aws.NetworkInterface{{InterfaceType: aws.InterfaceTypeInterface}, {DeviceIndex: 1, InterfaceType: aws.InterfaceTypeInterface}}
		}, func(_ ec2sim.Instance, l *ec2types.ResponseLaunchTemplateData) string {
			if len(l.NetworkInterfaces) != 2 || *l.NetworkInterfaces[1].DeviceIndex != 1 {
				return fmt.Sprintf("interfaces are %+v", l.NetworkInterfaces)
			}
			return ""
		}},
		"placement": {"beside others", []string{"c5n.xlarge"}, func(c *aws.EC2NodeClass) { c.Spec.PlacementGroupSelector = &aws.PlacementGroupSelector{Name: "near"} },
			func(i ec2sim.Instance, _ *ec2types.ResponseLaunchTemplateData) string {
				if i.PlacementGroup != "near" {
					return fmt.Sprintf("placement group is %q", i.PlacementGroup)
				}
				return ""
			}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			class := newClass()
			class.Name = strings.ReplaceAll(strings.ToLower(name), " ", "-")
			class.UID = class.UID + "-" + "1"
			class.Spec.Role, class.Spec.InstanceProfile = "", new("node")
			tt.change(class)
			if deref(class.Spec.AMIFamily) == aws.AMIFamilyCustom {
				image, _ := cloud.ImageFor(w.resolve(p, newClass()).Status.AMIs, map[string]string{corev1.LabelArchStable: "amd64"})
				class.Spec.AMISelectorTerms = []aws.AMISelectorTerm{{ID: image}}
			}
			status, err := p.ResolveClass(t.Context(), class)
			if err != nil {
				t.Fatal(err)
			}
			class.Status = status
			if got := conditionsText(status.Conditions); !strings.Contains(got, "Ready=True") {
				t.Fatalf("%s: the class isn't ready:\n%s", tt.why, got)
			}
			claim := w.claim(class.Name)
			made := w.launch(p, w.request(p, class, claim, tt.types, []string{cloud.OnDemand}))
			i, ok := w.sim.Instance(made.ID)
			if !ok {
				t.Fatalf("EC2 doesn't know %s", made.ID)
			}
			if wrong := tt.wrong(i, w.template(p, i)); wrong != "" {
				t.Errorf("%s: %s", tt.why, wrong)
			}
		})
	}
}

// In a cluster of IPv6 the first interface has an address that stays.
func TestLaunchIPv6(t *testing.T) {
	w := newWorld(t)
	p := w.provider(func(c *Config) { c.ClusterCIDR = "fd00:10:96::/108" })
	class := newClass()
	class.Spec.MetadataOptions = &aws.MetadataOptions{HTTPProtocolIPv6: new("enabled")}
	w.resolve(p, class)
	made := w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{cloud.OnDemand}))
	i, _ := w.sim.Instance(made.ID)
	l := w.template(p, i)
	if n := l.NetworkInterfaces[0]; !deref(n.PrimaryIpv6) || deref(n.Ipv6AddressCount) != 1 || l.MetadataOptions.HttpProtocolIpv6 != "enabled" || !strings.Contains(string(i.UserData), "cidr: fd00:10:96::/108") {
		t.Errorf("interface %+v, user data\n%s", n, i.UserData)
	}
}

// EFA interfaces are there for a claim that asks for them, and only then.
func TestLaunchEFA(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	types, err := p.InstanceTypes(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(types, func(it cloud.InstanceType) bool {
		q := it.Capacity[aws.ResourceEFA]
		return q.Value() == 1 && it.Labels[aws.LabelInstanceGPUCount] == ""
	})
	if at < 0 {
		t.Fatal("no type has an EFA")
	}
	for _, asks := range []bool{false, true} {
		claim := w.claim(fmt.Sprint(len(w.live()) + 1))
		if asks {
			claim.Spec.Resources.Requests = map[corev1.ResourceName]resource.Quantity{aws.ResourceEFA: resource.MustParse("1")}
		}
		made := w.launch(p, w.request(p, class, claim, []string{types[at].Name}, []string{cloud.OnDemand}))
		i, _ := w.sim.Instance(made.ID)
		n := w.template(p, i).NetworkInterfaces
		if len(n) != 1 || (deref(n[0].InterfaceType) == "efa") != asks {
			t.Errorf("asked for EFA %t: interfaces of %s are %+v", asks, made.Type, n)
		}
	}
}

// The example of a k3s cluster is launched without a question to EKS.
func TestK3sExample(t *testing.T) {
	w := newWorld(t)
	p := w.provider(func(c *Config) { c.ClusterEndpoint = "https://k3s.example.internal:6443" })
	bundle, findings := render.Render(os.DirFS("../../../examples/k3s"), "")
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	class := &aws.EC2NodeClass{}
	for _, o := range bundle.Objects {
		if o.GVK.Kind != "EC2NodeClass" {
			continue
		}
		text, err := json.Marshal(o.Value)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, class); err != nil {
			t.Fatal(err)
		}
	}
	class.UID, class.Generation = "k3s-uid", 1
	w.resolve(p, class)
	if got := conditionsText(class.Status.Conditions); !strings.Contains(got, "Ready=True") || len(class.Status.AMIs) != 2 {
		t.Fatalf("images %+v\n%s", class.Status.AMIs, got)
	}
	req := w.request(p, class, w.claim("1"), []string{"m5.large", "m7g.large"}, []string{cloud.OnDemand})
	for _, it := range req.Types {
		if pods := it.Capacity.Pods().Value(); pods != 110 || it.Capacity.StorageEphemeral().Value() != 50<<30 {
			t.Errorf("%s: %d pods, %s of disk", it.Name, pods, it.Capacity.StorageEphemeral())
		}
	}
	made := w.launch(p, req)
	i, _ := w.sim.Instance(made.ID)
	if string(i.UserData) != *class.Spec.UserData {
		t.Errorf("user data is\n%s\nwant\n%s", i.UserData, *class.Spec.UserData)
	}
	for _, want := range []string{"provider-id=aws:///$zone/$id", "karpenter.sh/unregistered=:NoExecute", "server: https://k3s.example.internal:6443"} {
		if !strings.Contains(string(i.UserData), want) {
			t.Errorf("user data lacks %s", want)
		}
	}
	shell := exec.CommandContext(t.Context(), "sh", "-n")
	shell.Stdin = strings.NewReader(string(i.UserData))
	if out, err := shell.CombinedOutput(); err != nil {
		t.Errorf("sh -n: %v: %s", err, out)
	}
	for _, c := range w.sim.Counters() {
		if strings.HasPrefix(c.Action, "eks:") {
			t.Errorf("%s was called", c.Action)
		}
	}
}

// That services have IPv6 addresses EKS says, also where it needn't be asked for the
// endpoint; a cluster that it doesn't know has IPv4.
func TestLaunchIPv6ByEKS(t *testing.T) {
	for name, want := range map[string]bool{"demo": true, "elsewhere": false} {
		w := newWorld(t, func(c *ec2sim.Config) { c.Clusters[0].ServiceCIDR = "fd00:10:96::/108" })
		p := w.provider(func(c *Config) {
			c.ClusterName, c.ClusterEndpoint = name, "https://127.0.0.1:6443"
			c.KubernetesVersion = func(context.Context) (string, error) { return "1.33", nil }
		})
		class := newClass()
		class.Spec.AMISelectorTerms[0].Alias = "bottlerocket@latest"
		w.resolve(p, class)
		made := w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{cloud.OnDemand}))
		i, _ := w.sim.Instance(made.ID)
		if got := deref(w.template(p, i).NetworkInterfaces[0].PrimaryIpv6); got != want {
			t.Errorf("in cluster %s the first interface has an IPv6 address: %t", name, got)
		}
	}
}

// What a class lists as its interfaces decides which nodes have an EFA to offer.
func TestListedInterfaces(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	primary := &aws.NetworkInterface{InterfaceType: aws.InterfaceTypeInterface}
	efa := &aws.NetworkInterface{DeviceIndex: 1, InterfaceType: aws.InterfaceTypeEFAOnly}
	for name, tt := range map[string]struct {
		list []*aws.NetworkInterface
		efas int64
		pods int64
	}{
		"none":     {nil, 1, 737}, // 15 interfaces of 50 addresses
		"one":      {[]*aws.NetworkInterface{primary}, 0, 737},
		"with EFA": {[]*aws.NetworkInterface{primary, efa}, 1, 688},
	} {
		class := newClass()
		class.Spec.NetworkInterfaces = tt.list
		req := w.request(p, w.resolve(p, class), w.claim("1"), []string{"c5n.18xlarge"}, []string{cloud.OnDemand})
		if len(req.Types) != 1 {
			t.Fatalf("%s: no c5n.18xlarge", name)
		}
		efas, pods := req.Types[0].Capacity[aws.ResourceEFA], req.Types[0].Capacity[corev1.ResourcePods]
		if efas.Value() != tt.efas || pods.Value() != tt.pods {
			t.Errorf("%s: a node has %s EFAs and %s pods, want %d and %d", name, efas.String(), pods.String(), tt.efas, tt.pods)
		}
	}
}

// A class with as many tags as fit launches.
func TestTagsThatFit(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := newClass()
	for n := len(class.Spec.Tags); n < maxTags-7; n++ {
		class.Spec.Tags[fmt.Sprint("t", n)] = "x"
	}
	w.resolve(p, class)
	made := w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{cloud.OnDemand}))
	if n := len(made.Tags); n != maxTags {
		t.Errorf("the instance has %d tags, want %d", n, maxTags)
	}
}
