package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Target names what a pool and its class would launch today, in ten hexadecimal
// digits: what they declare, and what the class's selectors have found. An approval of
// drift names it, so that it approves nothing that comes later.
func Target(pool *karpenter.NodePool, class *aws.EC2NodeClass) string {
	in := struct {
		Pool, Class  string
		Requirements any
		Found        []string
	}{Pool: pool.Hash(), Requirements: pool.Spec.Template.Spec.Requirements}
	if class != nil {
		in.Class = class.Hash()
		for _, x := range class.Status.AMIs {
			in.Found = append(in.Found, "image "+x.ID)
		}
		for _, x := range class.Status.Subnets {
			in.Found = append(in.Found, "subnet "+x.ID)
		}
		for _, x := range class.Status.SecurityGroups {
			in.Found = append(in.Found, "group "+x.ID)
		}
		for _, x := range class.Status.CapacityReservations {
			in.Found = append(in.Found, "reservation "+x.ID)
		}
		slices.Sort(in.Found)
	}
	text, err := json.Marshal(in)
	if err != nil {
		panic(err) // strings and lists of them have a JSON form
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:10]
}
