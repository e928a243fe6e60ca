package render

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/coppice-dev/coppice/schemas"
)

// fleet is a tree of one cluster whose n NodePools and n/10 EC2NodeClasses are
// declared in n/20 packages that build on a shared one, as large fleets do.
func fleet(n int) fstest.MapFS {
	fsys := fstest.MapFS{}
	add := func(name, format string, args ...any) {
		fsys[name] = &fstest.MapFile{Data: fmt.Appendf(nil, format, args...)}
	}
	add("cue.mod/module.cue", "module: \"example.com/fleet@v0\"\nlanguage: version: \"v0.17.0\"\n")
	add("lib/lib.cue", `package lib

import (
	aws "coppice.dev/schemas/aws/v1"
	karpenter "coppice.dev/schemas/karpenter/v1"
)

#Pool: karpenter.#NodePool & {
	#class: string
	#team: string
	metadata: labels: "example.com/team": #team
	spec: {
		disruption: {
			consolidationPolicy: *"WhenEmptyOrUnderutilized" | string
			consolidateAfter:    *"5m" | string
			budgets: [{nodes: "10%%"}, {nodes: "0", schedule: "0 9 * * mon-fri", duration: "8h"}]
		}
		limits: {cpu: int | *100, memory: *"400Gi" | string}
		weight: int | *10
		template: {
			metadata: labels: "example.com/team": #team
			spec: {
				expireAfter: *"720h" | string
				nodeClassRef: {group: "karpenter.k8s.aws", kind: "EC2NodeClass", name: #class}
				requirements: [
					{key: "karpenter.sh/capacity-type", operator: "In", values: ["spot", "on-demand"]},
					{key: "kubernetes.io/arch", operator: "In", values: ["amd64", "arm64"]},
					{key: "karpenter.k8s.aws/instance-category", operator: "In", values: ["c", "m", "r"]},
					{key: "karpenter.k8s.aws/instance-generation", operator: "Gt", values: ["4"]},
				]
				taints: [{key: "example.com/team", value: #team, effect: "NoSchedule"}]
			}
		}
	}
}

#Class: aws.#EC2NodeClass & {
	spec: {
		amiSelectorTerms: [{alias: "al2023@latest"}]
		role: *"KarpenterNodeRole" | string
		subnetSelectorTerms: [{tags: "karpenter.sh/discovery": "prod"}]
		securityGroupSelectorTerms: [{tags: "karpenter.sh/discovery": "prod"}]
		blockDeviceMappings: [{deviceName: "/dev/xvda", ebs: {volumeSize: *"100Gi" | string, volumeType: "gp3", encrypted: true}}]
	}
}
`)
	imports, pools, classes := "", "", ""
	for p := range n / 20 {
		body := fmt.Sprintf("package team%d\n\nimport \"example.com/fleet/lib\"\n\n", p)
		for c := range 2 {
			body += fmt.Sprintf("classes: \"class-%d-%d\": lib.#Class & {spec: role: \"role-%d\"}\n", p, c, p)
		}
		for i := range 20 {
			body += fmt.Sprintf("pools: \"pool-%d-%d\": lib.#Pool & {#class: \"class-%d-%d\", #team: \"team-%d\", spec: limits: cpu: %d}\n", p, i, p, i%2, p, 100+i)
		}
		add(fmt.Sprintf("teams/team%d/pools.cue", p), "%s", body)
		imports += fmt.Sprintf("\t\"example.com/fleet/teams/team%d\"\n", p)
		pools += fmt.Sprintf("nodePools: team%d.pools\n", p)
		classes += fmt.Sprintf("nodeClasses: team%d.classes\n", p)
	}
	add("clusters/prod/cluster.cue", "package prod\n\nimport (\n%s)\n\n%s%s", imports, pools, classes)
	return fsys
}

func BenchmarkCheck(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("pools=%d", n), func(b *testing.B) {
			tree, judge := fleet(n), newJudge(b)
			b.ReportAllocs()
			for b.Loop() {
				bundle, findings := Check(tree, "prod", judge)
				if len(bundle.Objects) != n+n/10 || len(findings) > 0 {
					b.Fatalf("%d objects, findings:\n%s", len(bundle.Objects), describe(findings))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N)/float64(n), "ms/pool")
		})
	}
}

func BenchmarkNewChecker(b *testing.B) {
	for b.Loop() {
		if _, err := newChecker(schemas.CUE()); err != nil {
			b.Fatal(err)
		}
	}
}
