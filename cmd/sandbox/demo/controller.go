package demo

import (
	"os"
	"path/filepath"
	"time"

	"github.com/coppice-dev/coppice/cmd/sandbox/child"
	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
)

// controller is "coppice controller" in a process of its own, one after another.
type controller struct {
	child.Program
	// metrics and secure are host:port.
	metrics, secure string
}

const (
	// namespace holds the NodeSource, its Secret and the controller's Lease.
	namespace = "coppice-system"
	// leaseDuration is how long a dead leader's lease holds up the next one. The
	// default of 15 s would be a fifth of the demo.
	leaseDuration = 6 * time.Second
)

// newController makes ready to run coppice; it finds the cluster and AWS by the
// environment alone, as it would in a pod.
func newController(path, dir string, lease time.Duration, e endpoints.Endpoints, failed chan<- error) (*controller, error) {
	addr, err := child.FreeAddress()
	if err != nil {
		return nil, err
	}
	secure, err := child.FreeAddress()
	if err != nil {
		return nil, err
	}
	return &controller{
		metrics: addr, secure: secure,
		Program: child.Program{
			Path: path, Args: []string{"controller"}, Log: filepath.Join(dir, "coppice.log"), Failed: failed,
			Env: append(e.Environ(),
				"PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"), "TMPDIR="+os.TempDir(),
				"LEADER_ELECTION_NAMESPACE="+namespace,
				"LEADER_ELECTION_LEASE_DURATION="+lease.String(),
				"METRICS_BIND_ADDRESS="+addr, "HEALTH_PROBE_BIND_ADDRESS=0", "SECURE_BIND_ADDRESS="+secure,
			),
		},
	}, nil
}

func (c *controller) metricsURL() string { return "http://" + c.metrics + "/metrics" }
