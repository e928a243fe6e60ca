package ec2

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
)

const (
	// profileKnown is how long EC2 may take to learn of a new instance profile. IAM
	// promises no figure; seconds are usual.
	// https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html#troubleshoot_general_eventual-consistency
	profileKnown = 5 * time.Minute
	// profileAnswer is how long IAM is waited for about a profile that a class names,
	// which works without an answer as well.
	profileAnswer = 10 * time.Second
)

// profilePath is where the class's instance profiles are. Policies that were
// written for Karpenter allow it.
func (p *Provider) profilePath(class *aws.EC2NodeClass) string {
	return fmt.Sprintf("/karpenter/%s/%s/%s/", p.region, p.cfg.ClusterName, class.UID)
}

// profileName is the name of the profile for the class's role. Another role has
// another profile, so that running instances keep theirs. IAM takes 128 characters.
func (p *Provider) profileName(class *aws.EC2NodeClass) string {
	sum := sha256.Sum256([]byte(p.region + "/" + string(class.UID) + "/" + class.Spec.Role))
	return fmt.Sprintf("%.100s_%s", p.cfg.ClusterName, hex.EncodeToString(sum[:10]))
}

func (p *Provider) resolveProfile(ctx context.Context, class *aws.EC2NodeClass, status *aws.EC2NodeClassStatus) finding {
	if given := deref(class.Spec.InstanceProfile); given != "" {
		status.InstanceProfile = given
		if p.profileMissing(ctx, given) {
			return finding{condition: aws.ConditionInstanceProfileReady, reason: "InstanceProfileNotFound",
				message: fmt.Sprintf("instance profile %q doesn't exist; create it, or name another in spec.instanceProfile", given)}
		}
		return finding{condition: aws.ConditionInstanceProfileReady}
	}
	name := p.profileName(class)
	_, err := p.profiles.get(ctx, name, func(ctx context.Context) (time.Time, error) {
		return p.ensureProfile(ctx, class, name)
	})
	if errors.As(err, new(*noRoleError)) {
		return finding{condition: aws.ConditionInstanceProfileReady, reason: "NodeRoleNotFound", message: err.Error()}
	}
	if err != nil {
		return settle(aws.ConditionInstanceProfileReady, err)
	}
	status.InstanceProfile = name
	return finding{condition: aws.ConditionInstanceProfileReady}
}

// profileMissing says whether IAM knows no profile of the name. Who names a profile may
// do so because IAM is out of reach or forbidden: then a launch has to show it.
func (p *Provider) profileMissing(ctx context.Context, name string) bool {
	if p.cfg.IsolatedVPC {
		return false
	}
	_, err := p.profiles.get(ctx, name, func(ctx context.Context) (time.Time, error) {
		ctx, cancel := context.WithTimeout(ctx, profileAnswer)
		defer cancel()
		out, err := p.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
		if err != nil || out.InstanceProfile == nil {
			if code(err) != codeNoSuchEntity {
				err = nil
			}
			return time.Time{}, err
		}
		return deref(out.InstanceProfile.CreateDate), nil
	})
	return code(err) == codeNoSuchEntity
}

// noRoleError says that the class's role doesn't exist.
type noRoleError struct{ role string }

func (e *noRoleError) Error() string {
	return fmt.Sprintf("role %q doesn't exist; create it, or name another in spec.role", e.role)
}

// settleProfile decides what it means that EC2 doesn't know the class's instance
// profile. Of one that was made a moment ago it will learn; one that went since is
// made again, so that it isn't remembered; anything else is for a person to mend.
func (p *Provider) settleProfile(class *aws.EC2NodeClass, err error) error {
	if !aboutProfile(err) {
		return err
	}
	if deref(class.Spec.InstanceProfile) != "" {
		return &cloud.TerminalError{Err: err}
	}
	name := class.Status.InstanceProfile
	made, known := p.profiles.peek(name, profileTTL)
	p.profiles.forget(name)
	if known && p.clock.Since(made) >= profileKnown {
		return &cloud.TerminalError{Err: err}
	}
	return err
}

// ensureProfile makes the instance profile, gives it the class's role, and returns when
// it was made. Every step may have been taken before.
func (p *Provider) ensureProfile(ctx context.Context, class *aws.EC2NodeClass, name string) (time.Time, error) {
	made := p.clock.Now()
	var profile *iamtypes.InstanceProfile
	out, err := p.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &name})
	switch {
	case err == nil:
		profile, made = out.InstanceProfile, deref(out.InstanceProfile.CreateDate)
	case code(err) != codeNoSuchEntity:
		return made, failed("find instance profile "+name, err)
	default:
		path := p.profilePath(class)
		created, err := p.iam.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{
			InstanceProfileName: &name, Path: &path, Tags: p.profileTags(class),
		})
		if err != nil && code(err) != codeEntityExists {
			return made, failed("create instance profile "+name, err)
		}
		if err == nil {
			profile = created.InstanceProfile
		}
	}
	if profile != nil {
		for _, r := range profile.Roles {
			if deref(r.RoleName) == class.Spec.Role {
				return made, nil
			}
			// A profile holds one role. The name says which, so another one was put
			// there by hand.
			if err := p.removeRole(ctx, name, deref(r.RoleName)); err != nil {
				return made, err
			}
		}
	}
	_, err = p.iam.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &name, RoleName: &class.Spec.Role})
	// The profile was there a moment ago: what IAM can't find is the role.
	if code(err) == codeNoSuchEntity && strings.Contains(strings.ToLower(err.Error()), "role") {
		return made, &noRoleError{class.Spec.Role}
	}
	if err != nil && code(err) != "LimitExceeded" { // the role is there already
		return made, failed(fmt.Sprintf("add role %s to instance profile %s", class.Spec.Role, name), err)
	}
	return made, nil
}

func (p *Provider) profileTags(class *aws.EC2NodeClass) []iamtypes.Tag {
	tags := maps.Clone(class.Spec.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, map[string]string{
		"topology.kubernetes.io/region":          p.region,
		aws.TagClusterPrefix + p.cfg.ClusterName: "owned",
		aws.TagEKSClusterName:                    p.cfg.ClusterName,
		aws.TagNodeClass:                         class.Name,
	})
	var out []iamtypes.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, iamtypes.Tag{Key: new(k), Value: new(tags[k])})
	}
	return out
}

func (p *Provider) removeRole(ctx context.Context, profile, role string) error {
	_, err := p.iam.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: &profile, RoleName: &role})
	if err != nil && code(err) != codeNoSuchEntity {
		return failed(fmt.Sprintf("remove role %s from instance profile %s", role, profile), err)
	}
	return nil
}

// sweepProfiles deletes the class's profiles for roles that it had before, once no
// instance has them and no launch has used them for long: what is being launched may
// not be listed yet.
func (p *Provider) sweepProfiles(ctx context.Context, class *aws.EC2NodeClass) error {
	current, now := p.profileName(class), p.clock.Now()
	var used map[string]bool
	return p.deleteProfiles(ctx, class, func(profile iamtypes.InstanceProfile) (bool, error) {
		name := deref(profile.InstanceProfileName)
		if name == current || name == deref(class.Spec.InstanceProfile) ||
			now.Sub(deref(profile.CreateDate)) < templateIdle || !p.sweeps.idle(name, now) {
			return false, nil
		}
		if used == nil {
			list, err := p.Instances(ctx)
			if err != nil {
				return false, fmt.Errorf("sweep instance profiles: %w", err)
			}
			used = map[string]bool{}
			for _, i := range list {
				used[i.Profile] = true
			}
		}
		return !used[name], nil
	})
}

// deleteProfiles removes those of the profiles that were ever made for the class that
// goes says. Also a class that names a profile may have had a role before. If none has a
// role IAM may be out of reach or forbidden, and needn't be asked.
func (p *Provider) deleteProfiles(ctx context.Context, class *aws.EC2NodeClass, goes func(iamtypes.InstanceProfile) (bool, error)) error {
	if class.Spec.Role == "" && p.cfg.IsolatedVPC {
		return nil
	}
	path := p.profilePath(class)
	pages := iam.NewListInstanceProfilesPaginator(p.iam, &iam.ListInstanceProfilesInput{PathPrefix: &path})
	var errs []error
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if class.Spec.Role == "" && code(err) == "AccessDenied" {
			return nil
		}
		if err != nil {
			return failed("list instance profiles under "+path, err)
		}
		for _, profile := range page.InstanceProfiles {
			switch yes, err := goes(profile); {
			case err != nil:
				return err
			case yes:
				errs = append(errs, p.deleteProfile(ctx, profile))
			}
		}
	}
	return errors.Join(errs...)
}

func (p *Provider) deleteProfile(ctx context.Context, profile iamtypes.InstanceProfile) error {
	name := deref(profile.InstanceProfileName)
	for _, r := range profile.Roles {
		if err := p.removeRole(ctx, name, deref(r.RoleName)); err != nil {
			return err
		}
	}
	_, err := p.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: &name})
	if err != nil && code(err) != codeNoSuchEntity {
		return failed("delete instance profile "+name, err)
	}
	p.profiles.forget(name)
	return nil
}
