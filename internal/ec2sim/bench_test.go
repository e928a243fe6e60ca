package ec2sim_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/ec2sim"
)

// BenchmarkCalls measures the calls that cost the simulator most, without
// network or SDK.
func BenchmarkCalls(b *testing.B) {
	sim, err := ec2sim.New(ec2sim.Config{Unthrottled: true})
	if err != nil {
		b.Fatal(err)
	}
	defer sim.Close()
	call := func(b *testing.B, form url.Values) string {
		form.Set("Version", "2016-11-15")
		req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(form.Encode()))
		req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKID/20261130/us-west-2/ec2/aws4_request, SignedHeaders=host, Signature=00")
		w := httptest.NewRecorder()
		sim.ServeHTTP(w, req)
		if w.Code != http.StatusOK {
			b.Fatal(w.Body.String())
		}
		return w.Body.String()
	}
	between := func(text, open, end string) string {
		_, text, _ = strings.Cut(text, open)
		text, _, _ = strings.Cut(text, end)
		return text
	}
	image := between(call(b, url.Values{"Action": {"DescribeImages"}, "Filter.1.Name": {"name"}, "Filter.1.Value.1": {"amazon-eks-node-al2023-x86_64-standard-1.37-*"}}), "<imageId>", "</imageId>")
	call(b, url.Values{"Action": {"CreateLaunchTemplate"}, "LaunchTemplateName": {"nodes"}, "LaunchTemplateData.ImageId": {image}})
	fleet := url.Values{
		"Action": {"CreateFleet"}, "Type": {"instant"}, "TargetCapacitySpecification.TotalTargetCapacity": {"1"},
		"TargetCapacitySpecification.DefaultTargetCapacityType": {"spot"}, "SpotOptions.AllocationStrategy": {"price-capacity-optimized"},
		"LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName": {"nodes"},
	}
	n := 0
	for _, family := range []string{"c5", "c5a", "c6i", "c6a", "m5", "m5a", "m6i", "m6a", "r5", "r5a", "r6i", "r6a", "c7i", "m7i", "r7i"} {
		for _, size := range []string{"large", "xlarge", "2xlarge", "4xlarge"} {
			for _, zone := range []string{"us-west-2a", "us-west-2b", "us-west-2c"} {
				n++
				prefix := "LaunchTemplateConfigs.1.Overrides." + strconv.Itoa(n) + "."
				fleet.Set(prefix+"InstanceType", family+"."+size)
				fleet.Set(prefix+"AvailabilityZone", zone)
			}
		}
	}
	cases := []struct {
		name string
		form url.Values
	}{
		{"CreateFleet/overrides=180", fleet},
		{"DescribeInstanceTypes/page=100", url.Values{"Action": {"DescribeInstanceTypes"}, "MaxResults": {"100"}}},
		{"DescribeSpotPriceHistory/page=2000", url.Values{"Action": {"DescribeSpotPriceHistory"}, "MaxResults": {"2000"}}},
		{"DescribeInstances/tag", url.Values{"Action": {"DescribeInstances"}, "Filter.1.Name": {"tag-key"}, "Filter.1.Value.1": {"aws:ec2:fleet-id"}, "MaxResults": {"1000"}}},
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				call(b, c.form)
			}
		})
	}
}
