package render_test

import (
	"fmt"
	"testing/fstest"

	"github.com/coppice-dev/coppice/render"
)

func ExampleRender() {
	tree := fstest.MapFS{"clusters/prod/pools.cue": {Data: []byte(`package prod

nodePools: general: spec: {
	wieght: 10
	template: spec: {
		nodeClassRef: {group: "karpenter.k8s.aws", kind: "EC2NodeClass", name: "default"}
		requirements: []
	}
}
nodeClasses: default: spec: {
	role: "nodes"
	amiSelectorTerms: [{alias: "al2023@v20260101"}]
	subnetSelectorTerms: [{tags: cluster: "prod"}]
	securityGroupSelectorTerms: [{tags: cluster: "prod"}]
}
`)}}
	_, findings := render.Render(tree, "prod")
	for _, f := range findings {
		fmt.Printf("%s: %s: %s\n", f.Pos, f.Message, f.Help)
	}
	// Output: clusters/prod/pools.cue:4:2: spec has no field wieght: did you mean weight?
}
