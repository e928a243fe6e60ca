package metrics

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// Names of labels, as Karpenter has them.
const (
	labelNodePool     = "nodepool"
	labelReason       = "reason"
	labelCapacityType = "capacity_type"
	labelZone         = "zone"
	labelResource     = "resource_type"
	labelStep         = "step"
	labelCode         = "code"
	labelMethod       = "method"
	labelProvider     = "provider"
)

// Set is what is counted as it happens. Its fields are never nil; they may be used
// concurrently.
type Set struct {
	NodeClaimsCreated     *prometheus.CounterVec
	NodeClaimsTerminated  *prometheus.CounterVec
	NodeClaimsDisrupted   *prometheus.CounterVec
	NodeClaimsCancelled   *prometheus.CounterVec
	NodeClaimStep         *prometheus.HistogramVec
	NodeClaimTermination  *prometheus.HistogramVec
	InstanceTermination   *prometheus.HistogramVec
	NodesCreated          *prometheus.CounterVec
	NodesTerminated       *prometheus.CounterVec
	NodesDrained          *prometheus.CounterVec
	NodeTermination       *prometheus.HistogramVec
	NodeLifetime          *prometheus.HistogramVec
	EvictionRequests      *prometheus.CounterVec
	PodsDrained           *prometheus.CounterVec
	SchedulingDuration    *prometheus.HistogramVec
	QueueDepth            *prometheus.GaugeVec
	UnschedulablePods     *prometheus.GaugeVec
	IgnoredPods           *prometheus.GaugeVec
	InstancesWithoutClaim *prometheus.CounterVec
	PodBound              *prometheus.HistogramVec
	PodStartup            *prometheus.HistogramVec
	CloudDuration         *prometheus.HistogramVec
	CloudErrors           *prometheus.CounterVec
	build                 *prometheus.GaugeVec
	claimConditions       conditions
	poolConditions        conditions
	classConditions       conditions
	collectors            []prometheus.Collector
}

// conditions are how the conditions of one kind have changed.
type conditions struct {
	transitions *prometheus.CounterVec
	lasted      *prometheus.HistogramVec
	ended       *prometheus.HistogramVec
}

// New returns a set that nothing has been counted in.
func New() *Set {
	s := &Set{}
	pool := labelNodePool
	s.NodeClaimsCreated = s.counter("karpenter_nodeclaims_created_total", "NodeClaims created, by why.", labelReason, pool, "min_values_relaxed")
	s.NodeClaimsTerminated = s.counter("karpenter_nodeclaims_terminated_total", "NodeClaims that are gone with their instances.", pool, labelCapacityType, labelZone)
	s.NodeClaimsDisrupted = s.counter("karpenter_nodeclaims_disrupted_total", "NodeClaims taken away, by reason.", labelReason, pool)
	s.NodeClaimsCancelled = s.counter("coppice_nodeclaims_cancelled_total", "NodeClaims removed before their launch because no pod needed them any more.", pool)
	s.NodeClaimStep = s.histogram("coppice_nodeclaims_step_duration_seconds", "Time from a NodeClaim's creation until it was launched, registered and initialized.", steps, labelStep, pool)
	s.NodeClaimTermination = s.histogram("karpenter_nodeclaims_termination_duration_seconds", "Time from a NodeClaim's deletion until it was gone.", durations, pool)
	s.InstanceTermination = s.histogram("karpenter_nodeclaims_instance_termination_duration_seconds", "Time from the request to end an instance until it had ended.", durations, pool)
	s.NodesCreated = s.counter("karpenter_nodes_created_total", "Nodes that registered.", pool, labelZone)
	s.NodesTerminated = s.counter("karpenter_nodes_terminated_total", "Nodes that were removed.", pool, labelZone)
	s.NodesDrained = s.counter("karpenter_nodes_drained_total", "Nodes that were drained.", pool)
	s.NodeTermination = s.histogram("karpenter_nodes_termination_duration_seconds", "Time from a NodeClaim's deletion until its Node was let go.", durations, pool)
	s.NodeLifetime = s.histogram("karpenter_nodes_lifetime_duration_seconds", "Age of Nodes when they were removed.", lifetimes, pool)
	s.EvictionRequests = s.counter("karpenter_pods_eviction_requests_total", "Evictions asked for, by the API server's answer.", labelCode)
	s.PodsDrained = s.counter("karpenter_pods_drained_total", "Pods evicted or deleted for the removal of their Node, by which.", labelReason)
	s.SchedulingDuration = s.histogram("karpenter_scheduler_scheduling_duration_seconds", "Time that one decision about pending pods took.", decisions, "controller")
	s.QueueDepth = s.gauge("karpenter_scheduler_queue_depth", "Pods that the last decision was about.", "controller")
	s.UnschedulablePods = s.gauge("karpenter_scheduler_unschedulable_pods_count", "Pods that the last decision found no place for.", "controller")
	s.IgnoredPods = s.gauge("karpenter_scheduler_ignored_pods_count", "Pods that can't be decided about, as for a volume claim that doesn't exist.")
	s.InstancesWithoutClaim = s.counter("coppice_instances_collected_total", "Instances ended because no NodeClaim owned them.")
	s.PodBound = s.histogram("karpenter_pods_bound_duration_seconds", "Time from a pod's creation until it had its Node.", startups)
	s.PodStartup = s.histogram("karpenter_pods_startup_duration_seconds", "Time from a pod's creation until it ran.", startups)
	s.CloudDuration = s.histogram("karpenter_cloudprovider_duration_seconds", "Time that a request of the cloud took, answers from memory included.", decisions, labelMethod, labelProvider)
	s.CloudErrors = s.counter("karpenter_cloudprovider_errors_total", "Requests of the cloud that failed.", labelMethod, labelProvider, "error")
	s.build = s.gauge("karpenter_build_info", "1, with what the controller was built from.", "version", "goversion", "goarch", "commit")
	s.claimConditions, s.poolConditions, s.classConditions = s.conditions("nodeclaim"), s.conditions("nodepool"), s.conditions("ec2nodeclass")
	return s
}

// Built says what version and commit the controller was built from.
func (s *Set) Built(version, commit string) {
	s.build.WithLabelValues(version, runtime.Version(), runtime.GOARCH, commit).Set(1)
}

func (s *Set) conditions(kind string) conditions {
	return conditions{
		transitions: s.counter("operator_"+kind+"_status_condition_transitions_total", "Changes of a condition's status, by the new one and its reason.", "type", "status", labelReason),
		lasted:      s.histogram("operator_"+kind+"_status_condition_transition_seconds", "How long a condition had a status before it changed.", durations, "type", "status"),
		ended:       s.histogram("operator_"+kind+"_termination_duration_seconds", "Time from an object's deletion until it was gone.", durations),
	}
}

// Register adds the set to what is exposed.
func (s *Set) Register(r prometheus.Registerer) error {
	var errs []error
	for _, c := range s.collectors {
		var there prometheus.AlreadyRegisteredError
		err := r.Register(c)
		switch {
		case errors.As(err, &there):
			// Disruption counts into the same family. Of what else is there already, an
			// earlier controller of this process goes on to show its own.
			if have, ok := there.ExistingCollector.(*prometheus.CounterVec); ok && c == prometheus.Collector(s.NodeClaimsDisrupted) {
				s.NodeClaimsDisrupted = have
			}
		case err != nil:
			errs = append(errs, fmt.Errorf("register metrics: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Buckets in seconds, chosen for what is measured: machines take tens of seconds to
// start, drains minutes, nodes live for hours to weeks, decisions take milliseconds.
func steps() []float64 {
	return []float64{1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900}
}
func startups() []float64 {
	return []float64{0.5, 1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1800}
}
func durations() []float64 { return prometheus.ExponentialBuckets(1, 2, 14) }
func lifetimes() []float64 {
	return []float64{300, 900, 1800, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400, 14 * 86400, 30 * 86400}
}
func decisions() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 15) }

func (s *Set) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	s.collectors = append(s.collectors, v)
	return v
}

func (s *Set) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	s.collectors = append(s.collectors, v)
	return v
}

func (s *Set) histogram(name, help string, buckets func() []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets()}, labels)
	s.collectors = append(s.collectors, v)
	return v
}
