package ec2

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
)

// maxMessage bounds a condition's message: what matters comes first.
const maxMessage = 400

// finding is the outcome of one thing that a class needs.
type finding struct {
	condition string
	// reason is empty when all is well.
	reason, message string
	// err is a failure that may pass. The condition keeps what it said before.
	err error
}

// ResolveClass is as in cloud.Provider. What fails in a way that may pass leaves its
// part of the status as it was and is in the error; what a person has to mend is in
// the conditions alone.
func (p *Provider) ResolveClass(ctx context.Context, class *aws.EC2NodeClass) (aws.EC2NodeClassStatus, error) {
	status := *class.Status.DeepCopy()
	steps := []func(context.Context, *aws.EC2NodeClass, *aws.EC2NodeClassStatus) finding{
		p.resolveSubnets, p.resolveGroups, p.resolveImages, p.resolveProfile, p.resolveReservations, p.resolvePlacement,
	}
	found := make([]finding, len(steps))
	var wg sync.WaitGroup
	for i, step := range steps {
		// Each step writes its own field of the status.
		wg.Go(func() { found[i] = step(ctx, class, &status) })
	}
	wg.Wait()

	resolved := class.DeepCopy()
	resolved.Status = status
	var errs []error
	for _, f := range found {
		p.apply(resolved, f)
		if f.err != nil {
			errs = append(errs, f.err)
		}
	}
	check := p.validate(ctx, resolved)
	p.apply(resolved, check)
	if check.err != nil {
		errs = append(errs, check.err)
	}
	p.applyReady(resolved)
	if p.sweeps.due(class.Name, p.clock.Now()) {
		errs = append(errs, p.sweepTemplates(ctx, resolved), p.sweepProfiles(ctx, resolved))
	}
	return resolved.Status, errors.Join(errs...)
}

// apply turns a finding into its condition.
func (p *Provider) apply(class *aws.EC2NodeClass, f finding) {
	c := metav1.Condition{
		Type: f.condition, Status: metav1.ConditionTrue, Reason: f.condition,
		ObservedGeneration: class.Generation, LastTransitionTime: metav1.NewTime(p.clock.Now()),
	}
	switch {
	case f.err != nil:
		before := apimeta.FindStatusCondition(class.Status.Conditions, f.condition)
		if before != nil && before.ObservedGeneration == class.Generation {
			return // what was found before still holds
		}
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "AwaitingReconciliation", shorten(f.err.Error())
	case f.reason != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, f.reason, shorten(f.message)
	}
	apimeta.SetStatusCondition(&class.Status.Conditions, c)
}

// readyConditions are those that Ready sums up, in the order in which they are named.
func readyConditions() []string {
	return []string{
		aws.ConditionAMIsReady, aws.ConditionSubnetsReady, aws.ConditionSecurityGroupsReady,
		aws.ConditionInstanceProfileReady, aws.ConditionCapacityReservationsReady,
		aws.ConditionPlacementGroupReady, aws.ConditionValidationSucceeded,
	}
}

func (p *Provider) applyReady(class *aws.EC2NodeClass) {
	ready := metav1.Condition{
		Type: aws.ConditionReady, Status: metav1.ConditionTrue, Reason: aws.ConditionReady,
		ObservedGeneration: class.Generation, LastTransitionTime: metav1.NewTime(p.clock.Now()),
	}
	var not []string
	for _, name := range readyConditions() {
		c := apimeta.FindStatusCondition(class.Status.Conditions, name)
		switch {
		case c == nil || c.Status == metav1.ConditionUnknown:
			if ready.Status == metav1.ConditionTrue {
				ready.Status, ready.Reason = metav1.ConditionUnknown, "ReconcilingDependents"
			}
			not = append(not, name+"=Unknown")
		case c.Status == metav1.ConditionFalse:
			ready.Status, ready.Reason = metav1.ConditionFalse, "UnhealthyDependents"
			not = append(not, name+"=False")
		}
	}
	ready.Message = strings.Join(not, ", ")
	apimeta.SetStatusCondition(&class.Status.Conditions, ready)
}

// settle sorts a failure into what a person has to mend and what may pass.
func settle(condition string, err error) finding {
	var terminal *cloud.TerminalError
	if errors.As(err, &terminal) {
		reason := code(err)
		if reason == "" || strings.ContainsAny(reason, ". ") {
			reason = condition + "Refused"
		}
		return finding{condition: condition, reason: reason, message: err.Error()}
	}
	return finding{condition: condition, err: err}
}

func (p *Provider) resolveSubnets(ctx context.Context, class *aws.EC2NodeClass, status *aws.EC2NodeClassStatus) finding {
	found, err := p.findSubnets(ctx, class)
	if err != nil {
		return settle(aws.ConditionSubnetsReady, err)
	}
	status.Subnets = subnetStatus(found)
	if len(found) == 0 {
		return finding{condition: aws.ConditionSubnetsReady, reason: "SubnetsNotFound",
			message: "subnetSelectorTerms match no subnet: " + describeTerms(subnetQueries(class.Spec.SubnetSelectorTerms))}
	}
	return finding{condition: aws.ConditionSubnetsReady}
}

func (p *Provider) resolveGroups(ctx context.Context, class *aws.EC2NodeClass, status *aws.EC2NodeClassStatus) finding {
	found, err := p.findGroups(ctx, class)
	if err != nil {
		return settle(aws.ConditionSecurityGroupsReady, err)
	}
	status.SecurityGroups = groupStatus(found)
	if len(found) == 0 {
		return finding{condition: aws.ConditionSecurityGroupsReady, reason: "SecurityGroupsNotFound",
			message: "securityGroupSelectorTerms match no security group: " + describeTerms(groupQueries(class.Spec.SecurityGroupSelectorTerms))}
	}
	return finding{condition: aws.ConditionSecurityGroupsReady}
}

func (p *Provider) resolveImages(ctx context.Context, class *aws.EC2NodeClass, status *aws.EC2NodeClassStatus) finding {
	found, err := p.findImages(ctx, class)
	var alias *aliasError
	if errors.As(err, &alias) {
		status.AMIs = nil
		return finding{condition: aws.ConditionAMIsReady, reason: "UnsupportedAlias", message: alias.message}
	}
	if err != nil {
		return settle(aws.ConditionAMIsReady, err)
	}
	status.AMIs = imageStatus(found, p.clock.Now())
	if len(status.AMIs) == 0 {
		return finding{condition: aws.ConditionAMIsReady, reason: "AMINotFound",
			message: "amiSelectorTerms match no image of an architecture that nodes can have (x86_64, arm64)" + p.missingParameters(class)}
	}
	return finding{condition: aws.ConditionAMIsReady}
}

func (p *Provider) resolveReservations(ctx context.Context, class *aws.EC2NodeClass, status *aws.EC2NodeClassStatus) finding {
	if len(class.Spec.CapacityReservationSelectorTerms) == 0 {
		status.CapacityReservations = nil
		return finding{condition: aws.ConditionCapacityReservationsReady}
	}
	found, err := p.findReservations(ctx, class)
	if err != nil {
		return settle(aws.ConditionCapacityReservationsReady, err)
	}
	status.CapacityReservations = reservationStatus(found, p.clock.Now())
	// None is no fault: reservations come and go.
	return finding{condition: aws.ConditionCapacityReservationsReady}
}

func (p *Provider) resolvePlacement(ctx context.Context, class *aws.EC2NodeClass, _ *aws.EC2NodeClassStatus) finding {
	s := class.Spec.PlacementGroupSelector
	if s == nil {
		return finding{condition: aws.ConditionPlacementGroupReady}
	}
	found, err := p.findPlacementGroup(ctx, s)
	if err != nil {
		return settle(aws.ConditionPlacementGroupReady, err)
	}
	if found == nil {
		return finding{condition: aws.ConditionPlacementGroupReady, reason: "PlacementGroupNotFound",
			message: fmt.Sprintf("no available placement group is called %q", s.Name+s.ID)}
	}
	return finding{condition: aws.ConditionPlacementGroupReady}
}

// shorten keeps a message within what conditions should hold, on a rune's border.
func shorten(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage-3], "") + "..."
}

// subnetZones maps the subnets found to their zones.
func subnetZones(found []ec2types.Subnet) map[string]string {
	out := make(map[string]string, len(found))
	for _, s := range found {
		out[deref(s.SubnetId)] = deref(s.AvailabilityZone)
	}
	return out
}
