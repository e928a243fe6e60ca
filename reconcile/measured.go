package reconcile

import (
	"context"
	"errors"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/reconcile/metrics"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// measured is a cloud whose requests are timed and whose errors are counted, under the
// names that Karpenter gives its own requests.
type measured struct {
	Cloud
	set   *metrics.Set
	clock clock.PassiveClock
}

// provider is the metrics' label.
const provider = "aws"

// time begins to measure; what it returns ends that.
func (m measured) time(method string) func(error) {
	began := m.clock.Now()
	return func(err error) {
		m.set.CloudDuration.WithLabelValues(method, provider).Observe(m.clock.Since(began).Seconds())
		if err != nil {
			m.set.CloudErrors.WithLabelValues(method, provider, kind(err)).Inc()
		}
	}
}

// kind names what sort of error it is.
func kind(err error) string {
	var none *cloud.InsufficientCapacityError
	var terminal *cloud.TerminalError
	switch {
	case errors.As(err, &none):
		return "InsufficientCapacityError"
	case errors.As(err, &terminal):
		return "TerminalError"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "Timeout"
	}
	return "Error"
}

// InstanceTypes is as in cloud.Provider.
func (m measured) InstanceTypes(ctx context.Context, class *aws.EC2NodeClass) ([]cloud.InstanceType, error) {
	done := m.time("GetInstanceTypes")
	types, err := m.Cloud.InstanceTypes(ctx, class)
	done(err)
	return types, err
}

// Launch is as in cloud.Provider.
func (m measured) Launch(ctx context.Context, req cloud.LaunchRequest) (cloud.Instance, error) {
	done := m.time("Create")
	i, err := m.Cloud.Launch(ctx, req)
	done(err)
	return i, err
}

// Instances is as in cloud.Provider.
func (m measured) Instances(ctx context.Context) ([]cloud.Instance, error) {
	done := m.time("List")
	list, err := m.Cloud.Instances(ctx)
	done(err)
	return list, err
}

// Terminate is as in cloud.Provider.
func (m measured) Terminate(ctx context.Context, id string) error {
	done := m.time("Delete")
	err := m.Cloud.Terminate(ctx, id)
	done(err)
	return err
}

// Drifted is as in cloud.Provider.
func (m measured) Drifted(ctx context.Context, class *aws.EC2NodeClass, claim *karpenter.NodeClaim) (string, error) {
	done := m.time("IsDrifted")
	reason, err := m.Cloud.Drifted(ctx, class, claim)
	done(err)
	return reason, err
}

// ResolveClass is as in cloud.Provider.
func (m measured) ResolveClass(ctx context.Context, class *aws.EC2NodeClass) (aws.EC2NodeClassStatus, error) {
	done := m.time("ResolveClass")
	status, err := m.Cloud.ResolveClass(ctx, class)
	done(err)
	return status, err
}
