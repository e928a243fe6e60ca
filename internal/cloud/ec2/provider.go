package ec2

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/cloud"
)

// How long answers are trusted. Where Karpenter has a period, it is the longest
// that keeps the same promise to users with fewer calls.
const (
	// selectionTTL is for what selectors find: several classes with the same terms
	// share a call, and a class that is looked at again within it costs none.
	selectionTTL = time.Minute
	// parameterTTL is for public SSM parameters. "recommended" moves about once a week.
	parameterTTL = time.Hour
	profileTTL   = 15 * time.Minute
	clusterTTL   = 5 * time.Minute
	templateTTL  = 12 * time.Hour
	// listTTL lets one list of instances answer for all who wait for a change.
	// Instances take tens of seconds to change state.
	listTTL = 2 * time.Second

	// terminateWindow is how long a termination waits for others to share its call.
	terminateWindow = 100 * time.Millisecond
	// terminateMax is the most that one TerminateInstances takes.
	// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html
	terminateMax = 1000

	// idleConnections to one endpoint are kept: as many as launches may be under way.
	idleConnections = 100
)

// defaultMemoryOverhead is the part of a machine's memory that its guest never
// sees, as Karpenter assumes it by default.
const defaultMemoryOverhead = 0.075

// Config says which cluster the provider works for. Credentials, region and
// endpoints come from the SDK's default chain (environment, shared files, the
// instance's role); AWS_ENDPOINT_URL sends every service elsewhere.
type Config struct {
	// ClusterName is required. It is in the tags by which instances are found.
	ClusterName string
	// Region, if set, wins over the SDK's default chain.
	Region string
	// ClusterEndpoint is the API server's URL for nodes. Empty asks EKS.
	ClusterEndpoint string
	// ClusterCA is the API server's CA bundle, PEM in base64. Empty asks EKS, if it
	// is asked for something else anyway, and otherwise leaves it out.
	ClusterCA string
	// ClusterCIDR is the range of service addresses, which also tells IPv6 clusters from
	// IPv4. Empty asks EKS, unless the image family is Custom.
	ClusterCIDR string
	// KubernetesVersion tells the control plane's version, as in "1.33". Nil asks EKS.
	KubernetesVersion func(ctx context.Context) (string, error)
	// MemoryOverhead is the part of a machine's memory that its guest never sees, until
	// a node of its type and image has been observed. Nil means 0.075.
	MemoryOverhead *float64
	// ReservedENIs are network interfaces that pods get no addresses from.
	ReservedENIs int
	// IsolatedVPC has no way to the Pricing API: prices come from the catalogue.
	IsolatedVPC bool
	// DisableDryRun leaves out the calls that check permissions before a launch does.
	DisableDryRun bool
	// ZonalShift follows zonal shifts of the cluster: nothing is launched in a zone that
	// its traffic is moved away from.
	ZonalShift bool
	// InterruptionQueue is the name of the SQS queue that EventBridge sends notices to.
	InterruptionQueue string
	// AMIRefresh, SubnetRefresh and SecurityGroupRefresh are how long what selectors found
	// is taken to hold. Zero means a minute, which is also the least.
	AMIRefresh, SubnetRefresh, SecurityGroupRefresh time.Duration
	// Clock is the time that caches and conditions follow. Nil means real time.
	Clock clock.PassiveClock
}

func (c *Config) validate() error {
	if c.ClusterName == "" {
		return fmt.Errorf("cluster name is empty; set CLUSTER_NAME")
	}
	if o := c.MemoryOverhead; o != nil && (*o < 0 || *o >= 1) {
		return fmt.Errorf("memory overhead %v is not a part of the whole, as in 0.075", *o)
	}
	if c.ReservedENIs < 0 {
		return fmt.Errorf("reserved ENIs %d must not be negative", c.ReservedENIs)
	}
	for _, x := range []struct {
		name     string
		interval time.Duration
	}{{"AMI", c.AMIRefresh}, {"subnet", c.SubnetRefresh}, {"security group", c.SecurityGroupRefresh}} {
		if x.interval != 0 && x.interval < selectionTTL {
			return fmt.Errorf("%s refresh interval %s must be at least %s", x.name, x.interval, selectionTTL)
		}
	}
	return nil
}

var _ cloud.Provider = (*Provider)(nil)

// Provider is Amazon EC2. Every method may be called concurrently.
type Provider struct {
	cfg     Config
	region  string
	clock   clock.PassiveClock
	started time.Time

	ec2     *ec2.Client
	ssm     *ssm.Client
	iam     *iam.Client
	eks     *eks.Client
	pricing *pricing.Client
	sqs     *sqs.Client
	shift   *arczonalshift.Client

	overheadPPM int64

	subnets      *memo[string, []ec2types.Subnet]
	groups       *memo[string, []ec2types.SecurityGroup]
	images       *memo[string, []ec2types.Image]
	reservations *memo[string, []ec2types.CapacityReservation]
	placements   *memo[string, []ec2types.PlacementGroup]
	parameters   *memo[string, string]
	profiles     *memo[string, time.Time] // when each was made
	clusters     *memo[struct{}, clusterInfo]
	templates    *memo[string, struct{}]
	lists        *memo[struct{}, []cloud.Instance]
	queues       *memo[string, string]

	machines *feed[machineList]
	prices   *feed[map[string]int64]
	spots    *feed[map[spotPool]int64]
	shifts   *feed[map[string]bool] // by zone ID

	unavailable *unavailable
	memory      memoryLog
	launches    launchLog
	recent      recentInstances
	addresses   addressLog
	reserved    reservedLog
	checks      checkLog
	sweeps      sweepLog
	terminates  *batcher[string]

	mu    sync.Mutex
	types map[string]*typeList // by class name
}

// New makes a provider from the SDK's default configuration chain. It calls
// nothing yet.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("EC2 provider: %w", err)
	}
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = idleConnections
	})
	// A retryer of one's own keeps the SDK from reading AWS_MAX_ATTEMPTS.
	env, err := config.NewEnvConfig()
	if err != nil {
		return nil, fmt.Errorf("read AWS settings from the environment: %w", err)
	}
	pacer := func() awssdk.Retryer { return newPace(cmp.Or(env.RetryMaxAttempts, maxAttempts)) }
	options := []func(*config.LoadOptions) error{config.WithHTTPClient(client), config.WithAppID("coppice"), config.WithRetryer(pacer)}
	if cfg.Region != "" {
		options = append(options, config.WithRegion(cfg.Region))
	}
	sdk, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("load AWS configuration: %w", err)
	}
	if sdk.Region == "" {
		return nil, fmt.Errorf("AWS region is unknown; set AWS_REGION")
	}
	clk := cfg.Clock
	if clk == nil {
		clk = clock.RealClock{}
	}
	overhead := defaultMemoryOverhead
	if cfg.MemoryOverhead != nil {
		overhead = *cfg.MemoryOverhead
	}
	p := &Provider{
		cfg:     cfg,
		region:  sdk.Region,
		clock:   clk,
		started: clk.Now(),

		ec2: ec2.NewFromConfig(sdk),
		ssm: ssm.NewFromConfig(sdk),
		iam: iam.NewFromConfig(sdk),
		eks: eks.NewFromConfig(sdk),
		pricing: pricing.NewFromConfig(sdk, func(o *pricing.Options) {
			o.Region = pricingRegion(sdk.Region)
		}),
		sqs:   sqs.NewFromConfig(sdk),
		shift: arczonalshift.NewFromConfig(sdk),

		overheadPPM: int64(overhead*1e6 + 0.5),

		subnets:      newMemo[string, []ec2types.Subnet](clk, cmp.Or(cfg.SubnetRefresh, selectionTTL)),
		groups:       newMemo[string, []ec2types.SecurityGroup](clk, cmp.Or(cfg.SecurityGroupRefresh, selectionTTL)),
		images:       newMemo[string, []ec2types.Image](clk, cmp.Or(cfg.AMIRefresh, selectionTTL)),
		reservations: newMemo[string, []ec2types.CapacityReservation](clk, selectionTTL),
		placements:   newMemo[string, []ec2types.PlacementGroup](clk, selectionTTL),
		parameters:   newMemo[string, string](clk, parameterTTL),
		profiles:     newMemo[string, time.Time](clk, profileTTL),
		clusters:     newMemo[struct{}, clusterInfo](clk, clusterTTL),
		templates:    newMemo[string, struct{}](clk, templateTTL),
		lists:        newMemo[struct{}, []cloud.Instance](clk, listTTL),
		queues:       newMemo[string, string](clk, templateTTL),

		unavailable: newUnavailable(),
		types:       map[string]*typeList{},
	}
	p.machines = &feed[machineList]{clock: clk, every: machinesEvery, load: p.loadMachines}
	p.prices = &feed[map[string]int64]{clock: clk, every: pricesEvery, load: p.loadPrices}
	p.spots = &feed[map[spotPool]int64]{clock: clk, every: spotsEvery, load: p.loadSpotPrices}
	p.shifts = &feed[map[string]bool]{clock: clk, every: shiftsEvery, load: p.loadShifts}
	p.terminates = &batcher[string]{window: terminateWindow, max: terminateMax, do: p.terminateAll}
	return p, nil
}

// Region is the region that the provider launches in.
func (p *Provider) Region() string { return p.region }

// pricingRegion is the nearest region that has the Pricing API.
// https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html
func pricingRegion(region string) string {
	switch {
	case strings.HasPrefix(region, "ap-"):
		return "ap-south-1"
	case strings.HasPrefix(region, "eu-"):
		return "eu-central-1"
	case strings.HasPrefix(region, "cn-"):
		return "cn-northwest-1"
	}
	return "us-east-1"
}

// clusterInfo is what EKS says of the cluster.
type clusterInfo struct {
	cluster
	arn     string
	version string
	ipv6    bool
}

// describeCluster asks EKS, at most every few minutes.
func (p *Provider) describeCluster(ctx context.Context) (clusterInfo, error) {
	return p.clusters.get(ctx, struct{}{}, func(ctx context.Context) (clusterInfo, error) {
		out, err := p.eks.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &p.cfg.ClusterName})
		if err != nil {
			return clusterInfo{}, failed("describe EKS cluster "+p.cfg.ClusterName, err)
		}
		info := clusterInfo{
			cluster: cluster{name: p.cfg.ClusterName, endpoint: deref(out.Cluster.Endpoint)},
			arn:     deref(out.Cluster.Arn),
			version: deref(out.Cluster.Version),
		}
		if ca := out.Cluster.CertificateAuthority; ca != nil {
			info.ca = deref(ca.Data)
		}
		if n := out.Cluster.KubernetesNetworkConfig; n != nil {
			info.ipv6 = n.IpFamily == "ipv6"
			info.cidr = deref(n.ServiceIpv4Cidr)
			if info.ipv6 {
				info.cidr = deref(n.ServiceIpv6Cidr)
			}
		}
		return info, nil
	})
}

// cluster returns what a node of the family has to know. EKS is asked only for
// what the configuration leaves open.
func (p *Provider) cluster(ctx context.Context, f family) (clusterInfo, error) {
	info := clusterInfo{cluster: cluster{
		name: p.cfg.ClusterName, endpoint: p.cfg.ClusterEndpoint, ca: p.cfg.ClusterCA, cidr: p.cfg.ClusterCIDR,
	}}
	if info.endpoint == "" || info.cidr == "" && f != custom {
		asked, err := p.describeCluster(ctx)
		// Only AL2023 needs the range itself; a cluster that EKS doesn't know is of IPv4
		// unless its range says otherwise.
		elsewhere := code(err) == codeNoCluster && info.endpoint != "" && f != al2023
		if err != nil && !elsewhere {
			return clusterInfo{}, err
		}
		info.ipv6 = asked.ipv6
		for _, x := range []struct {
			to   *string
			from string
		}{{&info.endpoint, asked.endpoint}, {&info.ca, asked.ca}, {&info.cidr, asked.cidr}} {
			if *x.to == "" {
				*x.to = x.from
			}
		}
	}
	info.ipv6 = info.ipv6 || strings.Contains(info.cidr, ":")
	return info, nil
}

// kubernetesMinor is the control plane's version as image names have it: "1.33".
func (p *Provider) kubernetesMinor(ctx context.Context) (string, error) {
	version := ""
	if p.cfg.KubernetesVersion != nil {
		v, err := p.cfg.KubernetesVersion(ctx)
		if err != nil {
			return "", fmt.Errorf("read the control plane's version: %w", err)
		}
		version = v
	} else {
		info, err := p.describeCluster(ctx)
		if err != nil {
			return "", err
		}
		version = info.version
	}
	return minorVersion(version)
}

// minorVersion shortens "v1.33.2-eks-1de2ab1" and "1.33+" to "1.33".
func minorVersion(version string) (string, error) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) >= 2 {
		minor := parts[1][:len(parts[1])-len(strings.TrimLeft(parts[1], "0123456789"))]
		if parts[0] != "" && minor != "" {
			return parts[0] + "." + minor, nil
		}
	}
	return "", fmt.Errorf("control plane version %q is not major.minor", version)
}
