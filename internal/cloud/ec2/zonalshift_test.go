package ec2

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
)

func TestZonalShift(t *testing.T) {
	w := newWorld(t)
	p := w.provider(func(c *Config) { c.ZonalShift = true })
	class := w.resolve(p, newClass())
	sellable := func(p *Provider) map[string]bool {
		t.Helper()
		list, err := p.InstanceTypes(t.Context(), class)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for _, x := range list {
			for _, o := range x.Offerings {
				out[o.ZoneID] = out[o.ZoneID] || o.Available
			}
		}
		return out
	}
	zone := class.Status.Subnets[0].ZoneID
	if !sellable(p)[zone] {
		t.Fatalf("nothing is sold in %s", zone)
	}
	sdk, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	info, err := p.describeCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, life, why := arczonalshift.NewFromConfig(sdk), "1h", "test"
	if _, err := client.StartZonalShift(t.Context(), &arczonalshift.StartZonalShiftInput{
		ResourceIdentifier: &info.arn, AwayFrom: &zone, ExpiresIn: &life, Comment: &why,
	}); err != nil {
		t.Fatal(err)
	}
	if sellable(w.provider())[zone] != true {
		t.Error("zonal shifts are followed without having been asked for")
	}
	later := func(d time.Duration, away bool) {
		t.Helper()
		w.clock.Advance(d)
		// The old answer serves until the new one is there.
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			got, err := p.Shifted(context.Background())
			if err == nil && got[zone] == away {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("zone %s is away: %v (%v), want %v", zone, got[zone], err, away)
			}
		}
		for id, open := range sellable(p) {
			if open == (away && id == zone) {
				t.Errorf("zone %s is open: %v", id, open)
			}
		}
	}
	later(31*time.Second, true)
	later(time.Hour, false)
}
