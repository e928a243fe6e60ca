package ec2

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift/types"

	"github.com/coppice-dev/coppice/schemas/aws"
)

// shiftsEvery is how often zonal shifts are asked for: Karpenter's value.
const shiftsEvery = 30 * time.Second

// loadShifts asks which zones, by their IDs, the cluster's traffic is moved away from,
// by somebody or by AWS itself. A cluster that isn't managed has none.
func (p *Provider) loadShifts(ctx context.Context) (map[string]bool, error) {
	info, err := p.describeCluster(ctx)
	if err != nil {
		return nil, err
	}
	out, err := p.shift.GetManagedResource(ctx, &arczonalshift.GetManagedResourceInput{ResourceIdentifier: &info.arn})
	var unmanaged *types.ResourceNotFoundException
	if errors.As(err, &unmanaged) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("read zonal shifts of cluster "+p.cfg.ClusterName, err)
	}
	away := map[string]bool{}
	for zone, weight := range out.AppliedWeights {
		if weight == 0 {
			away[zone] = true
		}
	}
	return away, nil
}

// Shifted returns the IDs of the zones that the cluster's traffic is moved away from,
// none unless zonal shifts are to be followed. What was last known stands while they
// can't be asked for.
func (p *Provider) Shifted(ctx context.Context) (map[string]bool, error) {
	if !p.cfg.ZonalShift {
		return nil, nil
	}
	away, _, err := p.shifts.get(ctx)
	return away, err
}

// shifted is Shifted for who has to go on: when nobody can say, or not soon, there are
// none. That ARC can't be reached must not keep nodes from being launched.
func (p *Provider) shifted(ctx context.Context) map[string]bool {
	if !p.cfg.ZonalShift {
		return nil
	}
	away, _, _ := p.shifts.soon(ctx)
	return away
}

// awayFrom are the names of those zones of the class whose ID is among away.
func awayFrom(subnets []aws.Subnet, away map[string]bool) map[string]bool {
	var out map[string]bool
	for _, s := range subnets {
		if away[s.ZoneID] {
			if out == nil {
				out = map[string]bool{}
			}
			out[s.Zone] = true
		}
	}
	return out
}
