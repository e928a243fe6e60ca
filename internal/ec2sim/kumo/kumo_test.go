package kumo

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/sivchari/kumo"

	"github.com/coppice-dev/coppice/internal/ec2sim"
)

// side is one emulator, with what the calls so far have made on it.
type side struct {
	sqs      *sqs.Client
	ssm      *ssm.Client
	iam      *iam.Client
	sts      *sts.Client
	queueURL *string
	receipt  *string
}

func newSide(t *testing.T, url string) *side {
	t.Helper()
	c, err := config.LoadDefaultConfig(t.Context(),
		config.WithRegion("us-east-1"), config.WithBaseEndpoint(url), config.WithEC2IMDSClientEnableState(1),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")),
	)
	if err != nil {
		t.Fatal(err)
	}
	return &side{sqs: sqs.NewFromConfig(c), ssm: ssm.NewFromConfig(c), iam: iam.NewFromConfig(c), sts: sts.NewFromConfig(c)}
}

// step is one call and what a client learns from it, without IDs and times.
type step struct {
	name string
	run  func(context.Context, *side) (string, error)
	// differs says why the two are known not to agree.
	differs string
}

// steps run in order: later ones build on earlier ones.
func steps() []step {
	profile, role := aws.String("demo_1"), aws.String("NodeRole")
	profiles := func(ctx context.Context, s *side, prefix string) (string, error) {
		out, err := s.iam.ListInstanceProfiles(ctx, &iam.ListInstanceProfilesInput{PathPrefix: aws.String(prefix)})
		if err != nil {
			return "", err
		}
		var names []string
		for _, p := range out.InstanceProfiles {
			names = append(names, fmt.Sprint(*p.InstanceProfileName, *p.Path, len(p.Roles)))
		}
		return fmt.Sprint(names, out.IsTruncated), nil
	}
	receive := func(ctx context.Context, s *side, wait int32) (string, error) {
		out, err := s.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: s.queueURL, MaxNumberOfMessages: 10, WaitTimeSeconds: wait, VisibilityTimeout: 300})
		if err != nil {
			return "", err
		}
		var bodies []string
		for _, m := range out.Messages {
			bodies = append(bodies, *m.Body)
			s.receipt = m.ReceiptHandle
		}
		slices.Sort(bodies)
		return fmt.Sprint(bodies), nil
	}
	return []step{
		{name: "sts: who", run: func(ctx context.Context, s *side) (string, error) {
			out, err := s.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(len(*out.Account), strings.HasPrefix(*out.Arn, "arn:aws:"), *out.UserId != ""), nil
		}},

		{name: "ssm: get nothing", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.ssm.GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String("/team/ami")})
			return "", err
		}},
		{name: "ssm: put", run: func(ctx context.Context, s *side) (string, error) {
			out, err := s.ssm.PutParameter(ctx, &ssm.PutParameterInput{Name: aws.String("/team/ami"), Value: aws.String("ami-1"), Type: ssmtypes.ParameterTypeString})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(out.Version), nil
		}},
		{name: "ssm: put again", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.ssm.PutParameter(ctx, &ssm.PutParameterInput{Name: aws.String("/team/ami"), Value: aws.String("ami-2"), Type: ssmtypes.ParameterTypeString})
			return "", err
		}},
		{name: "ssm: overwrite", run: func(ctx context.Context, s *side) (string, error) {
			out, err := s.ssm.PutParameter(ctx, &ssm.PutParameterInput{Name: aws.String("/team/ami"), Value: aws.String("ami-2"), Type: ssmtypes.ParameterTypeString, Overwrite: aws.Bool(true)})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(out.Version), nil
		}},
		{name: "ssm: get", run: func(ctx context.Context, s *side) (string, error) {
			out, err := s.ssm.GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String("/team/ami")})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(*out.Parameter.Name, *out.Parameter.Value, out.Parameter.Type, out.Parameter.Version), nil
		}},
		{name: "ssm: get several", run: func(ctx context.Context, s *side) (string, error) {
			out, err := s.ssm.GetParameters(ctx, &ssm.GetParametersInput{Names: []string{"/team/ami", "/team/none"}})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(len(out.Parameters), out.InvalidParameters), nil
		}},
		{name: "ssm: delete", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.ssm.DeleteParameter(ctx, &ssm.DeleteParameterInput{Name: aws.String("/team/ami")})
			return "", err
		}},
		{name: "ssm: delete again", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.ssm.DeleteParameter(ctx, &ssm.DeleteParameterInput{Name: aws.String("/team/ami")})
			return "", err
		}},

		{name: "iam: get nothing", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: profile})
			return "", err
		}},
		{name: "iam: create", run: func(ctx context.Context, s *side) (string, error) {
			out, err := s.iam.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{
				InstanceProfileName: profile, Path: aws.String("/karpenter/us-east-1/demo/uid/"),
				Tags: []iamtypes.Tag{{Key: aws.String("a"), Value: aws.String("b")}},
			})
			if err != nil {
				return "", err
			}
			p := out.InstanceProfile
			return fmt.Sprint(*p.InstanceProfileName, *p.Path, (*p.Arn)[strings.Index(*p.Arn, ":instance-profile/"):], len(p.Roles), p.CreateDate != nil), nil
		}},
		{name: "iam: create again", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.iam.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: profile})
			return "", err
		}},
		{name: "iam: add a role", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.iam.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: profile, RoleName: role})
			return "", err
		}},
		{name: "iam: add a second role", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.iam.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: profile, RoleName: role})
			return "", err
		}},
		{name: "iam: get", run: func(ctx context.Context, s *side) (string, error) {
			out, err := s.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: profile})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(*out.InstanceProfile.InstanceProfileName, *out.InstanceProfile.Roles[0].RoleName), nil
		}},
		{name: "iam: list by path", run: func(ctx context.Context, s *side) (string, error) { return profiles(ctx, s, "/karpenter/") }},
		{name: "iam: list another path", run: func(ctx context.Context, s *side) (string, error) { return profiles(ctx, s, "/other/") }},
		{name: "iam: delete with its role", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: profile})
			return "", err
		}},
		{name: "iam: remove the role", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.iam.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: profile, RoleName: role})
			return "", err
		}},
		{name: "iam: remove it again", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.iam.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: profile, RoleName: role})
			return "", err
		}},
		{name: "iam: delete", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: profile})
			return "", err
		}},
		{name: "iam: delete again", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: profile})
			return "", err
		}},

		{name: "sqs: no queue", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("events")})
			return "", err
		}},
		{name: "sqs: create", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.sqs.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("events")})
			return "", err
		}},
		{name: "sqs: find", run: func(ctx context.Context, s *side) (string, error) {
			out, err := s.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("events")})
			if err != nil {
				return "", err
			}
			s.queueURL = out.QueueUrl
			return (*out.QueueUrl)[strings.LastIndexByte(*out.QueueUrl, '/'):], nil
		}},
		{name: "sqs: receive nothing", run: func(ctx context.Context, s *side) (string, error) { return receive(ctx, s, 0) }},
		{name: "sqs: a short wait for nothing", run: func(ctx context.Context, s *side) (string, error) { return receive(ctx, s, 1) }},
		{name: "sqs: send", run: func(ctx context.Context, s *side) (string, error) {
			out, err := s.sqs.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: s.queueURL, MessageBody: aws.String(`{"detail":{}}`)})
			if err != nil {
				return "", err
			}
			return *out.MD5OfMessageBody, nil
		}},
		{name: "sqs: receive", run: func(ctx context.Context, s *side) (string, error) { return receive(ctx, s, 20) }},
		{name: "sqs: in flight", run: func(ctx context.Context, s *side) (string, error) { return receive(ctx, s, 0) }},
		{name: "sqs: too many at once", differs: "SQS refuses more than 10, kumo gives what there is", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: s.queueURL, MaxNumberOfMessages: 11})
			return "", err
		}},
		{name: "sqs: delete", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.sqs.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: s.queueURL, ReceiptHandle: s.receipt})
			return "", err
		}},
		{name: "sqs: count", run: func(ctx context.Context, s *side) (string, error) {
			out, err := s.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: s.queueURL, AttributeNames: []sqstypes.QueueAttributeName{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"}})
			if err != nil {
				return "", err
			}
			return fmt.Sprint(out.Attributes["ApproximateNumberOfMessages"], out.Attributes["ApproximateNumberOfMessagesNotVisible"]), nil
		}},
		{name: "sqs: delete the queue", run: func(ctx context.Context, s *side) (string, error) {
			_, err := s.sqs.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: s.queueURL})
			return "", err
		}},
		{name: "sqs: receive from no queue", run: func(ctx context.Context, s *side) (string, error) { return receive(ctx, s, 0) }},
	}
}

// TestAgainstKumo wants both emulators to tell a client the same.
func TestAgainstKumo(t *testing.T) {
	other := kumo.NewServer()
	defer other.Close()
	sim, err := ec2sim.New(ec2sim.Config{Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	srv := httptest.NewServer(sim)
	defer srv.Close()

	ours, theirs := newSide(t, srv.URL), newSide(t, other.URL)
	// A profile's role must exist there; here any name does.
	if _, err := theirs.iam.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: aws.String("NodeRole"), AssumeRolePolicyDocument: aws.String("{}")}); err != nil {
		t.Fatal(err)
	}
	for _, s := range steps() {
		a, b := outcome(s.run(t.Context(), ours)), outcome(s.run(t.Context(), theirs))
		switch {
		case a != b && s.differs == "":
			t.Errorf("%s: the simulator says %q, kumo %q", s.name, a, b)
		case a == b && s.differs != "":
			t.Errorf("%s: both say %q; they were known to differ: %s", s.name, a, s.differs)
		}
	}
}

// outcome is an error's code, or what the call found.
func outcome(found string, err error) string {
	var api smithy.APIError
	switch {
	case errors.As(err, &api):
		return "error " + api.ErrorCode()
	case err != nil:
		return "error " + err.Error()
	}
	return found
}
