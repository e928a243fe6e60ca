package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/catalogue"
	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/schemas/aws"
)

const (
	kindNodePool     = "NodePool"
	kindEC2NodeClass = "EC2NodeClass"
	kindNodeOverlay  = "NodeOverlay"
	kindNodeClaim    = "NodeClaim"
)

// references judges what an object says about things outside of it: other objects
// of the package and, for the kinds with requirements, what EC2 has. complete
// says that the objects are all that the cluster will have.
func references(objects []Object, complete bool) diag.List {
	var classes []string
	for _, o := range objects {
		if o.GVK.Kind == kindEC2NodeClass {
			classes = append(classes, o.Name)
		}
	}
	var findings diag.List
	for _, o := range objects {
		switch o.GVK.Kind {
		case kindNodePool:
			if complete {
				findings = append(findings, nodeClassRef(o, classes)...)
			}
			findings = append(findings, requirements(o, "spec", "template", "spec", "requirements")...)
		case kindNodeClaim, kindNodeOverlay:
			findings = append(findings, requirements(o, "spec", "requirements")...)
		}
	}
	return findings
}

// nodeClassRef wants the class that a pool refers to among those of the package.
// Classes of other providers are theirs to judge.
func nodeClassRef(o Object, classes []string) diag.List {
	path := []any{"spec", "template", "spec", "nodeClassRef"}
	ref, _ := lookup(o.Value, path)
	fields, _ := ref.(map[string]any)
	name, _ := fields["name"].(string)
	if fields["group"] != aws.Group || fields["kind"] != kindEC2NodeClass || name == "" || slices.Contains(classes, name) {
		return nil
	}
	help := "declare it under nodeClasses"
	switch suggestion := nearest(name, classes); {
	case suggestion != "":
		help = fmt.Sprintf("did you mean %q?", suggestion)
	case len(classes) > 0:
		slices.Sort(classes)
		help = "declare it under nodeClasses, or use one of " + strings.Join(classes, ", ")
	}
	path = append(path, "name")
	return diag.List{{
		Code: CodeReference, Message: fmt.Sprintf("the package has no EC2NodeClass %q", name), Help: help,
		Pos: o.Position(path...), Object: o.ID(), Path: PathString(path),
	}}
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
		for n, v := range values {
			value, ok := v.(string)
			if !ok {
				continue
			}
			if message, help := unknownToEC2(key, value); message != "" {
				p := child(path, n)
				findings = append(findings, diag.Finding{
					Severity: diag.Warning, Code: CodeCatalogue, Message: message, Help: help,
					Pos: o.Position(p...), Object: o.ID(), Path: PathString(p),
				})
			}
		}
		if key == "topology.kubernetes.io/zone" {
			findings = append(findings, zonesOfOneRegion(o, path, values)...)
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
	case "node.kubernetes.io/instance-type":
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
	case "topology.kubernetes.io/zone":
		// A zone's name is its region's with a letter, or more for local zones.
		c := catalogue.Get()
		if region, ok := regionOf(value); ok && !slices.Contains(c.Regions(), region) {
			if s := nearest(region, c.Regions()); s != "" {
				return fmt.Sprintf("zone %s is in no region of the catalogue", value),
					fmt.Sprintf("did you mean %s%s?", s, value[len(region):])
			}
		}
	}
	return "", ""
}

// regionOf cuts the letter off a zone's name, as in us-west-2a.
func regionOf(zone string) (string, bool) {
	if len(zone) < 2 || strings.Count(zone, "-") != 2 {
		return "", false
	}
	letter, digit := zone[len(zone)-1], zone[len(zone)-2]
	if letter < 'a' || letter > 'z' || digit < '0' || digit > '9' {
		return "", false
	}
	return zone[:len(zone)-1], true
}

// zonesOfOneRegion warns of zones of several regions: a cluster has nodes in one.
func zonesOfOneRegion(o Object, path []any, values []any) diag.List {
	first := ""
	for n, v := range values {
		zone, _ := v.(string)
		region, ok := regionOf(zone)
		switch {
		case !ok, !slices.Contains(catalogue.Get().Regions(), region):
		case first == "":
			first = region
		case region != first:
			p := child(path, n)
			return diag.List{{
				Severity: diag.Warning, Code: CodeCatalogue,
				Message: fmt.Sprintf("zones of two regions, %s and %s", first, region),
				Help:    "a cluster's nodes are in one region; zones of another never match",
				Pos:     o.Position(p...), Object: o.ID(), Path: PathString(p),
			}}
		}
	}
	return nil
}
