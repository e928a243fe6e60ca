package karpenter_test

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestNillableDuration(t *testing.T) {
	type holder struct {
		D karpenter.NillableDuration `json:"d,omitzero"`
	}
	for name, tc := range map[string]struct {
		why   string
		text  string
		never bool
		want  time.Duration
		bad   bool
	}{
		"hours":     {why: "the text stays as it was written", text: `{"d":"720h"}`, want: 720 * time.Hour},
		"long form": {why: "so does Go's own form", text: `{"d":"1h0m0s"}`, want: time.Hour},
		"escapes":   {why: "the bytes stay, not only the string", text: `{"d":"\u0031h"}`, want: time.Hour},
		"never":     {why: "never is no duration", text: `{"d":"Never"}`, never: true},
		"absent":    {why: "a field that was left out stays out", text: `{}`, never: true},
		"number":    {why: "nanoseconds aren't a duration in this API", text: `{"d":3}`, bad: true},
		"nonsense":  {why: "the API server's pattern refuses it too", text: `{"d":"soon"}`, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			var h holder
			err := json.Unmarshal([]byte(tc.text), &h)
			if (err != nil) != tc.bad {
				t.Fatalf("%s: error %v", tc.why, err)
			}
			if tc.bad {
				return
			}
			out, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			if string(out) != tc.text {
				t.Errorf("%s: wrote %s, read %s", tc.why, out, tc.text)
			}
			if h.D.IsNever() != tc.never {
				t.Errorf("%s: IsNever is %v", tc.why, h.D.IsNever())
			}
			if !tc.never && *h.D.Duration != tc.want {
				t.Errorf("%s: got %v, want %v", tc.why, *h.D.Duration, tc.want)
			}
		})
	}
}

func TestNillableDurationMadeInCode(t *testing.T) {
	for want, d := range map[string]karpenter.NillableDuration{
		`"1h30m0s"`: karpenter.After(90 * time.Minute),
		`"Never"`:   karpenter.NeverDuration(),
	} {
		got, err := json.Marshal(d)
		if err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
		if d.IsZero() {
			t.Errorf("%s counts as left out", want)
		}
	}
	if d, err := karpenter.ParseNillableDuration("90m"); err != nil || d.String() != "90m" || *d.Duration != 90*time.Minute {
		t.Errorf("parsed 90m as %v, %v", d, err)
	}
	if _, err := karpenter.ParseNillableDuration("x"); err == nil {
		t.Error("parsed x")
	}
}

func pool() *karpenter.NodePool {
	p := &karpenter.NodePool{}
	t := &p.Spec.Template
	t.Labels = map[string]string{"a": "1", "b": "2"}
	t.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: "g", Kind: "k", Name: "n"}
	t.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}, {Key: "y", Effect: corev1.TaintEffectNoExecute}}
	t.Spec.ExpireAfter = karpenter.After(time.Hour)
	t.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
	return p
}

func TestNodePoolHash(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		change func(*karpenter.NodePool)
		same   bool
	}{
		"nothing": {why: "a hash is a function", same: true, change: func(*karpenter.NodePool) {}},
		"requirements": {why: "they are compared with the node itself", same: true, change: func(p *karpenter.NodePool) {
			p.Spec.Template.Spec.Requirements = []karpenter.NodeSelectorRequirementWithMinValues{{Key: "a", Operator: "Exists"}}
		}},
		"disruption and limits": {why: "they say nothing about a node", same: true, change: func(p *karpenter.NodePool) {
			p.Spec.Disruption.ConsolidateAfter = karpenter.NeverDuration()
			p.Spec.Limits = karpenter.Limits{}
		}},
		"order of taints": {why: "taints are a set", same: true, change: func(p *karpenter.NodePool) {
			ts := p.Spec.Template.Spec.Taints
			ts[0], ts[1] = ts[1], ts[0]
		}},
		"spelling of a duration": {why: "60m and 1h ask for the same", same: true, change: func(p *karpenter.NodePool) {
			d, _ := karpenter.ParseNillableDuration("60m")
			p.Spec.Template.Spec.ExpireAfter = d
		}},
		"empty instead of absent": {why: "both mean none", same: true, change: func(p *karpenter.NodePool) {
			p.Spec.Template.Annotations = map[string]string{}
			p.Spec.Template.Spec.StartupTaints = []corev1.Taint{}
		}},
		"label": {why: "nodes have it from their birth", change: func(p *karpenter.NodePool) { p.Spec.Template.Labels["a"] = "3" }},
		"annotation": {why: "so have they annotations", change: func(p *karpenter.NodePool) {
			p.Spec.Template.Annotations = map[string]string{"a": "1"}
		}},
		"taint becomes startup taint": {why: "lists of the same content at other places differ", change: func(p *karpenter.NodePool) {
			s := &p.Spec.Template.Spec
			s.Taints, s.StartupTaints = nil, s.Taints
		}},
		"expiry": {why: "it is stamped on the claim", change: func(p *karpenter.NodePool) {
			p.Spec.Template.Spec.ExpireAfter = karpenter.NeverDuration()
		}},
		"grace period": {why: "it is stamped on the claim", change: func(p *karpenter.NodePool) {
			p.Spec.Template.Spec.TerminationGracePeriod = nil
		}},
		"node class": {why: "another class is another machine", change: func(p *karpenter.NodePool) {
			p.Spec.Template.Spec.NodeClassRef.Name = "other"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := pool()
			tc.change(p)
			if same := p.Hash() == pool().Hash(); same != tc.same {
				t.Errorf("%s: the hash is the same: %v, want %v", tc.why, same, tc.same)
			}
		})
	}
	// Another value here means that every node drifts once: raise NodePoolHashVersion.
	if got, want := pool().Hash(), "da7fbf05256f81b80dca"; got != want {
		t.Errorf("the hash of a known pool is %s, was %s", got, want)
	}
}
