package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
)

// part converts a document that is a part of an object.
func (c *converter) part(v map[string]any) {
	_, isClass := first(v, "amiFamily", "amiSelector", "amiSelectorTerms", "subnetSelector", "subnetSelectorTerms", "securityGroupSelector",
		"securityGroupSelectorTerms", "blockDeviceMappings", "userData", "metadataOptions", "instanceProfile", "role", "launchTemplate", "tags")
	_, isPool := first(v, "template", "limits", "disruption", "weight", "replicas", "requirements", "taints", "startupTaints", "labels", "providerRef",
		"ttlSecondsAfterEmpty", "ttlSecondsUntilExpired", "consolidation")
	spec, hasSpec := v["spec"].(map[string]any)
	items, isList := v[render.PartList].([]any)
	switch {
	case isList && len(items) > 0 && hasKeys(items, "key", "operator"):
		v = map[string]any{"requirements": items}
		c.requirements(v, "requirements", []any{render.PartList})
	case isClass:
		c.classSpec(v, nil)
	case isPool && v["requirements"] != nil && len(v) == 1:
		c.requirements(v, "requirements", []any{"requirements"})
	case isPool:
		c.poolSpec(v, nil)
	case hasSpec:
		c.poolSpec(spec, []any{"spec"})
	case v["metadata"] != nil:
	default:
		c.note(diag.Error, CodeMissing, nil, "the document is neither an object nor a part of one that is known here", "begin it with apiVersion and kind, or import what nodes are declared by")
		return
	}
	if meta, ok := v["metadata"].(map[string]any); ok {
		c.names(meta, []any{"metadata"})
	}
	if len(v) > 0 {
		c.result.parts = append(c.result.parts, v)
	}
}

// first returns the first of the fields that there is.
func first(v map[string]any, names ...string) (any, bool) {
	for _, name := range names {
		if x, ok := v[name]; ok {
			return x, true
		}
	}
	return nil, false
}

// hasKeys reports whether every item is a struct with the fields.
func hasKeys(items []any, names ...string) bool {
	return !slices.ContainsFunc(items, func(x any) bool {
		m, _ := x.(map[string]any)
		return slices.ContainsFunc(names, func(name string) bool { return m[name] == nil })
	})
}

// globalSettings turns the settings that Karpenter had in a ConfigMap until v0.32 into
// flags of the controller.
func (c *converter) globalSettings(v map[string]any) {
	data, _ := v["data"].(map[string]any)
	flags := map[string]string{
		"batchMaxDuration": "batch-max-duration", "batchIdleDuration": "batch-idle-duration",
		"aws.clusterName": "cluster-name", "aws.clusterEndpoint": "cluster-endpoint", "aws.clusterCABundle": "cluster-ca-bundle",
		"aws.isolatedVPC": "isolated-vpc", "aws.vmMemoryOverheadPercent": "vm-memory-overhead-percent", "aws.reservedENIs": "reserved-enis",
		"aws.interruptionQueueName": "interruption-queue",
	}
	c.eachSetting(data, nil, func(name string, value any, path []any) {
		path = at([]any{"data"}, path...)
		switch {
		case flags[name] != "":
			flag := fmt.Sprintf("--%s=%v", flags[name], value)
			c.result.settings = append(c.result.settings, flag)
			c.moved(path, fmt.Sprintf("%s is the controller's flag %s", name, flag))
		case name == "featureGates.driftEnabled" && fmt.Sprint(value) == "true":
			c.moved(path, "drifted nodes are always replaced, within budgets")
		case name == "featureGates.driftEnabled":
			c.lossy(path, "drift can't be turned off", `give the pools a budget of 0 for the reason Drifted`)
		case name == "aws.enablePodENI", name == "aws.enableENILimitedPodDensity":
			c.moved(path, name+" has no counterpart: it follows from the instance type")
		case name == "aws.defaultInstanceProfile":
			c.lossy(path, "there is no default instance profile in v1", "set instanceProfile in each EC2NodeClass")
		case strings.HasPrefix(name, "nodePool."):
			c.note(diag.Warning, CodeSkipped, path, name+" was never a setting of Karpenter's, so it has no effect and is skipped", "write it in each NodePool, under spec.disruption")
		default:
			c.lossy(path, fmt.Sprintf("the setting %s isn't known here", name), "look for it in 'coppice controller --help'")
		}
	})
	slices.Sort(c.result.settings)
}

// eachSetting visits the settings in order. Structs, which a ConfigMap can't have but
// guides do, count as names with dots.
func (c *converter) eachSetting(v map[string]any, path []any, visit func(name string, value any, path []any)) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		here := at(path, name)
		if inner, ok := v[name].(map[string]any); ok {
			c.eachSetting(inner, here, visit)
			continue
		}
		var names []string
		for _, p := range here {
			names = append(names, p.(string))
		}
		visit(strings.Join(names, "."), v[name], here)
	}
}
