package ec2

import (
	"testing"
	"time"
)

// A parameter of the class's own is asked for as often as images are, one that is
// missing after a minute, Amazon's not for an hour.
func TestParametersAge(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	const amazons = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/standard/recommended/image_id"
	for _, tt := range []struct {
		name  string
		after time.Duration
		want  int
	}{{amazons, 50 * time.Minute, 0}, {amazons, 10 * time.Minute, 1}, {"/aws/service/none", 30 * time.Second, 0}, {"/aws/service/none", time.Minute, 1}, {"/golden", time.Minute, 1}} {
		if _, err := p.parameter(t.Context(), tt.name); err != nil {
			t.Fatal(err)
		}
		before := w.calls("ssm:GetParameter")
		w.clock.Advance(tt.after)
		if _, err := p.parameter(t.Context(), tt.name); err != nil {
			t.Fatal(err)
		}
		if n := w.calls("ssm:GetParameter") - before; n != tt.want {
			t.Errorf("%s was read %d times after %s, want %d", tt.name, n, tt.after, tt.want)
		}
	}
}
