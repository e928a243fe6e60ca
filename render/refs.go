package render

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/catalogue"
	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	kindNodePool     = "NodePool"
	kindEC2NodeClass = "EC2NodeClass"
	kindNodeOverlay  = "NodeOverlay"
	kindNodeClaim    = "NodeClaim"
)

// origin says where objects come from, and thereby what is known of others.
type origin int

const (
	// fromPackage is for a cluster's package, which declares all that there is.
	fromPackage origin = iota
	// fromManifests is for files that may be a part of what the cluster has: whoever
	// keeps classes elsewhere gives none at all.
	fromManifests
	// fromParts is for a package that couldn't be evaluated as a whole.
	fromParts
)

// references judges what an object says about things outside of it: other objects
// and, for the kinds with requirements, what EC2 has.
func references(objects []Object, from origin) diag.List {
	var classes []string
	for _, o := range objects {
		if o.GVK.Kind == kindEC2NodeClass && o.Name != "" {
			classes = append(classes, o.Name)
		}
	}
	var findings diag.List
	for _, o := range objects {
		switch o.GVK.Kind {
		case kindNodePool:
			findings = append(findings, provider(o)...)
			findings = append(findings, taints(o)...)
			if from == fromPackage || from == fromManifests && len(classes) > 0 {
				findings = append(findings, nodeClassRef(o, classes, from)...)
			}
			findings = append(findings, requirements(o, "spec", "template", "spec", "requirements")...)
		case kindNodeClaim, kindNodeOverlay:
			findings = append(findings, requirements(o, "spec", "requirements")...)
		}
	}
	return findings
}

// nodeClassRef wants the class that a pool refers to among those that are known.
// Classes of other providers are theirs to judge.
func nodeClassRef(o Object, classes []string, from origin) diag.List {
	path := []any{"spec", "template", "spec", "nodeClassRef"}
	ref, _ := lookup(o.Value, path)
	fields, _ := ref.(map[string]any)
	name, _ := fields["name"].(string)
	if fields["group"] != aws.Group || fields["kind"] != kindEC2NodeClass || name == "" || slices.Contains(classes, name) {
		return nil
	}
	message, help := fmt.Sprintf("the package has no EC2NodeClass %q", name), "declare it under nodeClasses"
	if from == fromManifests {
		message, help = fmt.Sprintf("the manifests have no EC2NodeClass %q", name), "check the file that has it together with these"
	}
	switch suggestion := nearest(name, classes); {
	case suggestion != "":
		help = fmt.Sprintf("did you mean %q?", suggestion)
	case len(classes) > 0:
		slices.Sort(classes)
		help += ", or use one of " + strings.Join(classes, ", ")
	}
	severity := diag.Error
	if len(classes) == 0 {
		// As with manifests, they may be kept by something else; here nothing says so.
		severity, help = diag.Warning, help+"; without any class here, the pool waits for one that is kept elsewhere"
	}
	path = append(path, "name")
	return diag.List{{
		Severity: severity, Code: CodeReference, Message: message, Help: help,
		Pos: o.Position(path...), Object: o.ID(), Path: PathString(path),
	}}
}

// provider judges the kind that a pool's reference names, and says if nobody here serves
// its group. Neither can be changed once the pool is there.
func provider(o Object) diag.List {
	path := []any{"spec", "template", "spec", "nodeClassRef"}
	ref, _ := lookup(o.Value, path)
	fields, _ := ref.(map[string]any)
	group, _ := fields["group"].(string)
	kind, _ := fields["kind"].(string)
	f := diag.Finding{Code: CodeReference, Object: o.ID()}
	switch {
	case group == "" || kind == "":
		return nil
	case group == aws.Group && kind != kindEC2NodeClass:
		f.Message, f.Help = fmt.Sprintf("%s has no kind %q", group, kind), fmt.Sprintf("did you mean %q?", kindEC2NodeClass)
		path = append(path, "kind")
	case group != aws.Group:
		f.Severity, f.Message = diag.Warning, fmt.Sprintf("no provider here serves the classes of %s, so the pool launches nothing", group)
		f.Help = fmt.Sprintf("classes are of the group %s", aws.Group)
		if nearest(group, []string{aws.Group}) != "" {
			f.Help = fmt.Sprintf("did you mean %s?", aws.Group)
		}
		path = append(path, "group")
	default:
		return nil
	}
	if _, faulty := o.excused[pathKey(path)]; faulty {
		return nil
	}
	f.Pos, f.Path = o.Position(path...), PathString(path)
	return diag.List{f}
}

// taints wants each key and effect once, which the controller refuses otherwise.
func taints(o Object) diag.List {
	var findings diag.List
	seen := map[[2]string]bool{}
	for _, list := range []string{"taints", "startupTaints"} {
		path := []any{"spec", "template", "spec", list}
		raw, _ := lookup(o.Value, path)
		all, _ := raw.([]any)
		for i, item := range all {
			fields, _ := item.(map[string]any)
			key, _ := fields["key"].(string)
			effect, _ := fields["effect"].(string)
			if key == "" || effect == "" {
				continue
			}
			taint := [2]string{key, effect}
			if p := child(path, i); seen[taint] {
				findings = append(findings, diag.Finding{
					Code: CodeCondition, Message: fmt.Sprintf("the taint %s:%s is there twice among taints and startupTaints", key, effect),
					Help: "remove one", Pos: o.Position(p...), Object: o.ID(), Path: PathString(p),
				})
			}
			seen[taint] = true
		}
	}
	return findings
}

// requirements looks the values of an object's requirements up in the catalogue.
// A miss is a warning: EC2 has new types every few weeks.
func requirements(o Object, at ...any) diag.List {
	raw, _ := lookup(o.Value, at)
	list, _ := raw.([]any)
	var findings diag.List
	for i, item := range list {
		fields, _ := item.(map[string]any)
		key, _ := fields["key"].(string)
		values, _ := fields["values"].([]any)
		path := append(slices.Clone(at), i, "values")
		warn := func(code, message, help string, p []any) {
			if _, faulty := o.excused[pathKey(p)]; message != "" && !faulty {
				findings = append(findings, diag.Finding{
					Severity: diag.Warning, Code: code, Message: message, Help: help,
					Pos: o.Position(p...), Object: o.ID(), Path: PathString(p),
				})
			}
		}
		message, help := unknownLabel(key)
		warn(CodeLabel, message, help, append(slices.Clone(at), i, "key"))
		key = karpenter.NormalizedLabel(key)
		for n, v := range values {
			if value, ok := v.(string); ok {
				message, help := unknownToEC2(key, value)
				warn(CodeCatalogue, message, help, child(path, n))
			}
		}
		if key == corev1.LabelTopologyZone || key == aws.LabelEBSTopologyZone {
			message, help, n := zonesOfOneRegion(values)
			warn(CodeCatalogue, message, help, child(path, n))
		}
	}
	return findings
}

// unknownToEC2 says what is odd about a value of a label, or nothing.
func unknownToEC2(key, value string) (message, help string) {
	suggest := func(names []string) string {
		if len(names) == 0 {
			return ""
		}
		return "did you mean " + strings.Join(names, ", ") + "? "
	}
	switch key {
	case corev1.LabelInstanceTypeStable:
		c := catalogue.Get()
		if _, ok := c.Type(value); !ok {
			return fmt.Sprintf("there is no instance type %s in the catalogue of %s", value, c.Date()),
				suggest(c.Nearest(value, 3)) + "If it is newer, nothing is wrong"
		}
	case aws.LabelInstanceFamily:
		c := catalogue.Get()
		if !slices.Contains(c.Families(), value) {
			return fmt.Sprintf("there is no instance family %s in the catalogue of %s", value, c.Date()),
				suggest(c.NearestFamily(value)) + "If it is newer, nothing is wrong"
		}
	case corev1.LabelTopologyZone, aws.LabelEBSTopologyZone:
		return unknownZone(value)
	case aws.LabelTopologyZoneID:
		return unknownZoneID(value)
	case corev1.LabelTopologyRegion:
		if !slices.Contains(regions(), value) {
			return fmt.Sprintf("region %s isn't known", value), nearestHelp(value, regions(), regions())
		}
	}
	return "", ""
}

// zonesOfOneRegion warns of zones of several regions: a cluster has nodes in one.
// It returns the index of the first that is of another region.
func zonesOfOneRegion(values []any) (message, help string, n int) {
	first := ""
	for n, v := range values {
		zone, _ := v.(string)
		switch region := regionOf(zone); {
		case region == "":
		case first == "":
			first = region
		case region != first:
			return fmt.Sprintf("zones of two regions, %s and %s", first, region),
				"a cluster's nodes are in one region; zones of another never match", n
		}
	}
	return "", "", 0
}
