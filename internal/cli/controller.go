package cli

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/coppice-dev/coppice/internal/cloud/ec2"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/isolate"
	"github.com/coppice-dev/coppice/internal/snapshot"
	"github.com/coppice-dev/coppice/policies"
	"github.com/coppice-dev/coppice/reconcile"
	"github.com/coppice-dev/coppice/reconcile/disrupt"
	"github.com/coppice-dev/coppice/reconcile/interrupt"
	"github.com/coppice-dev/coppice/reconcile/lifecycle"
	"github.com/coppice-dev/coppice/reconcile/provision"
	"github.com/coppice-dev/coppice/reconcile/source"
)

// controllerOptions are the flags of "coppice controller". Each flag has an
// environment variable, of Karpenter's name where Karpenter has one, that is read
// when the flag isn't given.
type controllerOptions struct {
	kubeconfig      string
	context         string // of the kubeconfig, "" for its current one
	clusterName     string
	clusterEndpoint string
	clusterCA       string
	clusterCIDR     string
	region          string

	engine         string
	evaluation     limits
	batch          provision.Batch
	limits         map[string]string
	preferences    string
	minValues      string
	timeouts       lifecycle.Timeouts
	metricsAddress string
	healthAddress  string
	secureAddress  string
	webhookAddress string
	eventsAddress  string
	leaderElection bool
	leaseNamespace string
	leaseDuration  time.Duration
	qps            float32
	burst          int
	memoryOverhead float64
	logLevel       string
	isolatedVPC    bool
	disableDryRun  bool
	reservedENIs   int
	queue          string
	zonalShift     bool
	amis           time.Duration
	subnets        time.Duration
	securityGroups time.Duration
	rebalance      bool
	gates          string
	memoryLimit    int64
	profiling      bool
	karpenter      karpenterFlags
	// idle tells of what was given and changes nothing.
	idle []string
}

func newControllerCommand(s Streams) *cobra.Command {
	var o controllerOptions
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Reconcile NodeSources, NodePools and NodeClaims in a cluster",
		Long: `Run the controllers: fetch what NodeSources name, apply it, launch nodes for
pending pods, remove empty and expired ones, and commit drift reports.

Every flag can be given as an environment variable, shown in brackets; a flag wins.
AWS credentials and endpoints come from the AWS SDK's usual places.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags()); err != nil {
				return &ExitError{Code: ExitUsage, Err: err}
			}
			var err error
			if o.idle, err = o.karpenter.apply(&o, cmd.Flags()); err != nil {
				return &ExitError{Code: ExitUsage, Err: err}
			}
			if o.clusterName == "" {
				return &ExitError{Code: ExitUsage, Err: errors.New("the cluster's name isn't known; give --cluster-name or CLUSTER_NAME")}
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if err := runController(ctx, s, o); err != nil && ctx.Err() == nil {
				return failed(err)
			}
			return nil
		},
	}
	o.register(cmd.Flags())
	return cmd
}

func (o *controllerOptions) register(f *pflag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; in a pod the service account is used [KUBECONFIG]")
	f.StringVar(&o.clusterName, "cluster-name", "", "the cluster's name, as in its EKS name or the tag kubernetes.io/cluster/NAME (required) [CLUSTER_NAME]")
	f.StringVar(&o.clusterEndpoint, "cluster-endpoint", "", "the API server's `URL` as nodes reach it; asked of EKS if empty [CLUSTER_ENDPOINT]")
	f.StringVar(&o.clusterCA, "cluster-ca-bundle", "", "the API server's CA for nodes, base64; taken from the kubeconfig if empty [CLUSTER_CA_BUNDLE]")
	f.StringVar(&o.clusterCIDR, "cluster-cidr", "", "the range of Service addresses; asked of EKS if empty [CLUSTER_CIDR]")
	f.StringVar(&o.engine, "engine", "on", "on, or off to leave nodes to Karpenter: NodeSources are applied and reported on, nodes aren't touched [ENGINE]")
	f.StringVar(&o.region, "region", "", "AWS region; the SDK's own rules apply if empty [AWS_REGION]")
	f.DurationVar(&o.batch.Idle, "batch-idle-duration", provision.DefaultBatch.Idle, "plan once no new pod has come for this long, doubled while nodes are opened again and again [BATCH_IDLE_DURATION]")
	f.DurationVar(&o.batch.Max, "batch-max-duration", provision.DefaultBatch.Max, "plan at the latest after this long [BATCH_MAX_DURATION]")
	f.StringToStringVar(&o.limits, "cluster-limits", nil, "what the nodes of all NodePools may add up to, as in cpu=1000,memory=4Ti,nodes=200; unlimited if empty [CLUSTER_LIMITS]")
	f.StringVar(&o.preferences, "preference-policy", "Priced", "what pods' preferences are worth: Priced (at most a cent an hour for a weight of 100), Respect (as requirements, given up one by one) or Ignore [PREFERENCE_POLICY]")
	f.StringVar(&o.minValues, "min-values-policy", "Strict", "what happens where a NodePool's minValues can't be met: Strict (no node) or BestEffort (a node with fewer) [MIN_VALUES_POLICY]")
	f.DurationVar(&o.timeouts.Launch, "launch-timeout", lifecycle.DefaultTimeouts.Launch, "give a NodeClaim up whose instance isn't launched after this long, 0 for never [LAUNCH_TIMEOUT]")
	f.DurationVar(&o.timeouts.Registration, "registration-timeout", lifecycle.DefaultTimeouts.Registration, "give a NodeClaim up whose instance hasn't become a Node this long after its launch, 0 for never [REGISTRATION_TIMEOUT]")
	f.DurationVar(&o.timeouts.Initialization, "initialization-timeout", lifecycle.DefaultTimeouts.Initialization, "give a NodeClaim up whose Node isn't ready for pods this long after its registration, 0 for never [INITIALIZATION_TIMEOUT]")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", "127.0.0.1:8080", "`host:port` of the metrics server, 0 for none [METRICS_BIND_ADDRESS]")
	f.StringVar(&o.healthAddress, "health-probe-bind-address", "127.0.0.1:8081", "`host:port` of the health probes, 0 for none [HEALTH_PROBE_BIND_ADDRESS]")
	f.StringVar(&o.secureAddress, "secure-bind-address", "127.0.0.1:8443", "`host:port` where 'coppice explain' asks for decisions and 'coppice plan' for prices and flags, and metrics are served over TLS, to users whom the API server lets get /decisions, /controller and /metrics; 0 for none [SECURE_BIND_ADDRESS]")
	f.StringVar(&o.webhookAddress, "webhook-bind-address", "0", "`host:port` where forges tell of pushes, at /hooks/NAMESPACE/NODESOURCE, 0 for none [WEBHOOK_BIND_ADDRESS]")
	f.StringVar(&o.eventsAddress, "events-addr", "", "`URL` of Flux's notification-controller, which events of NodeSources are posted to, as in http://notification-controller.flux-system.svc.cluster.local./ [EVENTS_ADDR]")
	f.BoolVar(&o.leaderElection, "leader-elect", true, "wait until no other replica leads [LEADER_ELECT]")
	f.StringVar(&o.leaseNamespace, "leader-election-namespace", "", "namespace of the Lease and of what is kept of the cloud; in a pod its own [LEADER_ELECTION_NAMESPACE]")
	f.DurationVar(&o.leaseDuration, "leader-election-lease-duration", 15*time.Second, "how long after the leader's death another may lead [LEADER_ELECTION_LEASE_DURATION]")
	f.Float32Var(&o.qps, "kube-client-qps", 200, "requests per second to the API server [KUBE_CLIENT_QPS]")
	f.IntVar(&o.burst, "kube-client-burst", 300, "requests to the API server in a burst [KUBE_CLIENT_BURST]")
	f.Float64Var(&o.memoryOverhead, "vm-memory-overhead-percent", 0.075, "share of an instance's memory that the hypervisor and kernel take, until a node of its type has been seen [VM_MEMORY_OVERHEAD_PERCENT]")
	f.DurationVar(&o.evaluation.time, "eval-time", 0, evalTimeUsage+" [EVAL_TIME]")
	f.Int64Var(&o.evaluation.memory, "eval-memory", 0, evalMemoryUsage+" [EVAL_MEMORY]")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error [LOG_LEVEL]")
	f.IntVar(&o.reservedENIs, "reserved-enis", 0, "network interfaces that pods get no addresses from [RESERVED_ENIS]")
	f.StringVar(&o.queue, "interruption-queue", "", "`name` of the SQS queue with EC2's notices; none is read if empty [INTERRUPTION_QUEUE]")
	f.BoolVar(&o.rebalance, "drain-on-rebalance", false, "take spot nodes away when EC2 recommends it, not only when it is certain [DRAIN_ON_REBALANCE]")
	f.BoolVar(&o.zonalShift, "enable-zonal-shift", false, "while a zonal shift moves the cluster's traffic away from a zone, launch no node there and take none there away voluntarily [ENABLE_ZONAL_SHIFT]")
	f.StringVar(&o.gates, "feature-gates", "", "Karpenter's `NAME=true,...`: SpotToSpotConsolidation and NodeRepair are known, others are ignored [FEATURE_GATES]")
	f.DurationVar(&o.amis, "ami-refresh-interval", time.Minute, "how long the images that a class selects are taken to be the same, a minute at least [AMI_REFRESH_INTERVAL]")
	f.DurationVar(&o.subnets, "subnet-refresh-interval", time.Minute, "the same for subnets [SUBNET_REFRESH_INTERVAL]")
	f.DurationVar(&o.securityGroups, "security-group-refresh-interval", time.Minute, "the same for security groups [SECURITY_GROUP_REFRESH_INTERVAL]")
	f.BoolVar(&o.disableDryRun, "disable-dry-run", false, "don't check permissions by dry runs before a NodeClass is ready [DISABLE_DRY_RUN]")
	f.Int64Var(&o.memoryLimit, "memory-limit", -1, "the container's memory in `bytes`, nine tenths of which the garbage collector tries to stay within; below 0 what the container's cgroup says, 0 for no bound [MEMORY_LIMIT]")
	f.BoolVar(&o.profiling, "enable-profiling", false, "serve Go's profiles below /debug/pprof of the metrics server [ENABLE_PROFILING]")
	o.karpenter.register(f)
	f.BoolVar(&o.isolatedVPC, "isolated-vpc", false, "don't ask the Pricing API, which has no VPC endpoint [ISOLATED_VPC]")
}

// fromEnvironment fills the flags that weren't given from their variables.
func fromEnvironment(f *pflag.FlagSet) error {
	var errs []error
	f.VisitAll(func(flag *pflag.Flag) {
		name := strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if flag.Name == "region" {
			name = "AWS_REGION"
		}
		v, ok := os.LookupEnv(name)
		// A Service called metrics puts METRICS_PORT=tcp://... into its namespace's pods.
		if strings.HasSuffix(name, "_PORT") && strings.HasPrefix(v, "tcp://") {
			return
		}
		if ok && !flag.Changed && v != "" && flag.Name != "help" {
			if err := f.Set(flag.Name, v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
	})
	return errors.Join(errs...)
}

func runController(ctx context.Context, s Streams, o controllerOptions) error {
	log, err := newLogger(s, o.logLevel)
	if err != nil {
		return err
	}
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	boundMemory(o.memoryLimit, "/")
	for _, word := range o.idle {
		log.Info(word)
	}

	limits, err := clusterLimits(o.limits)
	if err != nil {
		return err
	}
	preferences, err := cluster.PreferencePolicy(o.preferences)
	if err != nil {
		return &ExitError{Code: ExitUsage, Err: err}
	}
	minValues, err := cluster.MinValuesPolicy(o.minValues)
	if err != nil {
		return &ExitError{Code: ExitUsage, Err: err}
	}
	if o.engine != "on" && o.engine != "off" {
		return &ExitError{Code: ExitUsage, Err: fmt.Errorf("engine %q: give on or off", o.engine)}
	}
	if u, err := url.Parse(o.eventsAddress); o.eventsAddress != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return &ExitError{Code: ExitUsage, Err: fmt.Errorf("events address %q is no URL; give one as in http://notification-controller.flux-system.svc.cluster.local./", o.eventsAddress)}
	}
	kube, err := kubeConfig(o)
	if err != nil {
		return err
	}
	bounds, err := o.evaluation.options()
	if err != nil {
		return err
	}
	bounds.Policies = func() policies.Options { return policies.Options{At: time.Now()} }
	evaluate, err := isolate.NewEvaluator(bounds)
	if err != nil {
		return err
	}
	if o.webhookAddress == "0" {
		o.webhookAddress = ""
	}
	run := reconcile.Options{
		Kube: kube, Version: version, Commit: commit(),
		Source:         source.Options{ClusterName: o.clusterName, Jitter: rand.Float64, Evaluate: evaluate, WebhookAddress: o.webhookAddress, EventsAddress: o.eventsAddress},
		MetricsAddress: o.metricsAddress, Profiling: o.profiling, Clock: s.Clock, HealthAddress: o.healthAddress, SecureAddress: o.secureAddress,
		LeaderElection: o.leaderElection, LeaderElectionNamespace: o.leaseNamespace, LeaseDuration: o.leaseDuration,
	}
	if o.engine == "off" {
		// Neither AWS nor its credentials are needed.
		run.EngineOff = true
		return reconcile.Run(ctx, run)
	}
	ca, err := clusterCA(o, kube)
	if err != nil {
		return err
	}
	cloud, err := ec2.New(ctx, ec2.Config{
		Region: o.region, ClusterName: o.clusterName, ClusterEndpoint: o.clusterEndpoint, ClusterCA: ca, ClusterCIDR: o.clusterCIDR,
		KubernetesVersion: func(context.Context) (string, error) { return serverMinor(kube) },
		MemoryOverhead:    &o.memoryOverhead, IsolatedVPC: o.isolatedVPC, DisableDryRun: o.disableDryRun,
		ReservedENIs: o.reservedENIs, InterruptionQueue: o.queue, ZonalShift: o.zonalShift,
		Clock: s.Clock, AMIRefresh: o.amis, SubnetRefresh: o.subnets, SecurityGroupRefresh: o.securityGroups,
	})
	if err != nil {
		return err
	}
	gates, err := readGates(o.gates)
	if err != nil {
		return err
	}
	run.Cloud, run.Batch, run.Limits, run.Timeouts, run.Gates = cloud, o.batch, limits, o.timeouts, gates
	run.Preferences, run.MinValues = preferences, minValues
	run.Settings = &snapshot.Settings{
		PreferencePolicy: o.preferences, MinValuesPolicy: o.minValues, ClusterLimits: limits, MemoryOverhead: o.memoryOverhead, ReservedENIs: o.reservedENIs,
	}
	run.Interruptions, run.Interruption = o.queue != "", interrupt.Options{Rebalance: o.rebalance}
	run.KnowledgeNamespace = cmp.Or(o.leaseNamespace, podNamespace())
	return reconcile.Run(ctx, run)
}

// podNamespace is the namespace of the pod that this runs in, or "" outside of one.
func podNamespace() string {
	text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// clusterLimits reads limits by resource.
func clusterLimits(in map[string]string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for name, text := range in {
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() < 0 {
			return nil, &ExitError{Code: ExitUsage, Err: fmt.Errorf("cluster limit %s=%s isn't an amount; give one as in cpu=1000 or memory=4Ti", name, text)}
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}

// readGates reads Karpenter's way of writing feature gates.
func readGates(text string) (disrupt.Gates, error) {
	var g disrupt.Gates
	for _, gate := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(strings.TrimSpace(gate), "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return g, &ExitError{Code: ExitUsage, Err: fmt.Errorf("feature gate %q: write NAME=true or NAME=false", gate)}
		}
		switch name {
		case "SpotToSpotConsolidation":
			g.SpotToSpot = on
		case "NodeRepair":
			g.NodeRepair = on
		}
	}
	return g, nil
}

func newLogger(s Streams, level string) (logr.Logger, error) {
	var l slog.Level
	// Below debug, the API server's client logs bodies, with all that is secret in them.
	if err := l.UnmarshalText([]byte(level)); err != nil || l < slog.LevelDebug {
		return logr.Logger{}, &ExitError{Code: ExitUsage, Err: fmt.Errorf("log level %q: give debug, info, warn or error", level)}
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(s.Err, &slog.HandlerOptions{Level: l})), nil
}

func kubeConfig(o controllerOptions) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.context}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w; give --kubeconfig or KUBECONFIG", err)
	}
	cfg.QPS, cfg.Burst = o.qps, o.burst
	cfg.UserAgent = "coppice/" + version
	return cfg, nil
}

// serverMinor asks the API server for its version, as in "1.37".
func serverMinor(cfg *rest.Config) (string, error) {
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return "", fmt.Errorf("reach API server: %w", err)
	}
	v, err := d.ServerVersion()
	if err != nil {
		return "", fmt.Errorf("ask API server %s for its version: %w", cfg.Host, err)
	}
	// Managed offerings append a plus sign to the minor.
	minor := strings.TrimSuffix(v.Minor, "+")
	if _, err := strconv.Atoi(minor); err != nil {
		return "", fmt.Errorf("API server %s: version %q has no number for a minor", cfg.Host, v.Minor)
	}
	return v.Major + "." + minor, nil
}

// clusterCA is the API server's CA for nodes in base64: what was given, or else
// what we ourselves trust.
func clusterCA(o controllerOptions, cfg *rest.Config) (string, error) {
	if o.clusterCA != "" {
		if _, err := base64.StdEncoding.DecodeString(o.clusterCA); err != nil {
			return "", &ExitError{Code: ExitUsage, Err: fmt.Errorf("cluster CA bundle isn't base64: %w", err)}
		}
		return o.clusterCA, nil
	}
	cfg = rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return "", fmt.Errorf("read the API server's CA: %w", err)
	}
	return base64.StdEncoding.EncodeToString(cfg.CAData), nil
}
