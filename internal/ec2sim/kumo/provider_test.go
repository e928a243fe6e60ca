package kumo

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/sivchari/kumo"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cloud/ec2"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	api "github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// role is one that no other test makes: kumo's servers share what they hold.
const role = "FleetNodeRole"

func version(context.Context) (string, error) { return "1.33", nil }

// anImage is the ID of one that the simulator has.
func anImage(t *testing.T, sdk aws.Config) string {
	t.Helper()
	out, err := awsec2.NewFromConfig(sdk).DescribeImages(t.Context(), &awsec2.DescribeImagesInput{Filters: []ec2types.Filter{
		{Name: aws.String("name"), Values: []string{"amazon-eks-node-al2023-x86_64-standard-1.33-*"}},
	}})
	if err != nil || len(out.Images) == 0 {
		t.Fatalf("find an image: %v", err)
	}
	return *out.Images[0].ImageId
}

// The provider's own code against kumo for SQS, SSM, IAM and STS, and against the
// simulator for EC2: a profile becomes credentials, a parameter an image, a role an
// instance profile, messages interruptions, and nothing is left behind.
func TestProviderAgainstKumo(t *testing.T) {
	other := kumo.NewServer()
	defer other.Close()
	sim, err := ec2sim.New(ec2sim.Config{Region: "us-east-1", Unthrottled: true, Clusters: []ec2sim.Cluster{{Name: "demo", Endpoint: "https://127.0.0.1:6443"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	srv := httptest.NewServer(sim)
	defer srv.Close()
	// The chain's second place: a profile that the environment names.
	shared := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(shared, []byte("[fleet]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"AWS_ENDPOINT_URL": srv.URL, "AWS_ENDPOINT_URL_SQS": other.URL, "AWS_ENDPOINT_URL_SSM": other.URL,
		"AWS_ENDPOINT_URL_IAM": other.URL, "AWS_ENDPOINT_URL_STS": other.URL, "AWS_REGION": "us-east-1",
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "fleet",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": shared,
	} {
		t.Setenv(k, v)
	}
	ctx := t.Context()
	sdk, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if who, err := sts.NewFromConfig(sdk).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}); err != nil || *who.Account == "" {
		t.Fatalf("caller is %+v, %v", who, err)
	}
	iams, sqss, ssms := iam.NewFromConfig(sdk), sqs.NewFromConfig(sdk), ssm.NewFromConfig(sdk)
	if _, err := iams.CreateRole(ctx, &iam.CreateRoleInput{RoleName: aws.String(role), AssumeRolePolicyDocument: aws.String("{}")}); err != nil {
		t.Fatal(err)
	}
	queue, err := sqss.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("demo")})
	if err != nil {
		t.Fatal(err)
	}

	p, err := ec2.New(ctx, ec2.Config{ClusterName: "demo", DisableDryRun: true, InterruptionQueue: "demo", KubernetesVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	tags := map[string]string{"karpenter.sh/discovery": "true"}
	class := &api.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class-uid", Generation: 1},
		Spec: api.EC2NodeClassSpec{
			AMIFamily:                  aws.String(api.AMIFamilyAL2023),
			SubnetSelectorTerms:        []api.SubnetSelectorTerm{{Tags: tags}},
			SecurityGroupSelectorTerms: []api.SecurityGroupSelectorTerm{{Tags: tags}},
			AMISelectorTerms:           []api.AMISelectorTerm{{SSMParameter: "/nodes/image"}},
			Role:                       role,
		},
	}
	// Without the parameter there is no image, and a person is told.
	status, err := p.ResolveClass(ctx, class)
	if err != nil {
		t.Fatal(err)
	}
	if c := apimeta.FindStatusCondition(status.Conditions, api.ConditionAMIsReady); c == nil || c.Reason != "AMINotFound" {
		t.Errorf("without a parameter: %+v", c)
	}
	image := anImage(t, sdk)
	if _, err := ssms.PutParameter(ctx, &ssm.PutParameterInput{Name: aws.String("/nodes/image"), Value: &image, Type: ssmtypes.ParameterTypeString}); err != nil {
		t.Fatal(err)
	}
	if p, err = ec2.New(ctx, ec2.Config{ClusterName: "demo", DisableDryRun: true, InterruptionQueue: "demo", KubernetesVersion: version}); err != nil {
		t.Fatal(err)
	}
	if class.Status, err = p.ResolveClass(ctx, class); err != nil {
		t.Fatal(err)
	}
	if !apimeta.IsStatusConditionTrue(class.Status.Conditions, karpenter.ConditionReady) || len(class.Status.AMIs) != 1 || class.Status.AMIs[0].ID != image {
		t.Fatalf("status is %+v", class.Status)
	}
	profile, err := iams.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &class.Status.InstanceProfile})
	if err != nil || *profile.InstanceProfile.Path != "/karpenter/us-east-1/demo/class-uid/" || len(profile.InstanceProfile.Roles) != 1 || *profile.InstanceProfile.Roles[0].RoleName != role {
		t.Errorf("profile is %+v, %v", profile, err)
	}
	// A second controller finds what the first one made.
	again, err := ec2.New(ctx, ec2.Config{ClusterName: "demo", DisableDryRun: true, KubernetesVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	if second, err := again.ResolveClass(ctx, class); err != nil || second.InstanceProfile != class.Status.InstanceProfile {
		t.Errorf("the second controller has profile %s, %v", second.InstanceProfile, err)
	}

	bodies := []string{
		`{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","time":"2026-11-30T12:00:00Z","detail":{"instance-id":"i-1","instance-action":"terminate"}}`,
		`{"source":"aws.ec2","detail-type":"EC2 Capacity Reservation Instance Interruption Warning","detail":{"instance-id":"i-2"}}`,
		"hello",
	}
	for i := range bodies {
		if _, err := sqss.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: queue.QueueUrl, MessageBody: &bodies[i]}); err != nil {
			t.Fatal(err)
		}
	}
	var kinds, receipts []string
	for len(kinds) < len(bodies) {
		list, err := p.Interruptions(ctx)
		if err != nil || len(list) == 0 {
			t.Fatalf("after %v: %d messages, %v", kinds, len(list), err)
		}
		for _, i := range list {
			kinds, receipts = append(kinds, string(i.Kind)), append(receipts, i.Receipt)
		}
	}
	slices.Sort(kinds)
	if want := []string{string(cloud.ReservationInterrupted), string(cloud.NoInterruption), string(cloud.SpotInterrupted)}; !slices.Equal(kinds, want) {
		t.Errorf("messages are %v, want %v", kinds, want)
	}
	if err := p.Acknowledge(ctx, receipts); err != nil {
		t.Error(err)
	}
	left, err := sqss.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: queue.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"}})
	if err != nil || left.Attributes["ApproximateNumberOfMessages"] != "0" || left.Attributes["ApproximateNumberOfMessagesNotVisible"] != "0" {
		t.Errorf("left in the queue: %v, %v", left, err)
	}

	if err := p.CleanClass(ctx, class); err != nil {
		t.Error(err)
	}
	if _, err := iams.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &class.Status.InstanceProfile}); err == nil || !strings.Contains(err.Error(), "NoSuchEntity") {
		t.Errorf("after cleaning the profile is there: %v", err)
	}
	if err := p.CleanClass(ctx, class); err != nil {
		t.Errorf("cleaning again: %v", err)
	}
}
