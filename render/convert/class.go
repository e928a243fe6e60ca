package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/diag"
)

// discoveryTag is the tag by which Karpenter's guides find subnets and security groups.
const discoveryTag = "karpenter.sh/discovery"

// nodeClass converts an EC2NodeClass of karpenter.k8s.aws/v1 or v1beta1.
func (c *converter) nodeClass(v map[string]any, version string) map[string]any {
	if version != "v1" {
		c.moved([]any{"apiVersion"}, fmt.Sprintf("karpenter.k8s.aws/%s is written as karpenter.k8s.aws/v1", version))
	}
	v = c.object(v)
	c.classSpec(sub(v, "spec"), []any{"spec"})
	c.complete(sub(v, "spec"), version)
	return v
}

// nodeTemplate converts an AWSNodeTemplate of karpenter.k8s.aws/v1alpha1.
func (c *converter) nodeTemplate(v map[string]any) map[string]any {
	c.moved([]any{"kind"}, "an AWSNodeTemplate is an EC2NodeClass in v1")
	v = c.object(v)
	c.classSpec(sub(v, "spec"), []any{"spec"})
	c.complete(sub(v, "spec"), "v1alpha1")
	return v
}

// classSpec converts what stands in the spec of a class, or in a part of it.
func (c *converter) classSpec(spec map[string]any, path []any) {
	for _, s := range []struct{ old, now string }{
		{"subnetSelector", "subnetSelectorTerms"}, {"securityGroupSelector", "securityGroupSelectorTerms"}, {"amiSelector", "amiSelectorTerms"},
	} {
		selector, ok := spec[s.old].(map[string]any)
		if !ok {
			continue
		}
		delete(spec, s.old)
		here := at(path, s.old)
		if c.set(spec, s.now, c.terms(selector, s.old, here), here) {
			c.moved(here, fmt.Sprintf("%s is a list of %s in v1", s.old, s.now))
		}
	}
	if kubelet, ok := spec["kubelet"].(map[string]any); ok {
		c.kubeletFields(kubelet, at(path, "kubelet"))
	}
	if _, ok := spec["launchTemplate"]; ok {
		delete(spec, "launchTemplate")
		c.lossy(at(path, "launchTemplate"), "v1 has no launch templates of your own", "write what the template holds as fields of the class")
	}
	if _, ok := spec["launchTemplateName"]; ok {
		delete(spec, "launchTemplateName")
		c.lossy(at(path, "launchTemplateName"), "v1 has no launch templates of your own", "write what the template holds as fields of the class")
	}
	if family, ok := spec["amiFamily"].(string); ok && !slices.Contains([]string{"AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025"}, family) {
		delete(spec, "amiFamily")
		c.lossy(at(path, "amiFamily"), fmt.Sprintf("v1 has no family %s", family), "use Custom or AL2023 with amiSelectorTerms that select the images")
	}
}

// maxTerms is how many terms a class takes for each of its selectors (maxItems in the
// EC2NodeClass CRD).
const maxTerms = 30

// terms writes a selector of v1alpha1 as terms. Names that select by something else than
// tags had the prefix aws. All names had to match, and each of the values of a list with
// commas would do: each combination of values is a term.
func (c *converter) terms(selector map[string]any, field string, path []any) []any {
	images := field == "amiSelector"
	var ids []any
	out := []any{map[string]any{}}
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if _, ok := selector[key].(string); !ok {
			c.lossy(at(path, key), "a selector's values must be strings", "quote it")
			continue
		}
		values := strings.Split(fmt.Sprint(selector[key]), ",")
		if key == "aws-ids" || key == "aws::ids" || key == "aws:ec2:image:id" {
			for _, id := range values {
				ids = append(ids, map[string]any{"id": strings.TrimSpace(id)})
			}
			continue
		}
		if key == "aws::name" && field == "subnetSelector" {
			c.lossy(at(path, key), "v1 doesn't select subnets by aws::name", "select by the tag Name")
			continue
		}
		if len(out)*len(values) > maxTerms {
			c.lossy(at(path, key), fmt.Sprintf("the combinations of values are more than the %d terms that v1 takes", maxTerms), "select by fewer values")
			continue
		}
		var next []any
		for _, term := range out {
			for _, value := range values {
				term, value := copyOf(term).(map[string]any), strings.TrimSpace(value)
				switch {
				case key == "aws::name":
					term["name"] = value
				case key == "aws::owners" && images:
					term["owner"] = value
				default:
					sub(term, "tags")[key] = value
				}
				next = append(next, term)
			}
		}
		out = next
	}
	if first := out[0].(map[string]any); first["name"] != nil && first["tags"] != nil && !images {
		c.lossy(path, "the selector wants both a name and tags, and a term of v1 has either; the tags are kept", "select by one of them")
		for _, term := range out {
			delete(term.(map[string]any), "name")
		}
		out = distinct(out)
	}
	if len(ids) > maxTerms {
		c.lossy(path, fmt.Sprintf("the selector has %d IDs, more than the %d terms that v1 takes; the first ones are kept", len(ids), maxTerms), "select by tags")
		ids = ids[:maxTerms]
	}
	if len(out[0].(map[string]any)) > 0 {
		if ids == nil {
			return out
		}
		c.lossy(path, "the selector wants both an ID and something else, and a term of v1 has either; the IDs are kept", "select by one of them")
	}
	return ids
}

// distinct leaves out terms that are there already.
func distinct(terms []any) []any {
	seen := map[string]bool{}
	return slices.DeleteFunc(terms, func(t any) bool {
		form := formOf(t)
		defer func() { seen[form] = true }()
		return seen[form]
	})
}

// complete fills in what v1 wants to know about a class. What a default was is written
// out; what there is no default for has to be said.
func (c *converter) complete(spec map[string]any, version string) {
	path := c.here()
	c.image(spec, version)
	if spec["role"] == nil && spec["instanceProfile"] == nil {
		if c.options.Role != "" {
			spec["role"] = c.options.Role
			c.note(diag.Info, CodeDefault, path, fmt.Sprintf("the role %s is filled in", c.options.Role), "")
		} else {
			c.note(diag.Error, CodeMissing, path, "the class has neither role nor instanceProfile, and v1 needs one", "give the nodes' IAM role with --role NAME")
		}
	}
	for _, f := range []string{"subnetSelectorTerms", "securityGroupSelectorTerms"} {
		if len(list(spec[f])) > 0 {
			continue
		}
		if c.options.Discovery != "" {
			spec[f] = []any{map[string]any{"tags": map[string]any{discoveryTag: c.options.Discovery}}}
			c.note(diag.Info, CodeDefault, path, fmt.Sprintf("%s by the tag %s: %s is filled in", f, discoveryTag, c.options.Discovery), "")
		} else {
			c.note(diag.Error, CodeMissing, path, fmt.Sprintf("the class has no %s, and v1 needs some", f), fmt.Sprintf("give the value of the tag %s with --discovery NAME", discoveryTag))
		}
	}
	if version == "v1" {
		return
	}
	// The default was 2 until v1.
	m, ok := spec["metadataOptions"].(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	if m["httpPutResponseHopLimit"] == nil {
		m["httpPutResponseHopLimit"] = int64(2)
		spec["metadataOptions"] = m
		c.note(diag.Warning, CodeDefault, at(path, "metadataOptions"), "the default of httpPutResponseHopLimit was 2 and is 1 in v1, so 2 is written", "remove it unless pods read the node's metadata")
	}
}

// image gives a class the terms that select its image.
func (c *converter) image(spec map[string]any, version string) {
	path := c.here()
	if len(list(spec["amiSelectorTerms"])) > 0 {
		if spec["amiFamily"] == nil && version != "v1" && !hasAlias(spec) {
			spec["amiFamily"] = "AL2"
			c.note(diag.Warning, CodeDefault, path, "the default of amiFamily was AL2; v1 has none, so it is written", "")
		}
		return
	}
	family, _ := spec["amiFamily"].(string)
	where := at(path, "amiFamily")
	alias := c.options.AMIAlias
	switch {
	case alias != "":
	case family == "Custom":
		c.note(diag.Error, CodeMissing, where, "amiFamily: Custom without amiSelectorTerms selects no image", "add the terms, or give --ami-alias")
		return
	case family != "":
		alias = strings.ToLower(family) + "@latest"
	case version == "v1":
		alias = "al2023@latest"
	case version == groupVersion:
		c.note(diag.Error, CodeMissing, c.here(), "the group doesn't say which image its nodes have", "give one with --ami-alias, as in al2023@latest")
		return
	default:
		alias = "al2@latest"
	}
	spec["amiSelectorTerms"] = []any{map[string]any{"alias": alias}}
	message := fmt.Sprintf("v1 selects images by amiSelectorTerms: %s is filled in", alias)
	if c.options.AMIAlias == "" && family == "" && version != "v1" {
		message = fmt.Sprintf("the default image was Amazon Linux 2; v1 has no default, so %s is filled in", alias)
	}
	c.note(diag.Warning, CodeDefault, where, message, "pin the version, as in "+strings.Replace(alias, "@latest", "@v20260101", 1))
	if name, _, _ := strings.Cut(alias, "@"); family != "" && family != "Custom" && !strings.EqualFold(name, family) {
		delete(spec, "amiFamily")
		c.note(diag.Info, CodeMoved, where, "amiFamily contradicts the alias that was given and is left out", "")
	}
}

func hasAlias(spec map[string]any) bool {
	return slices.ContainsFunc(list(spec["amiSelectorTerms"]), func(t any) bool {
		m, _ := t.(map[string]any)
		return m["alias"] != nil
	})
}
