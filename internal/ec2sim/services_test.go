package ec2sim_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/coppice-dev/coppice/internal/catalogue"
	"github.com/coppice-dev/coppice/internal/ec2sim"
)

func TestSSM(t *testing.T) {
	w := newWorld(t)
	client := ssm.NewFromConfig(w.aws)
	get := func(name string) (string, error) {
		out, err := client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String(name)})
		if err != nil {
			return "", err
		}
		return *out.Parameter.Value, nil
	}
	const base = "/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/"
	seen := map[string]bool{}
	for _, variant := range []string{"x86_64/standard", "arm64/standard", "x86_64/nvidia", "arm64/nvidia", "x86_64/neuron"} {
		id := must(get(base + variant + "/recommended/image_id"))(t)
		arch, _, _ := strings.Cut(variant, "/")
		out := must(w.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{ImageIds: []string{id}}))(t)
		if got := string(out.Images[0].Architecture); got != arch || seen[id] {
			t.Errorf("%s: image %s is for %s", variant, id, got)
		}
		seen[id] = true
		name := must(get(base + variant + "/recommended/image_name"))(t)
		if name != *out.Images[0].Name || *out.Images[0].CreationDate != "2026-11-19T21:00:00.000Z" {
			t.Errorf("%s: name %s, image %s of %s", variant, name, *out.Images[0].Name, *out.Images[0].CreationDate)
		}
	}
	// A pinned release.
	older := must(get(base + "x86_64/standard/amazon-eks-node-al2023-x86_64-standard-1.37-v20261022/image_id"))(t)
	if seen[older] || !strings.HasPrefix(older, "ami-") {
		t.Errorf("older release: %s", older)
	}
	// A new release takes over.
	w.do(ec2sim.Step{Release: &ec2sim.Release{Date: "20261203"}})
	if id := must(get(base + "x86_64/standard/recommended/image_id"))(t); seen[id] {
		t.Errorf("the recommended image is still %s", id)
	}
	// The other families.
	for name, arch := range map[string]string{
		"/aws/service/eks/optimized-ami/1.30/amazon-linux-2-arm64/recommended/image_id":                      "arm64",
		"/aws/service/eks/optimized-ami/1.30/amazon-linux-2-gpu/amazon-eks-gpu-node-1.30-v20241109/image_id": "x86_64",
		"/aws/service/bottlerocket/aws-k8s-1.33/arm64/latest/image_id":                                       "arm64",
		"/aws/service/bottlerocket/aws-k8s-1.33-nvidia/x86_64/1.20.4/image_id":                               "x86_64",
		"/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.33/image_id":       "x86_64",
	} {
		out := must(w.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{ImageIds: []string{must(get(name))(t)}, Owners: []string{"amazon"}}))(t)
		if len(out.Images) != 1 || string(out.Images[0].Architecture) != arch {
			t.Errorf("%s: %+v", name, out.Images)
		}
	}
	for _, name := range []string{base + "arm64/neuron/recommended/image_id", "/aws/service/eks/optimized-ami/1.12/amazon-linux-2/recommended/image_id", "/mine"} {
		_, err := get(name)
		wantCode(t, name, err, "ParameterNotFound")
	}
}

func TestOwnImages(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	in := &ec2.RegisterImageInput{Name: aws.String("golden-1"), Architecture: "arm64", RootDeviceName: aws.String("/dev/xvda"),
		TagSpecifications: []ec2types.TagSpecification{tagged("image", "golden", "true")}}
	made := must(w.ec2.RegisterImage(ctx, in))(t)
	_, err := w.ec2.RegisterImage(ctx, in)
	wantCode(t, "a second of the name", err, "InvalidAMIName.Duplicate")
	for what, in := range map[string]*ec2.DescribeImagesInput{
		"owner": {Owners: []string{"self"}},
		"tag":   {Filters: []ec2types.Filter{filter("tag:golden", "true")}},
		"name":  {Filters: []ec2types.Filter{filter("name", "golden-*")}, Owners: []string{"self", "amazon"}},
	} {
		out := must(w.ec2.DescribeImages(ctx, in))(t)
		if len(out.Images) != 1 || *out.Images[0].ImageId != *made.ImageId || *out.Images[0].OwnerId != "123456789012" {
			t.Errorf("by %s: %+v", what, out.Images)
		}
	}
	must(w.ec2.DeregisterImage(ctx, &ec2.DeregisterImageInput{ImageId: made.ImageId}))(t)
	_, err = w.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{*made.ImageId}})
	wantCode(t, "after deregistration", err, "InvalidAMIID.NotFound")
	_, err = w.ec2.DeregisterImage(ctx, &ec2.DeregisterImageInput{ImageId: aws.String(w.image("arm64"))})
	wantCode(t, "somebody else's", err, "AuthFailure")
}

func TestIAM(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.Roles = []string{"NodeRole"} })
	client := iam.NewFromConfig(w.aws)
	ctx := t.Context()
	name := aws.String("demo_123")
	_, err := client.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: name})
	wantCode(t, "get before", err, "NoSuchEntity")
	create := &iam.CreateInstanceProfileInput{
		InstanceProfileName: name, Path: aws.String("/karpenter/us-west-2/demo/uid/"),
		Tags: []iamtypes.Tag{{Key: aws.String("eks:eks-cluster-name"), Value: aws.String("demo")}},
	}
	made := must(client.CreateInstanceProfile(ctx, create))(t)
	if *made.InstanceProfile.Arn != "arn:aws:iam::123456789012:instance-profile/karpenter/us-west-2/demo/uid/demo_123" {
		t.Errorf("ARN %s", *made.InstanceProfile.Arn)
	}
	_, err = client.CreateInstanceProfile(ctx, create)
	wantCode(t, "create twice", err, "EntityAlreadyExists")
	add := &iam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: aws.String("NodeRole")}
	must(client.AddRoleToInstanceProfile(ctx, add))(t)
	_, err = client.AddRoleToInstanceProfile(ctx, add)
	wantCode(t, "a second role", err, "LimitExceeded")
	_, err = client.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: aws.String("node"), RoleName: aws.String("Missing")})
	wantCode(t, "a missing role", err, "NoSuchEntity")
	got := must(client.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: name}))(t).InstanceProfile
	if len(got.Roles) != 1 || *got.Roles[0].RoleName != "NodeRole" || len(got.Tags) != 1 || *got.Tags[0].Value != "demo" {
		t.Errorf("profile %+v", got)
	}
	must(client.TagInstanceProfile(ctx, &iam.TagInstanceProfileInput{InstanceProfileName: name, Tags: []iamtypes.Tag{{Key: aws.String("more"), Value: aws.String("x")}}}))(t)
	must(client.UntagInstanceProfile(ctx, &iam.UntagInstanceProfileInput{InstanceProfileName: name, TagKeys: []string{"eks:eks-cluster-name"}}))(t)
	got = must(client.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: name}))(t).InstanceProfile
	if len(got.Tags) != 1 || *got.Tags[0].Key != "more" {
		t.Errorf("tags %+v", got.Tags)
	}
	if role := must(client.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String("NodeRole")}))(t).Role; *role.Arn != "arn:aws:iam::123456789012:role/NodeRole" {
		t.Errorf("role %+v", role)
	}
	_, err = client.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String("Missing")})
	wantCode(t, "get a missing role", err, "NoSuchEntity")
	list := must(client.ListInstanceProfiles(ctx, &iam.ListInstanceProfilesInput{PathPrefix: aws.String("/karpenter/us-west-2/demo/")}))(t)
	if len(list.InstanceProfiles) != 1 || *list.InstanceProfiles[0].InstanceProfileName != *name {
		t.Errorf("profiles under the path: %+v", list.InstanceProfiles)
	}
	_, err = client.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: name})
	wantCode(t, "delete with its role", err, "DeleteConflict")
	must(client.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: name, RoleName: aws.String("NodeRole")}))(t)
	must(client.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: name}))(t)
	_, err = client.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: name})
	wantCode(t, "delete twice", err, "NoSuchEntity")

	for n := range 7 {
		must(client.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String(fmt.Sprint("p", n))}))(t)
	}
	pages := iam.NewListInstanceProfilesPaginator(client, &iam.ListInstanceProfilesInput{MaxItems: aws.Int32(3)})
	n := 0
	for pages.HasMorePages() {
		n += len(must(pages.NextPage(ctx))(t).InstanceProfiles)
	}
	if n != 8 {
		t.Errorf("%d profiles over all pages, want 8", n)
	}
}

func TestSTSAndEKS(t *testing.T) {
	w := newWorld(t)
	who := must(sts.NewFromConfig(w.aws).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{}))(t)
	if *who.Account != "123456789012" || !strings.HasPrefix(*who.Arn, "arn:aws:iam::123456789012:") {
		t.Errorf("caller %s of %s", *who.Arn, *who.Account)
	}
	client := eks.NewFromConfig(w.aws)
	got := must(client.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("demo")}))(t).Cluster
	if *got.Endpoint != "https://127.0.0.1:6443" || *got.KubernetesNetworkConfig.ServiceIpv4Cidr != "10.96.0.0/16" || *got.Version != "1.37" || got.Status != "ACTIVE" {
		t.Errorf("cluster %+v", got)
	}
	if ca, err := base64.StdEncoding.DecodeString(*got.CertificateAuthority.Data); err != nil || string(ca) != "PEM" {
		t.Errorf("certificate authority %q: %v", ca, err)
	}
	_, err := client.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("other")})
	wantCode(t, "unknown cluster", err, "ResourceNotFoundException")
	if err := w.sim.PutCluster(ec2sim.Cluster{Name: "other", Version: "1.36"}); err != nil {
		t.Fatal(err)
	}
	if got := must(client.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: aws.String("other")}))(t); *got.Cluster.Version != "1.36" {
		t.Errorf("version %s", *got.Cluster.Version)
	}
	if list := must(client.ListClusters(t.Context(), &eks.ListClustersInput{}))(t); len(list.Clusters) != 2 {
		t.Errorf("clusters %q", list.Clusters)
	}
}

func TestPricing(t *testing.T) {
	w := newWorld(t)
	client := pricing.NewFromConfig(w.client("AKID", "secret", "us-east-1"))
	match := func(field, value string) pricingtypes.Filter {
		return pricingtypes.Filter{Field: aws.String(field), Type: pricingtypes.FilterTypeTermMatch, Value: aws.String(value)}
	}
	filters := func(tenancy, family string) []pricingtypes.Filter {
		return []pricingtypes.Filter{
			match("regionCode", "us-west-2"), match("serviceCode", "AmazonEC2"), match("preInstalledSw", "NA"), match("operatingSystem", "Linux"),
			match("capacitystatus", "Used"), match("marketoption", "OnDemand"), match("tenancy", tenancy), match("productFamily", family),
		}
	}
	prices := map[string]string{}
	for tenancy, family := range map[string]string{"Shared": "Compute Instance", "Dedicated": "Compute Instance (bare metal)"} {
		pages := pricing.NewGetProductsPaginator(client, &pricing.GetProductsInput{ServiceCode: aws.String("AmazonEC2"), Filters: filters(tenancy, family)})
		before := len(prices)
		for pages.HasMorePages() {
			for _, text := range must(pages.NextPage(t.Context()))(t).PriceList {
				var item struct {
					Product struct{ Attributes struct{ InstanceType string } }
					Terms   struct {
						OnDemand map[string]struct {
							PriceDimensions map[string]struct{ PricePerUnit struct{ USD string } }
						}
					}
				}
				if err := json.Unmarshal([]byte(text), &item); err != nil {
					t.Fatal(err)
				}
				for _, term := range item.Terms.OnDemand {
					for _, d := range term.PriceDimensions {
						prices[item.Product.Attributes.InstanceType] = d.PricePerUnit.USD
					}
				}
			}
		}
		if len(prices) == before {
			t.Errorf("no prices for %s", family)
		}
	}
	want := 0
	for _, typ := range catalogue.Get().Types() {
		if p, ok := catalogue.Get().Price(typ.Name, "us-west-2"); ok && p.OnDemand > 0 {
			want++
		}
	}
	if len(prices) != want {
		t.Errorf("%d prices, want %d", len(prices), want)
	}
	for typ, want := range map[string]string{"m5.large": "0.0960000000", "m5.metal": "4.6080000000"} {
		if prices[typ] != want {
			t.Errorf("%s costs %q, want %q", typ, prices[typ], want)
		}
	}
	_, err := client.GetProducts(t.Context(), &pricing.GetProductsInput{ServiceCode: aws.String("AmazonS3")})
	wantCode(t, "another service", err, "InvalidParameterException")
}

// send signs a request for a service and returns status and body.
func (w *world) send(method, path, service, body string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if service != "" {
		creds := must(w.aws.Credentials.Retrieve(w.t.Context()))(w.t)
		const unsigned = "UNSIGNED-PAYLOAD"
		req.Header.Set("X-Amz-Content-Sha256", unsigned)
		if err := v4.NewSigner().SignHTTP(w.t.Context(), creds, req, unsigned, service, w.aws.Region, time.Now()); err != nil {
			w.t.Fatal(err)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, string(must(io.ReadAll(resp.Body))(w.t))
}

func TestZonalShift(t *testing.T) {
	w := newWorld(t)
	const arn = "arn:aws:eks:us-west-2:123456789012:cluster/demo"
	const service = "arc-zonal-shift"
	resource := "/managedresources/" + url.PathEscape(arn)
	weights := func() map[string]float64 {
		t.Helper()
		status, body := w.send("GET", resource, service, "")
		var out struct{ AppliedWeights map[string]float64 }
		if err := json.Unmarshal([]byte(body), &out); err != nil || status != 200 {
			t.Fatalf("status %d, %v: %s", status, err, body)
		}
		return out.AppliedWeights
	}
	if got := weights(); len(got) != 4 || got["usw2-az1"] != 1 {
		t.Errorf("weights %v, want 1 in each zone", got)
	}
	shift := `{"resourceIdentifier":"` + arn + `","awayFrom":"usw2-az1","expiresIn":"30m","comment":"drill"}`
	if status, body := w.send("POST", "/zonalshifts", service, shift); status != 200 {
		t.Fatalf("start: %d %s", status, body)
	}
	if status, _ := w.send("POST", "/zonalshifts", service, shift); status != 409 {
		t.Errorf("a second shift: status %d, want 409", status)
	}
	if got := weights(); got["usw2-az1"] != 0 || got["usw2-az2"] != 1 {
		t.Errorf("weights %v, want none in usw2-az1", got)
	}
	w.clock.Advance(30 * time.Minute)
	if got := weights(); got["usw2-az1"] != 1 {
		t.Errorf("weights %v after the shift has expired", got)
	}
	_, body := w.send("POST", "/zonalshifts", service, shift)
	var made struct{ ZonalShiftID string }
	if err := json.Unmarshal([]byte(body), &made); err != nil || made.ZonalShiftID == "" {
		t.Fatalf("start again: %v: %s", err, body)
	}
	if _, body := w.send("GET", "/zonalshifts?resourceIdentifier="+url.QueryEscape(arn), service, ""); strings.Count(body, "zonalShiftId") != 1 || !strings.Contains(body, made.ZonalShiftID) {
		t.Errorf("shifts %s", body)
	}
	if status, body := w.send("DELETE", "/zonalshifts/"+made.ZonalShiftID, service, ""); status != 200 || !strings.Contains(body, "CANCELED") {
		t.Errorf("cancel: %d %s", status, body)
	}
	if status, _ := w.send("DELETE", "/zonalshifts/"+made.ZonalShiftID, service, ""); status != 409 {
		t.Errorf("cancel twice: %d, want 409", status)
	}
	if status, _ := w.send("GET", "/managedresources/"+url.PathEscape(arn+"x"), service, ""); status != 404 {
		t.Errorf("an unknown cluster: status %d, want 404", status)
	}
}

func TestSignatures(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.Keys = map[string]string{"AKIDEXAMPLE": "secret"} })
	ctx := t.Context()
	calls := func(c aws.Config) map[string]error {
		errs := map[string]error{}
		_, errs["ec2"] = ec2.NewFromConfig(c).DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{})
		_, errs["ssm"] = ssm.NewFromConfig(c).GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String("/aws/service/eks/optimized-ami/1.37/amazon-linux-2023/arm64/standard/recommended/image_id")})
		_, errs["iam"] = iam.NewFromConfig(c).ListInstanceProfiles(ctx, &iam.ListInstanceProfilesInput{})
		_, errs["sts"] = sts.NewFromConfig(c).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
		_, errs["eks"] = eks.NewFromConfig(c).DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String("demo")})
		_, errs["pricing"] = pricing.NewFromConfig(c).GetProducts(ctx, &pricing.GetProductsInput{ServiceCode: aws.String("AmazonEC2"), MaxResults: aws.Int32(1)})
		return errs
	}
	for service, err := range calls(w.aws) {
		if err != nil {
			t.Errorf("%s with the right key: %v", service, err)
		}
	}
	codes := map[string]map[string]string{
		"secret": {"ec2": "AuthFailure", "iam": "SignatureDoesNotMatch", "sts": "SignatureDoesNotMatch",
			"ssm": "InvalidSignatureException", "eks": "InvalidSignatureException", "pricing": "InvalidSignatureException"},
		"key": {"ec2": "AuthFailure", "iam": "InvalidClientTokenId", "sts": "InvalidClientTokenId",
			"ssm": "UnrecognizedClientException", "eks": "UnrecognizedClientException", "pricing": "UnrecognizedClientException"},
		"region": {"ec2": "AuthFailure", "iam": "SignatureDoesNotMatch", "sts": "SignatureDoesNotMatch",
			"ssm": "InvalidSignatureException", "eks": "InvalidSignatureException"},
	}
	for what, c := range map[string]aws.Config{
		"secret": w.client("AKIDEXAMPLE", "wrong", "us-west-2"),
		"key":    w.client("AKIDOTHER", "secret", "us-west-2"),
		"region": w.client("AKIDEXAMPLE", "secret", "eu-central-1"),
	} {
		for service, err := range calls(c) {
			want, refused := codes[what][service]
			if refused {
				wantCode(t, service+" with the wrong "+what, err, want)
			} else if err != nil {
				t.Errorf("%s with the %s: %v", service, what, err)
			}
		}
	}
	if status, body := w.send("POST", "/?Action=DescribeSubnets&Version=2016-11-15", "", ""); status != 403 || !strings.Contains(body, "MissingAuthenticationToken") {
		t.Errorf("unsigned: %d %s", status, body)
	}
	if status, _ := w.send("GET", "/managedresources/"+url.PathEscape("arn:aws:eks:us-west-2:123456789012:cluster/demo"), "arc-zonal-shift", ""); status != 200 {
		t.Errorf("a path with escapes: status %d, want a valid signature", status)
	}
}

func TestThrottling(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	in := &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{filter("tag-key", "Name")}}
	for n := range 100 {
		if _, err := w.ec2.DescribeSubnets(ctx, in); err != nil {
			t.Fatalf("call %d: %v", n+1, err)
		}
	}
	_, err := w.ec2.DescribeSubnets(ctx, in)
	wantCode(t, "call 101", err, "RequestLimitExceeded")
	if _, err := w.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: w.groups()}); err != nil {
		t.Errorf("another action is throttled too: %v", err)
	}
	w.clock.Advance(time.Second)
	for n := range 20 {
		if _, err := w.ec2.DescribeSubnets(ctx, in); err != nil {
			t.Fatalf("call %d after a second: %v", n+1, err)
		}
	}
	_, err = w.ec2.DescribeSubnets(ctx, in)
	wantCode(t, "call 21 after a second", err, "RequestLimitExceeded")

	// Lists of everything have a smaller bucket.
	for range 50 {
		if _, err := w.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = w.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
	wantCode(t, "list 51", err, "RequestLimitExceeded")
	if _, err := w.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{MaxResults: aws.Int32(1000)}); err != nil {
		t.Errorf("a paged list is throttled with the unpaged ones: %v", err)
	}

	found := false
	for _, c := range w.sim.Counters() {
		if c.Action == "ec2:DescribeSubnets" {
			found = true
			if c.Calls != 122 || c.Errors["RequestLimitExceeded"] != 2 {
				t.Errorf("counted %+v, want 122 calls and 2 refusals", c)
			}
		}
	}
	if !found {
		t.Error("no counter for DescribeSubnets")
	}
	w.sim.ResetCounters()
	if got := w.sim.Counters(); len(got) != 0 {
		t.Errorf("counters after a reset: %+v", got)
	}
}
