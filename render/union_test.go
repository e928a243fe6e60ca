package render

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/diag"
)

// slots is an object in text that is both CUE and YAML, in lines that have names.
// A mistake is another text for one of the lines.
type slots [][2]string

func poolSlots() slots {
	return slots{
		{"", `{"apiVersion": "karpenter.sh/v1", "kind": "NodePool",`},
		{"", `"metadata": {"name": "NAME",`},
		{"metadata", `"labels": {"team": "web"}},`},
		{"top", ``},
		{"coppice", ``},
		{"", `"spec": {`},
		{"spec", ``},
		{"weight", `"weight": 5,`},
		{"limits", `"limits": {"cpu": "100"},`},
		{"", `"disruption": {`},
		{"policy", `"consolidationPolicy": "WhenEmpty",`},
		{"after", `"consolidateAfter": "30s",`},
		{"", `"budgets": [`},
		{"budget", `{"nodes": "10%"},`},
		{"window", `{"nodes": "1", "schedule": "0 9 * * *", "duration": "8h"},`},
		{"", `]}, "template": {"metadata": {`},
		{"labels", `"labels": {"example.com/team": "web"},`},
		{"annotations", `"annotations": {"note": "b"}},`},
		{"", `"spec": {`},
		{"inner", ``},
		{"expire", `"expireAfter": "720h",`},
		{"class", `"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},`},
		{"taint", `"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],`},
		{"", `"requirements": [`},
		{"arch", `{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},`},
		{"type", `{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]},`},
		{"zone", `{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2a"]},`},
		{"cpu", `{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["3"]},`},
		{"team", `{"key": "example.com/team", "operator": "Exists"},`},
		{"", `]}}}}`},
	}
}

func classSlots() slots {
	return slots{
		{"", `{"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",`},
		{"", `"metadata": {"name": "NAME"},`},
		{"top", ``},
		{"", `"spec": {`},
		{"spec", ``},
		{"role", `"role": "nodes",`},
		{"ami", `"amiSelectorTerms": [{"alias": "al2023@latest"}],`},
		{"subnet", `"subnetSelectorTerms": [{"tags": {"a": "b"}}],`},
		{"group", `"securityGroupSelectorTerms": [{"id": "sg-1"}],`},
		{"tags", `"tags": {"a": "b"},`},
		{"disk", `"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi"}}],`},
		{"options", `"metadataOptions": {"httpTokens": "required"},`},
		{"", `"kubelet": {`},
		{"kubelet", `"maxPods": 110,`},
		{"eviction", `"evictionHard": {"memory.available": "5%"},`},
		{"images", `"imageGCHighThresholdPercent": 60, "imageGCLowThresholdPercent": 50,`},
		{"", `}}}`},
	}
}

// mistake puts a text in place of the line of that name.
type mistake struct{ slot, text string }

func poolMistakes() []mistake {
	return []mistake{
		{"metadata", `"labels": {"bad key": "web"}},`},
		{"metadata", `"lables": {"team": "web"}},`},
		{"metadata", `"labels": {"team": 5}},`},
		{"top", `"sepc": {},`},
		{"coppice", `"coppice": 1,`},
		{"coppice", `"coppice": {"minSavings": "500%"},`},
		{"coppice", `"coppice": {"minSaving": "5%"},`},
		{"coppice", `"coppice": {"pause": {"until": "2026-11-31", "author": "a", "reason": "b"}},`},
		{"coppice", `"coppice": {"budgets": [{"nodes": "1", "schedule": "5-1 0 * * *", "duration": "1h"}]},`},
		{"coppice", `"coppice": {"budgets": [{"nodes": "1", "timeZone": "Europe/Berlim"}]},`},
		{"spec", `"wieght": 5,`},
		{"spec", `"unheardOf": {"a": [1]},`},
		{"weight", `"weight": 101,`},
		{"weight", `"weight": "5",`},
		{"weight", `"weight": {"cpu": 1},`},
		{"weight", `"weihgt": 5,`},
		{"limits", `"limits": {"cpu": "lots"},`},
		{"limits", `"limits": {"cpu": -1},`},
		{"limits", `"limits": 5,`},
		{"policy", `"consolidationPolicy": "WhenEmtpy",`},
		{"policy", `"consolidationPolicy": "always",`},
		{"after", `"consolidateAfter": "30 s",`},
		{"after", `"consolidateAfter": "999999999h",`},
		{"budget", `{"nodes": "101%"},`},
		{"budget", `{"nodes": "10%", "reasons": ["empty"]},`},
		{"budget", `{"nodes": "10%", "reasons": ["Expired"]},`},
		{"budget", `{"node": "10%"},`},
		{"window", `{"nodes": "1", "schedule": "0 9 * * *"},`},
		{"window", `{"nodes": "1", "duration": "8h"},`},
		{"window", `{"nodes": "1", "schedule": "5-1 0 * * *", "duration": "8h"},`},
		{"window", `{"nodes": "1", "schedule": "0 0 31 2 *", "duration": "8h"},`},
		{"window", `{"nodes": "1", "schedule": "@dayly", "duration": "8h"},`},
		{"labels", `"labels": {"karpenter.sh/foo": "x"},`},
		{"labels", `"labels": {"karpenter.k8s.aws/foo": "x"},`},
		{"labels", `"labels": {"karpenter.sh/nodepool": "x"},`},
		{"labels", `"labels": {"kubernetes.io/hostname": "x"},`},
		{"labels", `"labels": {"a": "not good!"},`},
		{"annotations", `"annotations": {"bad key": "b"}},`},
		{"annotations", `"annotations": {"note": true}},`},
		{"inner", `"expireAftr": "1h",`},
		{"inner", `"weight": 5,`},
		{"expire", `"expireAfter": "30d",`},
		{"class", `"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "defualt"},`},
		{"class", `"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": ""},`},
		{"class", `"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass"},`},
		{"class", `"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "nmae": "default"},`},
		{"taint", `"taints": [{"key": "a", "value": "b c", "effect": "NoSchedule"}],`},
		{"taint", `"taints": [{"key": "a", "effect": "Noschedule"}],`},
		{"taint", `"taints": [{"key": "a"}],`},
		{"arch", `{"key": "kubernetes.io/arch", "operator": "In", "values": []},`},
		{"arch", `{"key": "kubernetes.io/arch", "operator": "In"},`},
		{"arch", `{"key": "kubernetes.io/arch", "operator": "NotIn", "values": []},`},
		{"arch", `{"key": "kubernetes.io/arch", "operator": "in", "values": ["amd64"]},`},
		{"arch", `{"key": "kubernetes.io/arch", "operator": "Foo", "values": ["amd64"]},`},
		{"arch", `{"key": "kubernetes.io/arch", "values": ["amd64"]},`},
		{"arch", `{"key": "kubernetes.io/arch", "operator": "In", "values": ["x86_64"]},`},
		{"arch", `{"key": "kubernetes.io/arch", "operator": "In", "value": ["amd64"]},`},
		{"arch", `{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"], "minValues": 2},`},
		{"arch", `{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", 5]},`},
		{"arch", `{"key": "kubernetes.io/architecture", "operator": "In", "values": ["amd64"]},`},
		{"type", `{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.lrage"]},`},
		{"type", `{"key": "beta.kubernetes.io/instance-type", "operator": "In", "values": ["m5.huge"]},`},
		{"zone", `{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2z"]},`},
		{"zone", `{"key": "topology.kubernetes.io/zones", "operator": "In", "values": ["us-west-2a"]},`},
		{"cpu", `{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["four"]},`},
		{"cpu", `{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["3", "4"]},`},
		{"team", `{"key": "karpenter.k8s.aws/instance-cateogry", "operator": "Exists"},`},
		{"team", `{"key": "kubernetes.io/hostname", "operator": "Exists"},`},
		{"team", `{"key": "karpenter.sh/nodepool", "operator": "Exists"},`},
		{"team", `{"key": "bad key", "operator": "Exists"},`},
		{"team", `{"key": "example.com/team", "operator": "Exists", "values": ["a"]},`},
		{"team", `"example.com/team",`},
	}
}

func classMistakes() []mistake {
	return []mistake{
		{"top", `"coppice": {},`},
		{"role", `"role": "nodes", "instanceProfile": "x",`},
		{"spec", `"detailedMonitorng": true,`},
		{"spec", `"placementGroupSelector": {},`},
		{"role", `"rolle": "nodes",`},
		{"role", `"role": "",`},
		{"role", `"role": 5,`},
		{"role", ``},
		{"ami", `"amiSelectorTerms": [],`},
		{"ami", `"amiSelectorTerms": [{"alias": "al2024@latest"}],`},
		{"ami", `"amiSelectorTerms": [{"alais": "al2023@latest"}],`},
		{"ami", `"amiSelectorTerms": [{"alias": "al2023@latest", "id": "ami-1"}],`},
		{"ami", `"amiSelectorTerms": [{"id": "ami-1"}],`},
		{"ami", ``},
		{"subnet", `"subnetSelectorTerms": [],`},
		{"subnet", `"subnetSelectorTerms": [{}],`},
		{"subnet", `"subnetSelectorTerms": [{"id": "sn-1"}],`},
		{"subnet", `"subnetSelectorTerms": [{"id": "subnet-1", "tags": {"a": "b"}}],`},
		{"subnet", `"subnetSelectorTerms": [{"tags": {"a": ""}}],`},
		{"group", `"securityGroupSelectorTerms": [],`},
		{"group", `"securityGroupSelectorTerms": [{"id": "sg-1", "name": "x"}],`},
		{"group", `"securityGroupSelectorTerms": [{"name": "x", "tags": {"a": "b"}}],`},
		{"tags", `"tags": {"kubernetes.io/cluster/foo": "owned"},`},
		{"tags", `"tags": {"karpenter.sh/nodepool": "x"},`},
		{"tags", `"tags": {"aws:x": "y"},`},
		{"tags", `"tags": {"a": 5},`},
		{"disk", `"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "Gi"}}],`},
		{"disk", `"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {}}],`},
		{"disk", `"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi", "volumeType": "gp4"}}],`},
		{"options", `"metadataOptions": {"httpTokens": "requred"},`},
		{"options", `"metadataOptions": {"httpTokns": "required"},`},
		{"kubelet", `"maxPods": -1,`},
		{"kubelet", `"registerWithTaints": [],`},
		{"kubelet", `"kubeReserved": {"cpus": "100m"},`},
		{"kubelet", `"evictionSoft": {"memory.available": "5%"},`},
		{"eviction", `"evictionHard": {"memory.availble": "5%"},`},
		{"images", `"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 60,`},
		{"images", `"imageGCHighThresholdPercent": 101, "imageGCLowThresholdPercent": 60,`},
	}
}

// said is what a finding says, with its line counted from the object's first.
type said struct {
	Code, Path, Message, Help string
	Line, Col                 int
}

// TestMistakesAddUp is the principle of mend.go: one mistake is one finding, and any
// two mistakes of one object are the findings of both. Of the pairs, a seventh is
// tried.
func TestMistakesAddUp(t *testing.T) {
	type variant struct {
		kind, name string
		mistakes   []mistake
	}
	all := []variant{{"EC2NodeClass", "default", nil}, {"NodePool", "good", nil}}
	add := func(kind string, list []mistake) {
		for i, a := range list {
			all = append(all, variant{kind, fmt.Sprintf("%s-%d", strings.ToLower(kind[:1]), i), []mistake{a}})
			for j, b := range list[:i] {
				if a.slot != b.slot && (i+j)%7 == 0 {
					all = append(all, variant{kind, fmt.Sprintf("%s-%d-%d", strings.ToLower(kind[:1]), j, i), []mistake{b, a}})
				}
			}
		}
	}
	add("NodePool", poolMistakes())
	add("EC2NodeClass", classMistakes())

	texts, line := map[string]*strings.Builder{"CUE": {}, "YAML": {}}, map[string]int{}
	texts["CUE"].WriteString("package cluster\n")
	texts["YAML"].WriteString("# Documents.\n")
	at := 1
	for _, v := range all {
		field, object := "nodePools", poolSlots()
		if v.kind == "EC2NodeClass" {
			field, object = "nodeClasses", classSlots()
		}
		fmt.Fprintf(texts["CUE"], "%s: %q:\n", field, v.name)
		texts["YAML"].WriteString("---\n")
		line[v.kind+"/"+v.name] = at
		for _, s := range object {
			for _, m := range v.mistakes {
				if m.slot == s[0] {
					s[1] = m.text
				}
			}
			for _, b := range texts {
				b.WriteString(strings.ReplaceAll(s[1], "NAME", v.name) + "\n")
			}
		}
		at += len(object) + 1
	}
	judge := newJudge(t)
	for name, check := range map[string]func(string) diag.List{
		"CUE": func(text string) diag.List {
			_, findings := Check(fstest.MapFS{"in.cue": {Data: []byte(text)}}, "", judge)
			return findings
		},
		"YAML": func(text string) diag.List {
			bundle, findings := Manifest("in.yaml", []byte(text))
			return Merge(findings, Validate(bundle, judge))
		},
	} {
		of := map[string][]said{}
		for _, f := range check(texts[name].String()) {
			if f.Severity != diag.Info {
				of[f.Object] = append(of[f.Object], said{f.Code, f.Path, f.Message, f.Help, f.Pos.Line - line[f.Object], f.Pos.Col})
			}
		}
		for _, v := range all {
			got := of[v.kind+"/"+v.name]
			if len(v.mistakes) < 2 {
				if len(got) != len(v.mistakes) {
					t.Errorf("%s: %v gives %d findings:\n%+v", name, v.mistakes, len(got), got)
				}
				continue
			}
			var want []said
			parts := strings.Split(v.name, "-")
			for _, i := range parts[1:] {
				want = append(want, of[v.kind+"/"+parts[0]+"-"+i]...)
			}
			order := func(a, b said) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
			slices.SortFunc(want, order)
			slices.SortFunc(got, order)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: %v (-each alone +together):\n%s", name, v.mistakes, d)
			}
		}
	}
}
