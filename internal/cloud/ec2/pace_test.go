package ec2

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
)

// EC2 lets 50 fleets a region through at once and 5 a second after that. Launches
// beyond it come through at that rate, without a storm of refused calls, and other
// operations don't wait for them.
func TestThrottledLaunchesKeepPace(t *testing.T) {
	if testing.Short() {
		t.Skip("follows real time, as token buckets do")
	}
	w := newWorld(t, func(c *ec2sim.Config) { c.Unthrottled, c.Clock = false, nil })
	p := w.provider(func(c *Config) { c.Clock = nil; c.DisableDryRun = true })
	class, err := p.ResolveClass(t.Context(), newClass())
	if err != nil {
		t.Fatal(err)
	}
	full := newClass()
	full.Status = class
	// All but a few of the tokens are gone before the test begins.
	for range 48 {
		_, err := p.ec2.CreateFleet(t.Context(), &ec2.CreateFleetInput{
			TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{TotalTargetCapacity: new(int32(1))},
			LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
				LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateName: new("none"), Version: new("$Latest")},
			}},
			Type: ec2types.FleetTypeInstant,
		})
		if code(err) != codeTemplateNotFound {
			t.Fatal(err)
		}
	}
	const launches = 16
	var requests []cloud.LaunchRequest
	for n := range launches {
		claim := w.claim(fmt.Sprint(n))
		claim.CreationTimestamp = metav1.Now()
		requests = append(requests, w.request(p, full, claim, []string{"m5.large", "c5.large"}, []string{"on-demand"}))
	}
	w.sim.ResetCounters()
	began := time.Now()
	var wg sync.WaitGroup
	var describes time.Duration
	for _, req := range requests {
		wg.Go(func() {
			for try := 0; ; try++ {
				_, err := p.Launch(t.Context(), req)
				if err == nil {
					return
				}
				if try == 3 || code(err) != "RequestLimitExceeded" {
					t.Errorf("launch %s: %v", req.Claim.Name, err)
					return
				}
			}
		})
	}
	wg.Go(func() {
		time.Sleep(500 * time.Millisecond)
		at := time.Now()
		if _, err := p.Instances(t.Context()); err != nil {
			t.Error(err)
		}
		describes = time.Since(at)
	})
	wg.Wait()
	took := time.Since(began)
	calls, refused := 0, 0
	for _, c := range w.sim.Counters() {
		if c.Action == "ec2:CreateFleet" {
			calls, refused = calls+c.Calls, c.Errors["RequestLimitExceeded"]
		}
	}
	t.Logf("%d launches with some tokens left: %s, %d calls of which %d were throttled; a describe meanwhile took %s", launches, took, calls, refused, describes)
	if len(w.live()) != launches {
		t.Errorf("%d instances run, want %d", len(w.live()), launches)
	}
	// Without a bucket each of the 14 or so would come three times and more, all at once.
	if calls > 3*launches {
		t.Errorf("%d launches took %d calls", launches, calls)
	}
}
