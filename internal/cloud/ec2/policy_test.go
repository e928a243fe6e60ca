package ec2

import (
	"encoding/json"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const examples = "../../../examples/aws/"

// words is a value that IAM takes alone or in a list.
type words []string

func (w *words) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*w = words{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(w))
}

type statement struct {
	Sid, Effect      string
	Action, Resource words
	Condition        map[string]map[string]words
}

type policy struct {
	Version   string
	Statement []statement
}

func readExample(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(examples + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// values are what the account of the simulator puts into the policy.
func values() *strings.Replacer {
	return strings.NewReplacer("${partition}", "aws", "${region}", "us-west-2", "${account}", "123456789012", "${cluster}", "demo",
		"${node_role_arn}", "arn:aws:iam::123456789012:role/KarpenterNodeRole-demo", "${queue_arn}", "arn:aws:sqs:us-west-2:123456789012:demo")
}

func examplePolicy(t *testing.T) policy {
	t.Helper()
	text, err := os.ReadFile(examples + "controller-policy.json")
	if err != nil {
		t.Fatal(err)
	}
	var p policy
	if err := yaml.UnmarshalStrict([]byte(values().Replace(string(text))), &p); err != nil {
		t.Fatal(err)
	}
	if rest := regexp.MustCompile(`\$\{[^}]*\}`).FindString(values().Replace(string(text))); rest != "" {
		t.Errorf("the policy holds %s, which nothing fills in", rest)
	}
	return p
}

// action is the permission that a call needs.
func action(call string) string {
	if call == "sqs:DeleteMessageBatch" {
		return "sqs:DeleteMessage"
	}
	return call
}

// Everything that the provider calls the policy allows, and it allows nothing else but
// what EC2 and IAM check besides the call itself.
func TestPolicyIsWhatIsCalled(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.Queues = []string{"demo"} })
	p := w.fresh(func(c *Config) { c.InterruptionQueue, c.ZonalShift = "demo", true })
	called := map[string]bool{}
	note := func() {
		for _, c := range w.sim.Counters() {
			service, operation, _ := strings.Cut(c.Action, ":")
			if rest, ok := map[string]string{"GET clusters": "DescribeCluster", "GET managedresources": "GetManagedResource"}[operation]; ok {
				operation = rest
			}
			called[service+":"+operation] = true
		}
		w.sim.ResetCounters()
	}
	// What the test itself makes isn't the provider's.
	zone := w.resolve(p, newClass()).Status.Subnets[0].Zone
	note()
	if _, err := p.ec2.CreateCapacityReservation(t.Context(), &ec2.CreateCapacityReservationInput{
		InstanceType: new("m5.large"), AvailabilityZone: &zone, InstanceCount: new(int32(1)),
		InstancePlatform: ec2types.CapacityReservationInstancePlatformLinuxUnix, InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeCapacityReservation, Tags: ec2Tags(map[string]string{"for": "demo"})}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ec2.CreatePlacementGroup(t.Context(), &ec2.CreatePlacementGroupInput{GroupName: new("pg"), Strategy: ec2types.PlacementStrategyCluster}); err != nil {
		t.Fatal(err)
	}
	w.sim.ResetCounters()

	class := newClass()
	class.Name, class.UID = "all", "class-all"
	class.Spec.CapacityReservationSelectorTerms = []aws.CapacityReservationSelectorTerm{{Tags: map[string]string{"for": "demo"}}}
	class.Spec.PlacementGroupSelector = &aws.PlacementGroupSelector{Name: "pg"}
	w.resolve(p, class)
	var made []cloud.Instance
	for _, c := range []struct{ name, kind string }{{"1", cloud.Reserved}, {"2", cloud.Spot}, {"3", cloud.OnDemand}} {
		made = append(made, w.launch(p, w.request(p, class, w.claim(c.name), []string{"m5.large"}, []string{c.kind})))
	}
	pair := []*karpenter.NodeClaim{w.claim("4"), w.claim("5")}
	for n, c := range pair {
		req := w.request(p, class, c, []string{"m5.large"}, []string{cloud.OnDemand})
		req.Fleet = &cloud.Fleet{Token: "pair", Index: n, Count: 2, Members: pair}
		made = append(made, w.launch(p, req))
	}
	w.clock.Advance(10 * time.Minute)
	if err := p.Tag(t.Context(), made[0].ID, map[string]string{"Name": "ip-10-0-0-1"}); err != nil {
		t.Fatal(err)
	}
	if err := p.Reboot(t.Context(), made[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Troubled(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.do(ec2sim.Step{Rebalance: &ec2sim.Victims{IDs: []string{made[1].ID}}})
	messages, err := p.Interruptions(t.Context())
	if err != nil || len(messages) == 0 {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	if err := p.Acknowledge(t.Context(), []string{messages[0].Receipt}); err != nil {
		t.Fatal(err)
	}
	templates, err := p.ec2.DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range made {
		if err := p.Terminate(t.Context(), i.ID); err != nil {
			t.Fatal(err)
		}
	}
	w.clock.Advance(time.Minute)
	if err := p.CleanClass(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	note()

	allowed := map[string]bool{}
	for _, s := range examplePolicy(t).Statement {
		if s.Effect != "Allow" || len(s.Resource) == 0 {
			t.Errorf("statement %s is not an allowance of something", s.Sid)
		}
		for _, a := range s.Action {
			allowed[a] = true
		}
		for _, r := range s.Resource {
			if r == "*" && !slices.Contains([]string{"ReadRegion", "ReadPrices"}, s.Sid) {
				t.Errorf("statement %s is about everything", s.Sid)
			}
		}
	}
	needed := map[string]bool{"iam:PassRole": true, "iam:TagInstanceProfile": true} // checked by EC2 and IAM
	for c := range called {
		needed[action(c)] = true
	}
	if diff := gocmp.Diff(slices.Sorted(maps.Keys(needed)), slices.Sorted(maps.Keys(allowed))); diff != "" {
		t.Errorf("actions (-called +allowed):\n%s", diff)
	}

	// What the conditions want of tags everything that is made has.
	var tagged []map[string]string
	for _, i := range w.sim.Instances() {
		tagged = append(tagged, i.Tags)
	}
	for _, l := range templates.LaunchTemplates {
		tags := map[string]string{}
		for _, tag := range l.Tags {
			tags[*tag.Key] = *tag.Value
		}
		tagged = append(tagged, tags)
	}
	if len(tagged) < 5 {
		t.Fatalf("only %d tagged things were made", len(tagged))
	}
	conditions := 0
	for _, s := range examplePolicy(t).Statement {
		for operator, wants := range s.Condition {
			for key, values := range wants {
				_, tag, ok := strings.Cut(key, "Tag/")
				if !ok {
					continue
				}
				conditions++
				for _, tags := range tagged {
					value, has := tags[tag]
					if !has || !slices.ContainsFunc(values, func(pattern string) bool {
						return value == pattern || operator == "StringLike" && matchesLike(pattern, value)
					}) {
						t.Errorf("statement %s wants tag %s like %v, which something has as %q (%t)", s.Sid, tag, values, value, has)
					}
				}
			}
		}
	}
	if conditions < 10 {
		t.Errorf("only %d conditions are about tags", conditions)
	}
	// A profile that isn't there yet has no path by which IAM could match it.
	if !slices.ContainsFunc(examplePolicy(t).Statement, func(s statement) bool {
		return slices.Contains(s.Action, "iam:GetInstanceProfile") && matchesLike(s.Resource[0], "arn:aws:iam::123456789012:instance-profile/"+p.profileName(class))
	}) {
		t.Error("a profile that isn't there yet can't be looked for")
	}
	// Instance profiles are where the policy lets them be.
	profile := path.Join("arn:aws:iam::123456789012:instance-profile", p.profilePath(class), p.profileName(class))
	for _, s := range examplePolicy(t).Statement {
		if s.Sid == "KeepOwnInstanceProfiles" && !matchesLike(s.Resource[0], profile) {
			t.Errorf("%s isn't like %s", profile, s.Resource[0])
		}
	}
}

// matchesLike is IAM's StringLike with stars at the end alone.
func matchesLike(pattern, value string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return open && strings.HasPrefix(value, prefix)
}

// The CloudFormation template holds the same policy, and its rules are for what the
// provider understands, all of it.
func TestCloudFormation(t *testing.T) {
	var template struct {
		Parameters, Outputs map[string]any
		Resources           map[string]struct {
			Type       string
			Properties map[string]any
		}
	}
	readExample(t, "cloudformation.yaml", &template)
	text, ok := template.Resources["ControllerPolicy"].Properties["PolicyDocument"].(map[string]any)["Fn::Sub"].(string)
	if !ok {
		t.Fatal("the controller's policy isn't a text")
	}
	text = strings.NewReplacer("${AWS::Partition}", "${partition}", "${AWS::Region}", "${region}", "${AWS::AccountId}", "${account}",
		"${ClusterName}", "${cluster}", "${NodeRole.Arn}", "${node_role_arn}", "${InterruptionQueue.Arn}", "${queue_arn}").Replace(text)
	var inline policy
	if err := json.Unmarshal([]byte(values().Replace(text)), &inline); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(examplePolicy(t), inline); diff != "" {
		t.Errorf("policies (-controller-policy.json +cloudformation.yaml):\n%s", diff)
	}
	whole, err := os.ReadFile(examples + "cloudformation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// Everything that is referred to is there.
	for _, m := range regexp.MustCompile(`(?:Ref: |GetAtt: \[|\$\{)([A-Za-z]+)\b`).FindAllStringSubmatch(string(whole), -1) {
		_, resource := template.Resources[m[1]]
		_, parameter := template.Parameters[m[1]]
		if !resource && !parameter && m[1] != "AWS" {
			t.Errorf("%s is referred to and isn't there", m[1])
		}
	}
	kinds := map[cloud.InterruptionKind]bool{}
	for name, r := range template.Resources {
		for _, property := range []string{"RoleName", "ManagedPolicyName", "QueueName", "Name"} {
			if r.Properties[property] != nil {
				t.Errorf("%s has a name, which a cluster's can make too long and another region's stack can take", name)
			}
		}
		if r.Type != "AWS::Events::Rule" {
			continue
		}
		pattern := r.Properties["EventPattern"].(map[string]any)
		for _, n := range noticesOf(pattern) {
			i := readNotice(n)
			if i.Kind == cloud.NoInterruption {
				t.Errorf("rule %s lets %s through, which means nothing", name, n)
			}
			kinds[i.Kind] = true
		}
	}
	want := []cloud.InterruptionKind{
		cloud.ReservationInterrupted, cloud.InstanceStopped, cloud.InstanceTerminated,
		cloud.RebalanceRecommended, cloud.ScheduledChange, cloud.SpotInterrupted,
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, want) {
		t.Errorf("the rules let %v through, want %v", got, want)
	}
	// Terraform's rules are the same.
	terraform, err := os.ReadFile(examples + "terraform/main.tf")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range template.Resources {
		if r.Type == "AWS::Events::Rule" {
			for _, s := range r.Properties["EventPattern"].(map[string]any)["detail-type"].([]any) {
				if !strings.Contains(string(terraform), `"`+s.(string)+`"`) {
					t.Errorf("terraform/main.tf has no rule for %q", s)
				}
			}
		}
	}
}

// noticesOf are events that an EventBridge pattern lets through, one for each state.
func noticesOf(pattern map[string]any) []string {
	detail, _ := pattern["detail"].(map[string]any)
	states, ok := detail["state"].([]any)
	if !ok {
		states = []any{nil}
	}
	var out []string
	for _, state := range states {
		d := map[string]any{"instance-id": "i-1", "state": state}
		for k, v := range detail {
			if k != "state" {
				d[k] = v.([]any)[0]
			}
		}
		text, err := json.Marshal(map[string]any{"source": pattern["source"].([]any)[0], "detail-type": pattern["detail-type"].([]any)[0], "detail": d})
		if err != nil {
			panic(err) // it was read from YAML
		}
		out = append(out, string(text))
	}
	return out
}
