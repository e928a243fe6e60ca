package ec2

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
)

// A controller that starts anew leaves alone what its predecessor found empty, for as
// long as that would have, and promises the memory that nodes were seen to have.
func TestKnowledgeSurvives(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	w.do(ec2sim.Step{For: ec2sim.Duration(time.Hour), Shortage: &ec2sim.Shortage{Match: ec2sim.Match{Types: []string{"m5.large"}, CapacityTypes: []string{"spot"}}}})
	empty := func(p *Provider, name string) int {
		t.Helper()
		w.sim.ResetCounters()
		if _, err := p.Launch(t.Context(), w.request(p, class, w.claim(name), []string{"m5.large"}, []string{"spot"})); err == nil {
			t.Fatal("launched what there is none of")
		}
		return w.calls("ec2:CreateFleet")
	}
	empty(p, "1")
	image, _ := cloud.ImageFor(class.Status.AMIs, w.request(p, class, w.claim("x"), []string{"m5.large"}, []string{"*"}).Types[0].Labels)
	p.Observe("m5.large", image, corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("7800Mi")})
	p.unavailable.markSubnet("subnet-full", w.clock.Now())

	know := func(p *Provider) string {
		t.Helper()
		text, err := p.Knowledge()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := know(p)
	if strings.Count(first, "m5.large") != 4+1 || !strings.Contains(first, "7800") || !strings.Contains(first, "subnet-full") {
		t.Errorf("known is %s", first)
	}
	w.clock.Advance(time.Minute)
	if again := know(p); again != first {
		t.Errorf("nothing happened, yet the knowledge changed\n%s\n%s", first, again)
	}
	next := w.provider()
	if err := next.Learn([]byte(first)); err != nil {
		t.Fatal(err)
	}
	if got := know(next); got != first {
		t.Errorf("the next knows\n%s\nwant\n%s", got, first)
	}
	if n := empty(next, "2"); n != 0 {
		t.Errorf("what is known to be out was asked for by %d fleets", n)
	}
	if got := w.request(next, class, w.claim("x"), []string{"m5.large"}, []string{"*"}).Types[0].Capacity.Memory().Value() >> 20; got != 7800 {
		t.Errorf("the next promises %d MiB", got)
	}
	// The back-off goes on where it was: the second shortage lasts twice as long.
	w.clock.Advance(unavailableFor)
	if n := empty(next, "3"); n != 1 {
		t.Errorf("after the rest it was asked for by %d fleets", n)
	}
	third := w.provider()
	if err := third.Learn([]byte(know(next))); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(2*unavailableFor - time.Second)
	if n := empty(third, "4"); n != 0 {
		t.Errorf("a shortage met twice was asked for early, by %d fleets", n)
	}
	w.clock.Advance(time.Second)
	if n := empty(third, "5"); n != 1 {
		t.Errorf("after its rest it was asked for by %d fleets", n)
	}
}

// What is kept doesn't grow without end, nor live for ever, nor lead astray.
func TestKnowledgeIsBounded(t *testing.T) {
	w := newWorld(t)
	p := w.fresh()
	now := w.clock.Now()
	for n := range 2 * maxKeptMemory {
		p.memory.observe(memoryKey{fmt.Sprintf("type%05d.24xlarge", n), "ami-0123456789abcdef0"}, 1<<30, now.Add(-time.Duration(n)*time.Hour/10))
		p.unavailable.mark(offeringKey{"on-demand", fmt.Sprintf("type%05d.24xlarge", n), "ap-southeast-2a", "cr-0123456789abcdef0", ""}, now)
	}
	text, err := p.Knowledge()
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 512<<10 {
		t.Errorf("%d bytes are kept", len(text))
	}
	next := w.fresh()
	if err := next.Learn(text); err != nil {
		t.Fatal(err)
	}
	if seen, _ := next.memory.all(w.clock.Now()); len(seen) != maxKeptMemory || seen[memoryKey{"type00000.24xlarge", "ami-0123456789abcdef0"}] == 0 {
		t.Errorf("%d measurements were kept", len(seen))
	}
	w.clock.Advance(memoryKeptFor + 24*time.Hour)
	if text, _ := next.Knowledge(); string(text) != `{"version":1}` {
		t.Errorf("after two months %d bytes are known", len(text))
	}
	for name, text := range map[string]string{"not JSON": "x", "another format": `{"version":2}`} {
		if err := w.fresh().Learn([]byte(text)); err == nil {
			t.Errorf("%s was taken over", name)
		}
	}
	// Somebody's edit can't close an offering for good.
	odd := w.fresh()
	far := now.AddDate(10, 0, 0).Format(time.RFC3339)
	if err := odd.Learn([]byte(`{"version":1,"shortages":[{"capacityType":"spot","until":"` + far + `","seconds":999999999}],"subnets":[{"id":"s","until":"` + far + `"}],"memory":[{"type":"m5.large","image":"ami-1","mib":-5,"seen":"2026-11-30"},{"type":"m5.large","image":"ami-1","mib":5,"seen":"x"}]}`)); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(maxUnavailable)
	short, _ := odd.unavailable.at(w.clock.Now())
	if seen, _ := odd.memory.all(w.clock.Now()); len(short.offerings) != 0 || len(short.subnets) != 0 || len(seen) != 0 {
		t.Errorf("left alone are %v and %v, memory is %v", short.offerings, short.subnets, seen)
	}
	// What is found out here counts more than what was known.
	mine := w.fresh()
	key := offeringKey{"spot", "m5.large", "us-west-2a", "", ""}
	mine.unavailable.mark(key, w.clock.Now())
	before, _ := mine.Knowledge()
	if err := mine.Learn(slices.Concat([]byte(`{"version":1,"shortages":[{"capacityType":"spot","type":"m5.large","zone":"us-west-2a","until":"`), []byte(w.clock.Now().Add(20*time.Minute).Format(time.RFC3339)), []byte(`","seconds":1440}]}`))); err != nil {
		t.Fatal(err)
	}
	after, _ := mine.Knowledge()
	if diff := gocmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("what was found here was overwritten:\n%s", diff)
	}
}

// A measurement that no node of the type can have isn't taken over, from nodes or from
// what was kept, and one that nothing confirms doesn't last for ever.
func TestMemoryIsPlausible(t *testing.T) {
	w := newWorld(t)
	p := w.fresh()
	memory := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(text)}
	}
	seen := func() int64 {
		all, _ := p.memory.all(w.clock.Now())
		return all[memoryKey{"m5.large", "ami-1"}] / mebibyte
	}
	for _, mib := range []string{"1", "4095", "8193"} {
		p.Observe("m5.large", "ami-1", memory(mib+"Mi"))
		if err := p.Learn([]byte(`{"version":1,"memory":[{"type":"m5.large","image":"ami-1","mib":` + mib + `,"seen":"2026-11-30"}]}`)); err != nil {
			t.Fatal(err)
		}
		if got := seen(); got != 0 {
			t.Errorf("%s MiB were taken for a measurement, as %d", mib, got)
		}
	}
	p.Observe("m5.large", "ami-1", memory("5000Mi"))
	w.clock.Advance(memoryKeptFor - time.Hour)
	p.Observe("m5.large", "ami-1", memory("7800Mi"))
	if got := seen(); got != 5000 {
		t.Errorf("%d MiB count, want the least", got)
	}
	_, before := p.memory.all(w.clock.Now())
	w.clock.Advance(time.Hour)
	if got := seen(); got != 0 {
		t.Errorf("%d MiB count after %s", got, memoryKeptFor)
	}
	if _, after := p.memory.all(w.clock.Now()); after == before {
		t.Error("the version didn't change with the answer")
	}
	p.Observe("m5.large", "ami-1", memory("7800Mi"))
	if got := seen(); got != 7800 {
		t.Errorf("%d MiB count, want what was measured last", got)
	}
}
