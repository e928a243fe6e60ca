package ec2

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/coppice-dev/coppice/internal/cloud"
)

// Where IAM isn't asked, EC2's word on a profile that a class names is final.
func TestNamedProfileUnknownToEC2(t *testing.T) {
	w := newWorld(t)
	p := w.provider(func(c *Config) { c.IsolatedVPC = true })
	class := newClass()
	class.Spec.Role, class.Spec.InstanceProfile = "", new("node")
	w.resolve(p, class)
	class.Spec.InstanceProfile, class.Generation = new("nope"), 2
	status, err := p.ResolveClass(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	if got := conditionsText(status.Conditions); !strings.Contains(got, "ValidationSucceeded=False InvalidParameterValue: ") || !strings.Contains(got, "Invalid IAM Instance Profile") {
		t.Errorf("conditions are\n%s", got)
	}
	if n := w.calls("iam:GetInstanceProfile"); n != 0 {
		t.Errorf("IAM was asked %d times from an isolated network", n)
	}
	class.Status.InstanceProfile = "nope"
	_, err = p.Launch(t.Context(), w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{cloud.OnDemand}))
	if !errors.As(err, new(*cloud.TerminalError)) {
		t.Errorf("the launch failed with %v, want an error for good", err)
	}
}

// A profile of ours that somebody deleted is made again once a launch has met that.
func TestOwnProfileDeleted(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	name := &class.Status.InstanceProfile
	if _, err := p.iam.RemoveRoleFromInstanceProfile(t.Context(), &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: name, RoleName: &class.Spec.Role}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.iam.DeleteInstanceProfile(t.Context(), &iam.DeleteInstanceProfileInput{InstanceProfileName: name}); err != nil {
		t.Fatal(err)
	}
	req := w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{cloud.OnDemand})
	if _, err := p.Launch(t.Context(), req); err == nil || errors.As(err, new(*cloud.TerminalError)) {
		t.Fatalf("the launch failed with %v, want an error that may pass", err)
	}
	w.resolve(p, class)
	w.clock.Advance(time.Minute) // EC2 learns of it
	w.launch(p, req)
}
