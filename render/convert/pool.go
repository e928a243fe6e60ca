package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/diag"
)

// nodePool converts a NodePool of karpenter.sh/v1 or v1beta1. Manifests of v1 are met
// that use fields of the versions before.
func (c *converter) nodePool(v map[string]any, version string) map[string]any {
	if version != "v1" {
		c.moved([]any{"apiVersion"}, fmt.Sprintf("karpenter.sh/%s is written as karpenter.sh/v1", version))
	}
	v = c.object(v)
	if spec, ok := v["spec"].(map[string]any); ok {
		move := c.takeKubelet(spec)
		c.poolSpec(spec, []any{"spec"})
		c.classRef(spec, []any{"spec", "template", "spec"}, version)
		c.requirementsThere(spec)
		move()
	}
	return v
}

// poolSpec converts what stands in the spec of a pool, or in a part of it. It goes
// through everything of any version, each where it was.
func (c *converter) poolSpec(spec map[string]any, path []any) {
	if template, ok := spec["template"].(map[string]any); ok {
		if inner, ok := template["spec"].(map[string]any); ok {
			c.templateSpec(spec, inner, at(path, "template", "spec"))
		}
		if meta, ok := template["metadata"].(map[string]any); ok {
			c.names(meta, at(path, "template", "metadata"))
		}
	}
	c.disruption(spec, path)
	c.provisionerFields(spec, path)
}

// templateSpec converts the spec of a pool's template.
func (c *converter) templateSpec(spec, inner map[string]any, path []any) {
	c.requirements(inner, "requirements", at(path, "requirements"))
	if _, ok := inner["kubelet"]; ok {
		delete(inner, "kubelet")
		c.lossy(at(path, "kubelet"), "kubelet settings belong to the EC2NodeClass in v1", "move them to spec.kubelet of the class")
	}
	if _, ok := inner["resources"]; ok {
		delete(inner, "resources")
		c.lossy(at(path, "resources"), "a pool's template has no resources: pods decide", "remove it")
	}
}

// names replaces labels and annotations that have other names now.
func (c *converter) names(meta map[string]any, path []any) {
	for _, field := range []string{"labels", "annotations"} {
		all, _ := meta[field].(map[string]any)
		for _, old := range slices.Sorted(maps.Keys(all)) {
			now, ok := renamed()[old]
			if !ok {
				continue
			}
			x, from := all[old], at(path, field, old)
			delete(all, old)
			if old == provisionerName {
				c.ownName(from, x == c.doc.Name)
				continue
			}
			if c.set(all, now, x, from) {
				c.moved(from, fmt.Sprintf("%s is %s in v1", old, now))
			}
		}
	}
}

// renamed are labels and annotations with other names in v1.
func renamed() map[string]string {
	return map[string]string{
		"karpenter.sh/do-not-evict":                "karpenter.sh/do-not-disrupt",
		"karpenter.sh/do-not-consolidate":          "karpenter.sh/do-not-disrupt",
		"karpenter.sh/provisioner-name":            "karpenter.sh/nodepool",
		"beta.kubernetes.io/arch":                  "kubernetes.io/arch",
		"beta.kubernetes.io/os":                    "kubernetes.io/os",
		"beta.kubernetes.io/instance-type":         "node.kubernetes.io/instance-type",
		"failure-domain.beta.kubernetes.io/zone":   "topology.kubernetes.io/zone",
		"failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
	}
}

// provisionerName is the label that nodes had the name of their Provisioner in. What it
// is in v1, karpenter.sh/nodepool, no template may have: the controller sets it.
const provisionerName = "karpenter.sh/provisioner-name"

// ownName leaves out what a template says about provisionerName.
func (c *converter) ownName(from []any, same bool) {
	if same {
		c.moved(from, provisionerName+" is karpenter.sh/nodepool in v1, which every node has without it; it is left out")
		return
	}
	c.lossy(from, provisionerName+" is karpenter.sh/nodepool in v1, which a pool can't set: it is the pool's name", "remove it, or give nodes a label of your own")
}

// requirements converts the list of requirements in a struct, if there is one.
func (c *converter) requirements(in map[string]any, name string, path []any) {
	all, ok := in[name].([]any)
	if !ok {
		return
	}
	kept := make([]any, 0, len(all))
	for i, item := range all {
		r, _ := item.(map[string]any)
		key, _ := r["key"].(string)
		if key == provisionerName {
			values := list(r["values"])
			c.ownName(at(path, i, "key"), r["operator"] == "In" && len(values) == 1 && values[0] == c.doc.Name)
			continue
		}
		if now, ok := renamed()[key]; ok {
			r["key"] = now
			c.moved(at(path, i, "key"), fmt.Sprintf("%s is %s in v1", key, now))
		}
		kept = append(kept, item)
	}
	in[name] = kept
}

// disruption converts spec.disruption.
func (c *converter) disruption(spec map[string]any, path []any) {
	d, ok := spec["disruption"].(map[string]any)
	if !ok {
		return
	}
	here := at(path, "disruption")
	if after, ok := d["expireAfter"]; ok {
		delete(d, "expireAfter")
		c.expireAfter(spec, after, at(here, "expireAfter"), "disruption.expireAfter is template.spec.expireAfter in v1")
	}
	if d["consolidationPolicy"] == "WhenUnderutilized" {
		d["consolidationPolicy"] = "WhenEmptyOrUnderutilized"
		c.moved(at(here, "consolidationPolicy"), "WhenUnderutilized is WhenEmptyOrUnderutilized in v1")
	}
	if len(d) == 0 {
		delete(spec, "disruption")
	}
}

// expireAfter sets the age at which nodes go, unless another one is set.
func (c *converter) expireAfter(spec map[string]any, after any, from []any, message string) {
	inner := sub(spec, "template", "spec")
	if old, ok := inner["expireAfter"]; ok && old != after {
		c.lossy(from, fmt.Sprintf("expireAfter is %v here and %v in template.spec", after, old), "keep one of them")
		return
	}
	inner["expireAfter"] = after
	c.moved(from, message)
	if after != "Never" {
		c.note(diag.Warning, CodeDefault, from,
			"a node at its expireAfter is drained at once in v1, whatever budgets say and without a replacement first; before v1 budgets held and the replacement came first",
			fmt.Sprintf("to keep that, write coppice: softExpireAfter: %q in the pool, and a longer expireAfter", after))
	}
}

// classRef completes the reference to a class.
func (c *converter) classRef(spec map[string]any, path []any, version string) {
	c.result.pools = append(c.result.pools, poolOf{c, spec, at(path, "nodeClassRef")})
	inner := sub(spec, "template", "spec")
	ref, ok := inner["nodeClassRef"].(map[string]any)
	if !ok {
		inner["nodeClassRef"] = map[string]any{"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
		c.note(diag.Warning, CodeDefault, path, "the pool names no class, so the class default is filled in", "name another one if there is no class default")
		return
	}
	here := at(path, "nodeClassRef")
	if api, ok := ref["apiVersion"].(string); ok {
		delete(ref, "apiVersion")
		group, _, _ := strings.Cut(api, "/")
		ref["group"] = group
		c.moved(at(here, "apiVersion"), "nodeClassRef.apiVersion is nodeClassRef.group in v1, without a version")
	}
	for _, f := range []struct{ name, value string }{{"group", "karpenter.k8s.aws"}, {"kind", "EC2NodeClass"}} {
		if _, ok := ref[f.name]; !ok {
			ref[f.name] = f.value
			c.note(diag.Info, CodeDefault, here, fmt.Sprintf("nodeClassRef.%s is required in v1: %s is filled in", f.name, f.value), "")
		}
	}
}

// poolOf is a pool that refers to a class at path.
type poolOf struct {
	from *converter
	spec map[string]any
	path []any
}

// missingClasses tells, each once, of classes that pools refer to and that aren't imported
// with them: a cluster's package has to declare them.
func (r *Result) missingClasses() {
	told := map[string]bool{}
	for _, p := range r.pools {
		ref := reference(p.spec)
		name, _ := ref["name"].(string)
		if ref["kind"] != "EC2NodeClass" || ref["group"] != "karpenter.k8s.aws" || name == "" || told[name] || r.objects["nodeClasses"][name] != nil {
			continue
		}
		told[name] = true
		p.from.note(diag.Warning, CodeMissing, p.path, fmt.Sprintf("the EC2NodeClass %s, which the pool refers to, isn't among what is imported", name),
			"import it as well, or declare it under nodeClasses in the cluster's package")
	}
}

// provisioner converts a Provisioner of karpenter.sh/v1alpha5.
func (c *converter) provisioner(v map[string]any) map[string]any {
	c.moved([]any{"kind"}, "a Provisioner is a NodePool in v1")
	v = c.object(v)
	spec := sub(v, "spec")
	path := []any{"spec"}
	_, emptied := spec["ttlSecondsAfterEmpty"]
	consolidation, _ := spec["consolidation"].(map[string]any)
	move := c.takeKubelet(spec)
	c.poolSpec(spec, path)
	c.classRef(spec, at(path), "v1alpha5")
	move()
	if !emptied && consolidation["enabled"] != true {
		// Nothing was ever taken away for being empty.
		d := sub(spec, "disruption")
		d["consolidationPolicy"], d["consolidateAfter"] = "WhenEmpty", "Never"
		c.note(diag.Warning, CodeDefault, path, "a Provisioner with neither consolidation nor ttlSecondsAfterEmpty keeps empty nodes; v1 consolidates by default, so consolidateAfter: Never is written", "remove it to let Coppice take unneeded nodes away")
	}
	inner := sub(spec, "template", "spec")
	if _, ok := inner["expireAfter"]; !ok {
		inner["expireAfter"] = "Never"
		c.note(diag.Warning, CodeDefault, path, "a Provisioner without ttlSecondsUntilExpired keeps nodes for ever; the default of v1 is 720h, so expireAfter: Never is written", "remove it, so that nodes get new images")
	}
	if sub(spec, "disruption")["budgets"] == nil {
		c.note(diag.Info, CodeDefault, path, "a Provisioner has no budgets; in v1, no more than 10% of a pool's nodes are disrupted at a time unless disruption.budgets says otherwise", "")
	}
	if len(sub(spec, "disruption")) == 0 {
		delete(spec, "disruption")
	}
	require := func(message, help, key, operator string, values ...any) {
		inner["requirements"] = append(list(inner["requirements"]), map[string]any{"key": key, "operator": operator, "values": values})
		c.note(diag.Warning, CodeDefault, at(path, "requirements"), message, help)
	}
	// The defaults of the AWS provider's webhook, until v0.32.
	for _, d := range []struct{ key, value string }{
		{"karpenter.sh/capacity-type", "on-demand"}, {"kubernetes.io/arch", "amd64"}, {"kubernetes.io/os", "linux"},
	} {
		if !requires(inner, d.key) {
			require(fmt.Sprintf("a Provisioner takes %s unless it says otherwise; v1 has no such default, so the requirement is written", d.value), "remove it to allow others", d.key, "In", d.value)
		}
	}
	if !requires(inner, "node.kubernetes.io/instance-type", "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-category", "karpenter.k8s.aws/instance-generation") {
		const message = "a Provisioner that names no instance types takes the categories c, m and r from the third generation on; v1 has no such default, so "
		require(message+"the categories are required", "remove it to allow others", "karpenter.k8s.aws/instance-category", "In", "c", "m", "r")
		require(message+"the generation is required", "remove it to allow older ones", "karpenter.k8s.aws/instance-generation", "Gt", "2")
	}
	return v
}

// requires reports whether a template's requirements are about one of the labels.
func requires(template map[string]any, labels ...string) bool {
	return slices.ContainsFunc(list(template["requirements"]), func(r any) bool {
		m, _ := r.(map[string]any)
		key, _ := m["key"].(string)
		return slices.Contains(labels, key)
	})
}

// provisionerFields moves the fields that a Provisioner had at the top of its spec.
func (c *converter) provisionerFields(spec map[string]any, path []any) {
	c.names(spec, path)
	c.requirements(spec, "requirements", at(path, "requirements"))
	for _, f := range []struct {
		name string
		to   []string
	}{
		{"labels", []string{"template", "metadata"}}, {"annotations", []string{"template", "metadata"}},
		{"taints", []string{"template", "spec"}}, {"startupTaints", []string{"template", "spec"}},
		{"requirements", []string{"template", "spec"}},
	} {
		if x, ok := spec[f.name]; ok {
			delete(spec, f.name)
			if c.set(sub(spec, f.to...), f.name, x, at(path, f.name)) {
				c.moved(at(path, f.name), fmt.Sprintf("%s is %s.%s in v1", f.name, strings.Join(f.to, "."), f.name))
			}
		}
	}
	if ref, ok := spec["providerRef"].(map[string]any); ok {
		delete(spec, "providerRef")
		now := sub(spec, "template", "spec", "nodeClassRef")
		if len(now) == 0 {
			now["group"], now["kind"] = "karpenter.k8s.aws", "EC2NodeClass"
		}
		if c.set(now, "name", ref["name"], at(path, "providerRef", "name")) {
			c.moved(at(path, "providerRef"), "providerRef is template.spec.nodeClassRef in v1")
		}
	}
	if _, ok := spec["provider"]; ok {
		delete(spec, "provider")
		c.lossy(at(path, "provider"), "spec.provider is not in v1", "write what it holds as an EC2NodeClass")
	}
	if _, ok := spec["kubeletConfiguration"]; ok {
		delete(spec, "kubeletConfiguration")
		c.lossy(at(path, "kubeletConfiguration"), "kubelet settings belong to the EC2NodeClass in v1", "move them to spec.kubelet of the class")
	}
	if limits, ok := spec["limits"].(map[string]any); ok {
		if resources, ok := limits["resources"].(map[string]any); ok {
			delete(limits, "resources")
			here := at(path, "limits", "resources")
			c.moved(here, "limits.resources is limits in v1")
			for _, name := range slices.Sorted(maps.Keys(resources)) {
				c.set(limits, name, resources[name], at(here, name))
			}
		}
	}
	c.ttl(spec, path)
}

// ttl converts a Provisioner's times and its consolidation.
func (c *converter) ttl(spec map[string]any, path []any) {
	seconds := func(name string) (string, bool) {
		x, ok := spec[name]
		delete(spec, name)
		n, isInt := x.(int64)
		if ok && !isInt {
			c.note(diag.Error, CodeLossy, at(path, name), name+" must be a number of seconds", "correct it")
			return "", false
		}
		return durationText(time.Duration(n) * time.Second), ok
	}
	if after, ok := seconds("ttlSecondsUntilExpired"); ok {
		c.expireAfter(spec, after, at(path, "ttlSecondsUntilExpired"), fmt.Sprintf("ttlSecondsUntilExpired is template.spec.expireAfter in v1: %s", after))
	}
	after, emptied := seconds("ttlSecondsAfterEmpty")
	if emptied {
		d := sub(spec, "disruption")
		if d["consolidationPolicy"] != nil && d["consolidationPolicy"] != "WhenEmpty" || d["consolidateAfter"] != nil && d["consolidateAfter"] != after {
			c.lossy(at(path, "ttlSecondsAfterEmpty"), "ttlSecondsAfterEmpty contradicts spec.disruption", "keep spec.disruption")
		} else {
			d["consolidationPolicy"], d["consolidateAfter"] = "WhenEmpty", after
			c.moved(at(path, "ttlSecondsAfterEmpty"), fmt.Sprintf("ttlSecondsAfterEmpty is disruption.consolidationPolicy: WhenEmpty with consolidateAfter: %s in v1", after))
		}
	}
	consolidation, ok := spec["consolidation"].(map[string]any)
	if !ok {
		return
	}
	delete(spec, "consolidation")
	here := at(path, "consolidation")
	if enabled, ok := consolidation["enabled"]; ok && enabled != true && enabled != false {
		c.lossy(at(here, "enabled"), "consolidation.enabled must be true or false", "correct it")
		return
	}
	if consolidation["enabled"] != true {
		c.moved(here, "consolidation that isn't enabled is left out")
		return
	}
	d := sub(spec, "disruption")
	switch d["consolidationPolicy"] {
	case nil:
		d["consolidationPolicy"] = "WhenEmptyOrUnderutilized"
		c.moved(here, "consolidation.enabled is disruption.consolidationPolicy: WhenEmptyOrUnderutilized in v1")
	case "WhenEmptyOrUnderutilized":
		c.moved(here, "consolidation.enabled says the same as disruption.consolidationPolicy")
	default:
		c.lossy(here, fmt.Sprintf("consolidation.enabled contradicts disruption.consolidationPolicy: %v, and v1 has the latter alone", d["consolidationPolicy"]), "remove consolidation, or write consolidationPolicy: WhenEmptyOrUnderutilized")
	}
}

// requirementsThere gives a pool the list of requirements that v1 wants, if empty.
func (c *converter) requirementsThere(spec map[string]any) {
	inner := sub(spec, "template", "spec")
	if inner["requirements"] == nil {
		inner["requirements"] = []any{}
		c.note(diag.Info, CodeDefault, []any{"spec", "template"}, "template.spec.requirements is required in v1: an empty list is filled in", "")
	}
}

// durationText writes a duration in the form that the API takes.
func durationText(d time.Duration) string {
	switch {
	case d%time.Hour == 0 && d > 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0 && d > 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
