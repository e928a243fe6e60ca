package ec2

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
)

func TestTroubled(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	var ids []string
	for _, name := range []string{"one", "two", "three"} {
		ids = append(ids, w.launch(p, w.request(p, class, w.claim(name), []string{"m5.large"}, []string{"on-demand"})).ID)
	}
	w.clock.Advance(10 * time.Minute)
	want := func(kinds map[string]cloud.InterruptionKind) {
		t.Helper()
		list, err := p.Troubled(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]cloud.InterruptionKind{}
		for _, i := range list {
			got[i.Instances[0]] = i.Kind
		}
		if diff := cmp.Diff(kinds, got); diff != "" {
			t.Error(diff)
		}
	}
	want(map[string]cloud.InterruptionKind{})
	w.do(ec2sim.Step{Impair: &ec2sim.Victims{IDs: ids[:1]}, For: ec2sim.Duration(10 * time.Minute)})
	w.do(ec2sim.Step{Retire: &ec2sim.Victims{IDs: ids[1:2]}})
	want(map[string]cloud.InterruptionKind{ids[1]: cloud.ScheduledChange}) // a check may fail once
	w.clock.Advance(3 * time.Minute)
	want(map[string]cloud.InterruptionKind{ids[0]: cloud.StatusCheckFailed, ids[1]: cloud.ScheduledChange})
	w.clock.Advance(10 * time.Minute)
	want(map[string]cloud.InterruptionKind{ids[1]: cloud.ScheduledChange}) // it has recovered
}
