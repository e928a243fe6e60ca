package provision

import (
	"time"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// StaticStep says what a static pool, with these machines, needs now to have its number
// of them: how many more, or which have to go. It is what the controller acts on.
func StaticStep(pool *karpenter.NodePool, nodes []cluster.Node, now time.Time) (create int, remove []cluster.Node) {
	step := nextStatic(pool, nodes, now)
	return step.Create, step.Remove
}
