package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/diag"
)

// family is what an EKS AMI type stands for.
type family struct{ alias, arch, os string }

// families are the AMI types of EKS managed node groups (API reference, Nodegroup.amiType).
func families() map[string]family {
	out := map[string]family{
		"AL2_x86_64": {"al2", "amd64", "linux"}, "AL2_x86_64_GPU": {"al2", "amd64", "linux"}, "AL2_ARM_64": {"al2", "arm64", "linux"},
		"AL2023_x86_64_STANDARD": {"al2023", "amd64", "linux"}, "AL2023_ARM_64_STANDARD": {"al2023", "arm64", "linux"},
		"AL2023_x86_64_NVIDIA": {"al2023", "amd64", "linux"}, "AL2023_ARM_64_NVIDIA": {"al2023", "arm64", "linux"}, "AL2023_x86_64_NEURON": {"al2023", "amd64", "linux"},
		"BOTTLEROCKET_x86_64": {"bottlerocket", "amd64", "linux"}, "BOTTLEROCKET_ARM_64": {"bottlerocket", "arm64", "linux"},
		"BOTTLEROCKET_x86_64_NVIDIA": {"bottlerocket", "amd64", "linux"}, "BOTTLEROCKET_ARM_64_NVIDIA": {"bottlerocket", "arm64", "linux"},
	}
	for _, year := range []string{"2019", "2022", "2025"} {
		out["WINDOWS_CORE_"+year+"_x86_64"] = family{"windows" + year, "amd64", "windows"}
		out["WINDOWS_FULL_"+year+"_x86_64"] = family{"windows" + year, "amd64", "windows"}
	}
	return out
}

// group collects a pool and its class while a node group is read.
type group struct {
	*converter
	path         []any
	from         map[string]any
	pool, class  map[string]any
	requirements []any
	name         string
}

func (c *converter) newGroup(from map[string]any, path []any, name string) *group {
	g := &group{converter: c, path: path, from: from, pool: map[string]any{}, class: map[string]any{}, name: name}
	inner := sub(g.pool, "template", "spec")
	inner["nodeClassRef"] = map[string]any{"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name}
	return g
}

func (g *group) at(names ...any) []any { return at(g.path, names...) }

func (g *group) require(key string, values ...any) {
	if len(values) > 0 {
		g.requirements = append(g.requirements, map[string]any{"key": key, "operator": "In", "values": values})
	}
}

// take returns a field and marks it as read.
func (g *group) take(name string) (any, bool) {
	x, ok := g.from[name]
	delete(g.from, name)
	if s, isText := x.(string); x == nil || isText && s == "" {
		return nil, false
	}
	if l, isList := x.([]any); isList && len(l) == 0 {
		return nil, false
	}
	return x, ok
}

// state passes over fields that say how a group is, not how it shall be.
func (g *group) state(names ...string) {
	for _, name := range names {
		if _, ok := g.from[name]; ok {
			delete(g.from, name)
			g.note(diag.Info, CodeSkipped, g.at(name), name+" says how the group is, not what it is meant to be, so it is skipped", "")
		}
	}
}

// scaling passes over fields that say how EC2 scales the group.
func (g *group) scaling(names ...string) {
	for _, name := range names {
		if _, ok := g.from[name]; ok {
			delete(g.from, name)
			g.note(diag.Info, CodeSkipped, g.at(name), name+" is for EC2's own scaling, which a pool doesn't have, so it is skipped", "")
		}
	}
}

// finish puts the pool and its class into the result. What nobody has read can't be
// carried over.
func (g *group) finish() {
	for _, name := range slices.Sorted(maps.Keys(g.from)) {
		if _, ok := g.take(name); ok {
			g.lossy(g.at(name), name+" has no counterpart in a NodePool or EC2NodeClass", "see whether it is needed")
		}
	}
	sub(g.pool, "template", "spec")["requirements"] = g.requirements
	inner := sub(g.pool, "template", "spec")
	if inner["expireAfter"] == nil {
		inner["expireAfter"] = "Never"
		g.note(diag.Warning, CodeDefault, g.path, "the group keeps nodes for ever; the default of v1 is 720h, so expireAfter: Never is written", "remove it, so that nodes get new images")
	}
	g.spec = g.path
	g.complete(g.class, groupVersion)
	g.add("nodePools", g.name, map[string]any{"spec": g.pool}, g.path)
	g.add("nodeClasses", g.name, map[string]any{"spec": g.class}, g.path)
}

// sizes carries a group's sizes over, as far as they go.
func (g *group) sizes(least, most, desired string, from map[string]any, path []any) {
	if n, ok := from[most].(int64); ok {
		sub(g.pool, "limits")["nodes"] = n
		g.moved(at(path, most), fmt.Sprintf("%s is spec.limits.nodes", most))
	}
	if n, ok := from[least].(int64); ok && n > 0 {
		g.lossy(at(path, least), fmt.Sprintf("%s keeps %d nodes whether or not pods need them", least, n), "declare a CapacityBuffer or a pool with replicas for capacity that shall be there before pods are")
	}
	if _, ok := from[desired]; ok {
		g.note(diag.Info, CodeSkipped, at(path, desired), desired+" is left to what pods need", "")
	}
	for _, name := range []string{least, most, desired} {
		delete(from, name)
	}
}

// nodeGroup converts what 'aws eks describe-nodegroup' prints.
func (c *converter) nodeGroup(v map[string]any) {
	from, path := v, []any{}
	if inner, ok := v["nodegroup"].(map[string]any); ok {
		from, path = inner, []any{"nodegroup"}
	}
	name, _ := from["nodegroupName"].(string)
	if name == "" {
		c.note(diag.Error, CodeMissing, path, "nodegroupName is missing", "give the whole answer of 'aws eks describe-nodegroup'")
		return
	}
	g := c.newGroup(from, path, name)
	delete(from, "nodegroupName")
	g.capacity()
	g.machines()
	if x, ok := g.take("subnets"); ok {
		g.class["subnetSelectorTerms"] = idTerms(list(x))
	}
	if x, ok := g.take("nodeRole"); ok {
		arn := fmt.Sprint(x)
		g.class["role"] = arn[strings.LastIndexByte(arn, '/')+1:]
		g.moved(g.at("nodeRole"), "nodeRole is the class's role, by name")
	}
	if x, ok := g.take("labels"); ok {
		sub(g.pool, "template", "metadata")["labels"] = x
	}
	if x, ok := g.take("taints"); ok {
		g.taints(list(x))
	}
	if x, ok := g.take("tags"); ok {
		g.tags(x, "tags")
	}
	if x, ok := g.take("diskSize"); ok {
		if g.class["amiFamily"] == nil {
			g.class["blockDeviceMappings"] = []any{map[string]any{"deviceName": g.rootDevice(), "ebs": map[string]any{"volumeSize": fmt.Sprintf("%vGi", x), "volumeType": "gp3", "deleteOnTermination": true}}}
			g.moved(g.at("diskSize"), "diskSize is the size of the first of blockDeviceMappings")
		}
	}
	if x, ok := g.take("scalingConfig"); ok {
		if sizes, ok := x.(map[string]any); ok {
			g.sizes("minSize", "maxSize", "desiredSize", sizes, g.at("scalingConfig"))
			g.rest(sizes, g.at("scalingConfig"))
		}
	}
	if x, ok := g.take("updateConfig"); ok {
		g.update(x)
	}
	g.state("status", "health", "createdAt", "modifiedAt", "nodegroupArn", "clusterName", "resources", "version")
	g.unless("nodeRepairConfig", "enabled", false)
	g.finish()
}

// rest reports what nobody has read of a struct.
func (g *group) rest(from map[string]any, path []any) {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if x := from[name]; x != nil && x != "" {
			g.lossy(at(path, name), name+" has no counterpart in a NodePool or EC2NodeClass", "see whether it is needed")
		}
	}
}

// unless passes over a struct one field of which says that it has no effect. What it says
// otherwise can't be carried over.
func (g *group) unless(name, field string, off any) {
	x, _ := g.from[name].(map[string]any)
	if v, ok := x[field]; ok && v == off {
		delete(g.from, name)
		g.note(diag.Info, CodeSkipped, g.at(name), fmt.Sprintf("%s is as it is without it: %s is %v, so it is skipped", name, field, off), "")
	}
}

// rootDevice is the device of the volume that nodes' data is on, for an image family.
func (g *group) rootDevice() string {
	alias := ""
	for _, t := range list(g.class["amiSelectorTerms"]) {
		m, _ := t.(map[string]any)
		alias = fmt.Sprint(m["alias"])
	}
	switch {
	case strings.HasPrefix(alias, "bottlerocket"):
		return "/dev/xvdb"
	case strings.HasPrefix(alias, "windows"):
		return "/dev/sda1"
	}
	return "/dev/xvda"
}

// capacity reads what nodes are bought as.
func (g *group) capacity() {
	x, ok := g.take("capacityType")
	switch {
	case !ok, x == "ON_DEMAND":
		g.require("karpenter.sh/capacity-type", "on-demand")
	case x == "SPOT":
		g.require("karpenter.sh/capacity-type", "spot")
	default:
		g.lossy(g.at("capacityType"), fmt.Sprintf("the capacity type %v isn't known here", x), "use ON_DEMAND or SPOT")
	}
}

// machines reads the instance types and the image.
func (g *group) machines() {
	release, _ := g.take("releaseVersion")
	x, _ := g.take("amiType")
	f, known := families()[fmt.Sprint(x)]
	switch {
	case x == nil:
	case !known:
		if g.options.AMIAlias == "" {
			g.lossy(g.at("amiType"), fmt.Sprintf("the image of amiType %v isn't in the group but in its launch template", x), "give an image with --ami-alias")
		}
	default:
		version := "latest"
		before, after, ok := strings.Cut(fmt.Sprint(release), "-")
		switch {
		case ok && f.alias == "bottlerocket": // As in 1.20.4-1a2b3c4d.
			version = "v" + before
		case ok && len(after) == 8 && f.os == "linux": // As in 1.29.0-20240129.
			version = "v" + after
		}
		switch {
		case version != "latest":
			g.moved(g.at("releaseVersion"), "releaseVersion is the version of the image")
		case release != nil:
			g.lossy(g.at("releaseVersion"), fmt.Sprintf("the release %v can't be asked for: %s is written", release, f.alias+"@latest"), "select the image by its ID")
		}
		g.class["amiSelectorTerms"] = []any{map[string]any{"alias": f.alias + "@" + version}}
		g.require("kubernetes.io/arch", f.arch)
		g.require("kubernetes.io/os", f.os)
		g.moved(g.at("amiType"), "amiType is the class's amiSelectorTerms and the pool's architecture")
	}
	if types, ok := g.take("instanceTypes"); ok {
		g.require("node.kubernetes.io/instance-type", list(types)...)
	}
}

func idTerms(ids []any) []any {
	var out []any
	for _, id := range ids {
		out = append(out, map[string]any{"id": id})
	}
	return out
}

func (g *group) taints(items []any) {
	effects := map[string]string{"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
	var out []any
	for _, x := range items {
		t, _ := x.(map[string]any)
		taint := map[string]any{"key": t["key"], "effect": effects[fmt.Sprint(t["effect"])]}
		if v, ok := t["value"]; ok && v != "" {
			taint["value"] = v
		}
		out = append(out, taint)
	}
	sub(g.pool, "template", "spec")["taints"] = out
}

// tags carries tags over, but for those that are EC2's or the cluster's own.
func (g *group) tags(x any, field string) {
	all, _ := x.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, "kubernetes.io/cluster/") || strings.HasPrefix(name, "eks:") || strings.HasPrefix(name, "aws:") || strings.HasPrefix(name, "k8s.io/cluster-autoscaler/") {
			delete(all, name)
			g.note(diag.Info, CodeSkipped, g.at(field), fmt.Sprintf("the tag %s is set by what manages the group, so it is skipped", name), "")
		}
	}
	if len(all) > 0 {
		g.class["tags"] = all
	}
}

func (g *group) update(x any) {
	update, _ := x.(map[string]any)
	nodes := ""
	if n, ok := update["maxUnavailable"]; ok {
		nodes = fmt.Sprint(n)
	}
	if n, ok := update["maxUnavailablePercentage"]; ok {
		nodes = fmt.Sprintf("%v%%", n)
	}
	if nodes != "" {
		sub(g.pool, "disruption")["budgets"] = []any{map[string]any{"nodes": nodes}}
		g.moved(g.at("updateConfig"), fmt.Sprintf("updateConfig is the pool's disruption budget: %s", nodes))
	}
	if s, ok := update["updateStrategy"]; ok && s != "DEFAULT" {
		g.lossy(g.at("updateConfig", "updateStrategy"), fmt.Sprintf("the update strategy %v has no counterpart", s), "nodes are replaced before they go")
	}
	for _, name := range []string{"maxUnavailable", "maxUnavailablePercentage", "updateStrategy"} {
		delete(update, name)
	}
	g.rest(update, g.at("updateConfig"))
}

// scalingGroups converts what 'aws autoscaling describe-auto-scaling-groups' prints, for
// groups that the Cluster Autoscaler runs.
func (c *converter) scalingGroups(v map[string]any) {
	groups := list(v["AutoScalingGroups"])
	if len(groups) == 0 {
		c.note(diag.Error, CodeMissing, []any{"AutoScalingGroups"}, "the answer holds no groups", "give the whole answer of 'aws autoscaling describe-auto-scaling-groups', for groups that there are")
	}
	for i, x := range groups {
		from, _ := x.(map[string]any)
		path := []any{"AutoScalingGroups", i}
		name, _ := from["AutoScalingGroupName"].(string)
		if name == "" {
			c.note(diag.Error, CodeMissing, path, "AutoScalingGroupName is missing", "give the whole answer of 'aws autoscaling describe-auto-scaling-groups'")
			continue
		}
		g := c.newGroup(from, path, strings.ToLower(name))
		delete(from, "AutoScalingGroupName")
		g.scalingGroup()
		g.finish()
	}
}

func (g *group) scalingGroup() {
	capacity := []any{"on-demand"}
	if x, ok := g.take("MixedInstancesPolicy"); ok {
		policy, _ := x.(map[string]any)
		capacity = g.mixed(policy)
	}
	g.require("karpenter.sh/capacity-type", capacity...)
	if x, ok := g.take("LaunchTemplate"); ok {
		lt, _ := x.(map[string]any)
		if t, ok := lt["InstanceType"]; ok {
			g.require("node.kubernetes.io/instance-type", t)
		}
		g.template(g.at("LaunchTemplate"))
	}
	if _, ok := g.take("LaunchConfigurationName"); ok {
		g.template(g.at("LaunchConfigurationName"))
	}
	if x, ok := g.take("VPCZoneIdentifier"); ok {
		var ids []any
		for id := range strings.SplitSeq(fmt.Sprint(x), ",") {
			ids = append(ids, strings.TrimSpace(id))
		}
		g.class["subnetSelectorTerms"] = idTerms(ids)
		g.moved(g.at("VPCZoneIdentifier"), "VPCZoneIdentifier is the class's subnetSelectorTerms")
	}
	if x, ok := g.take("AvailabilityZones"); ok {
		g.require("topology.kubernetes.io/zone", list(x)...)
	}
	if x, ok := g.take("Tags"); ok {
		g.autoscalerTags(list(x))
	}
	if x, ok := g.take("MaxInstanceLifetime"); ok {
		if n, ok := x.(int64); ok && n > 0 {
			sub(g.pool, "template", "spec")["expireAfter"] = durationText(time.Duration(n) * time.Second)
			g.moved(g.at("MaxInstanceLifetime"), "MaxInstanceLifetime is the pool's expireAfter")
		}
	}
	g.sizes("MinSize", "MaxSize", "DesiredCapacity", g.from, g.path)
	g.unless("AvailabilityZoneDistribution", "CapacityDistributionStrategy", "balanced-best-effort")
	g.unless("AvailabilityZoneImpairmentPolicy", "ZonalShiftEnabled", false)
	g.unless("CapacityReservationSpecification", "CapacityReservationPreference", "default")
	g.state("AutoScalingGroupARN", "CreatedTime", "Instances", "ServiceLinkedRoleARN", "Status", "PredictedCapacity", "WarmPoolSize")
	g.scaling("DefaultCooldown", "HealthCheckGracePeriod", "HealthCheckType", "TerminationPolicies", "SuspendedProcesses", "EnabledMetrics",
		"NewInstancesProtectedFromScaleIn", "TrafficSources", "CapacityRebalance")
}

// template says that a launch template's content isn't in what was given.
func (g *group) template(path []any) {
	if g.options.AMIAlias == "" || g.options.Role == "" {
		g.lossy(path, "image, role and user data are in the launch template, which isn't here", "give the image and the role with --ami-alias and --role, and write what else the template holds as fields of the class")
		return
	}
	g.note(diag.Warning, CodeSkipped, path, "what the launch template holds besides image and role isn't here", "compare it with the class")
}

// mixed reads a policy with several instance types and returns the capacity types.
func (g *group) mixed(policy map[string]any) []any {
	path := g.at("MixedInstancesPolicy")
	lt, _ := policy["LaunchTemplate"].(map[string]any)
	var types []any
	for i, x := range list(lt["Overrides"]) {
		o, _ := x.(map[string]any)
		if t, ok := o["InstanceType"]; ok && !slices.Contains(types, t) {
			types = append(types, t)
		}
		for _, name := range slices.Sorted(maps.Keys(o)) {
			here := at(path, "LaunchTemplate", "Overrides", i, name)
			switch {
			case name == "InstanceType", o[name] == nil:
			case name == "InstanceRequirements":
				g.lossy(here, "types chosen by attributes aren't carried over", "write them as requirements on karpenter.k8s.aws/instance-* labels")
			case name == "WeightedCapacity" && o[name] == "1":
			case name == "WeightedCapacity":
				g.lossy(here, fmt.Sprintf("this type counts %v times in the group's sizes, and each node counts once in spec.limits.nodes", o[name]), "limit the pool by cpu and memory")
			default:
				g.lossy(here, name+" of a single type has no counterpart", "use a pool with a class of its own for the type")
			}
		}
	}
	g.require("node.kubernetes.io/instance-type", types...)
	if lt["LaunchTemplateSpecification"] != nil {
		g.template(at(path, "LaunchTemplate", "LaunchTemplateSpecification"))
	}
	rest := maps.Clone(lt)
	delete(rest, "Overrides")
	delete(rest, "LaunchTemplateSpecification")
	g.rest(rest, at(path, "LaunchTemplate"))
	rest = maps.Clone(policy)
	delete(rest, "LaunchTemplate")
	delete(rest, "InstancesDistribution")
	g.rest(rest, path)
	d, _ := policy["InstancesDistribution"].(map[string]any)
	here := at(path, "InstancesDistribution")
	if price := d["SpotMaxPrice"]; price != nil && price != "" {
		g.lossy(at(here, "SpotMaxPrice"), fmt.Sprintf("a pool has no highest price, and this group's is %v", price), "choose instance types that cost no more")
	}
	g.strategies(d, here)
	base, _ := d["OnDemandBaseCapacity"].(int64)
	above, given := d["OnDemandPercentageAboveBaseCapacity"].(int64)
	if !given {
		above = 100
	}
	switch {
	case above >= 100:
		return []any{"on-demand"}
	case above == 0 && base == 0:
		return []any{"spot"}
	}
	g.lossy(here, fmt.Sprintf("a share of on-demand (%d nodes and %d%% of the rest) can't be kept: a pool takes spot while it is cheaper", base, above), "use a pool for each, told apart by a label, and spread pods over them")
	return []any{"spot", "on-demand"}
}

// strategies reads by which of the types capacity is bought. A pool buys on demand what is
// cheapest, and of spot what is cheap and unlikely to be taken away.
func (g *group) strategies(d map[string]any, path []any) {
	rest := maps.Clone(d)
	for _, name := range []string{"SpotMaxPrice", "OnDemandBaseCapacity", "OnDemandPercentageAboveBaseCapacity"} {
		delete(rest, name)
	}
	own := map[string]string{"OnDemandAllocationStrategy": "lowest-price", "SpotAllocationStrategy": "price-capacity-optimized"}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		x, ok := rest[name]
		delete(rest, name)
		switch {
		case !ok || x == nil:
		case x == "prioritized" || x == "capacity-optimized-prioritized":
			g.lossy(at(path, name), fmt.Sprintf("types have no order in a pool, and %s is %v", name, x), "use a pool for each type that is preferred, with a higher weight")
		case x == own[name]:
			g.note(diag.Info, CodeSkipped, at(path, name), fmt.Sprintf("%s is %v, as it is for every pool, so it is skipped", name, x), "")
		default:
			g.note(diag.Warning, CodeDefault, at(path, name), fmt.Sprintf("%s is %v, and for every pool it is %s", name, x, own[name]), "")
		}
	}
	if x, ok := rest["SpotInstancePools"]; ok {
		delete(rest, "SpotInstancePools")
		g.note(diag.Info, CodeSkipped, at(path, "SpotInstancePools"), fmt.Sprintf("SpotInstancePools is %v, which says how lowest-price is applied, so it is skipped", x), "")
	}
	g.rest(rest, path)
}

// autoscalerTags reads the tags by which the Cluster Autoscaler knows what nodes of an
// empty group would be like.
func (g *group) autoscalerTags(items []any) {
	const template = "k8s.io/cluster-autoscaler/node-template/"
	rest := map[string]any{}
	var taints []any
	for i, x := range items {
		t, _ := x.(map[string]any)
		key, value := fmt.Sprint(t["Key"]), fmt.Sprint(t["Value"])
		path := g.at("Tags", i)
		if label, ok := strings.CutPrefix(key, template+"label/"); ok {
			sub(g.pool, "template", "metadata", "labels")[label] = value
			g.moved(path, fmt.Sprintf("the label %s is the pool's", label))
			continue
		}
		if name, ok := strings.CutPrefix(key, template+"taint/"); ok {
			value, effect, _ := strings.Cut(value, ":")
			taint := map[string]any{"key": name, "effect": effect}
			if value != "" {
				taint["value"] = value
			}
			taints = append(taints, taint)
			g.moved(path, fmt.Sprintf("the taint %s is the pool's", name))
			continue
		}
		if strings.HasPrefix(key, template) {
			g.note(diag.Info, CodeSkipped, path, fmt.Sprintf("%s follows from the instance type, so it is skipped", key), "")
			continue
		}
		if t["PropagateAtLaunch"] == false {
			g.note(diag.Info, CodeSkipped, path, fmt.Sprintf("the tag %s isn't on the group's instances, so it is skipped", key), "")
			continue
		}
		rest[key] = value
	}
	if len(taints) > 0 {
		sub(g.pool, "template", "spec")["taints"] = taints
	}
	g.tags(rest, "Tags")
}
