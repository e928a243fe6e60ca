package ec2sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coppice-dev/coppice/internal/catalogue"
)

// Config says what the simulated account looks like. The zero value of every
// field but Region and Clusters means a default.
type Config struct {
	// Region is simulated with its real zones, types and prices, as far as the
	// catalogue knows it. Default us-west-2.
	Region string
	// Account is the account's number. Default 123456789012, AWS's own example.
	Account string
	// Clusters are what EKS DescribeCluster knows. More can be added with
	// PutCluster.
	Clusters []Cluster
	// Zones is how many of the region's zones have subnets; default 4 or as many
	// as the region has.
	Zones int
	// BootDelay passes between launch and running, ShutdownDelay between the
	// request to terminate and terminated. Default 0: the state changes before
	// anything else happens, though never within the call itself.
	BootDelay, ShutdownDelay time.Duration
	// BootJitter spreads boots evenly over BootDelay ± BootJitter.
	BootJitter time.Duration
	// ConsistencyDelay passes until a launched instance shows up in Describe
	// calls; before that its ID isn't found. Of several that one call launched
	// each shows up a quarter of it later than the one before.
	ConsistencyDelay time.Duration
	// Seed drives every random choice: IDs, capacities, price walks, jitter.
	Seed uint64
	// Clock is the simulator's time; default real time.
	Clock Clock
	// Keys maps access keys to secrets. When nil every key is accepted and
	// signatures are not verified, though they must be there.
	Keys map[string]string
	// Roles are the IAM roles that exist. When nil any role name does.
	Roles []string
	// InstanceProfiles exist from the start, each with a role of the same name.
	InstanceProfiles []string
	// Queues are SQS queues that exist from the start. Interruption and state
	// events go to every queue, as if an EventBridge rule of each matched them.
	Queues []string
	// OnDemandVCPUs and SpotVCPUs are the account's quotas of vCPUs that live
	// instances may have. Default none.
	OnDemandVCPUs, SpotVCPUs int
	// Unthrottled turns request throttling off.
	Unthrottled bool
	// Scenario is what happens, and when, counted from New.
	Scenario *Scenario
}

// Cluster is an EKS cluster.
type Cluster struct {
	Name     string
	Endpoint string
	// CA is the cluster's certificate authority in PEM.
	CA []byte
	// ServiceCIDR is the range of services, of IPv4 or IPv6. Default 10.96.0.0/16.
	ServiceCIDR string
	// Version is Kubernetes' minor version, as in 1.37. Default 1.37.
	Version string
}

// Type holds the facts of an instance type.
type Type = catalogue.Type

// Server is the simulator. Its methods may be called concurrently.
type Server struct {
	cfg      Config
	clock    Clock
	cat      *catalogue.Catalogue
	services map[string]*service
	requests atomic.Uint64
	// typeTexts caches what typeText writes.
	typeTexts sync.Map

	// mu guards everything below, which is the simulated world.
	mu      sync.Mutex
	closed  bool
	closing chan struct{}
	// epoch counts the resets; what waits for a time of an earlier one is off.
	epoch    int
	rng      *rand.Rand
	began    time.Time
	clusters map[string]Cluster
	net      network
	images   map[string]image
	// parameters are SSM's, by name.
	parameters map[string]parameter
	instances  map[string]*instance
	// order holds instance IDs by launch.
	order        []string
	templates    map[string]*template // by ID
	tags         map[string]map[string]string
	tokens       map[string]tokenResult
	pools        map[poolKey]*pool
	moves        []priceMove
	walks        map[poolKey]walk
	shortages    []shortage
	outages      map[string]time.Time // zone names, until when; zero is for good
	profiles     map[string]*profile
	queues       map[string]*queue
	reservations map[string]*reservation
	groups       map[string]*placementGroup
	shifts       map[string]*zonalShift
	sessions     map[string]session // by access key
	faults       []*fault
	boots        []*bootFault
	spent        int64 // by instances that are forgotten, in millionths of a dollar
	buckets      map[string]*bucket
	counters     map[string]*counter
	watchers     []*watcher
}

// New starts a simulator. Close ends its timers.
func New(cfg Config) (*Server, error) {
	cfg.Region = cmp.Or(cfg.Region, "us-west-2")
	cfg.Account = cmp.Or(cfg.Account, "123456789012")
	cat := catalogue.Get()
	zoneIDs := cat.ZoneIDs(cfg.Region)
	if len(zoneIDs) == 0 {
		return nil, fmt.Errorf("region %q is not in the catalogue: use one of %v", cfg.Region, cat.Regions())
	}
	if cfg.Zones < 0 || cfg.Zones > len(zoneIDs) {
		return nil, fmt.Errorf("region %s has %d zones, not %d", cfg.Region, len(zoneIDs), cfg.Zones)
	}
	if cfg.Zones == 0 {
		cfg.Zones = min(4, len(zoneIDs))
	}
	if cfg.Clock == nil {
		cfg.Clock = NewClock(1)
	}
	s := &Server{
		cfg:          cfg,
		clock:        cfg.Clock,
		cat:          cat,
		closing:      make(chan struct{}),
		rng:          rand.New(rand.NewPCG(cfg.Seed, 0x636f7070696365)),
		began:        cfg.Clock.Now(),
		clusters:     map[string]Cluster{},
		images:       map[string]image{},
		parameters:   map[string]parameter{},
		instances:    map[string]*instance{},
		templates:    map[string]*template{},
		tags:         map[string]map[string]string{},
		tokens:       map[string]tokenResult{},
		pools:        map[poolKey]*pool{},
		walks:        map[poolKey]walk{},
		outages:      map[string]time.Time{},
		profiles:     map[string]*profile{},
		queues:       map[string]*queue{},
		reservations: map[string]*reservation{},
		groups:       map[string]*placementGroup{},
		sessions:     map[string]session{},
		shifts:       map[string]*zonalShift{},
		buckets:      map[string]*bucket{},
		counters:     map[string]*counter{},
	}
	s.services = services()
	s.net = s.newNetwork(zoneIDs[:cfg.Zones])
	s.publishAll()
	for _, c := range cfg.Clusters {
		if err := s.PutCluster(c); err != nil {
			return nil, err
		}
	}
	for _, name := range cfg.InstanceProfiles {
		s.addProfile(name, "/", map[string]string{}).role = name
	}
	for _, name := range cfg.Queues {
		s.queues[name] = newQueue(name)
	}
	if cfg.Scenario != nil {
		if err := s.Play(*cfg.Scenario); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// PutCluster adds a cluster or replaces the one of the same name, and tags the
// subnets and security groups as its own.
func (s *Server) PutCluster(c Cluster) error {
	if c.Name == "" {
		return fmt.Errorf("cluster without a name")
	}
	c.ServiceCIDR = cmp.Or(c.ServiceCIDR, "10.96.0.0/16")
	c.Version = cmp.Or(c.Version, "1.37")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clusters[c.Name] = c
	for _, id := range s.net.discoverable() {
		s.tag(id, map[string]string{"kubernetes.io/cluster/" + c.Name: "owned"})
	}
	return nil
}

// Close calls off what is still to happen and ends every wait. Requests after it
// are refused.
func (s *Server) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	close(s.closing)
	watchers := slices.Clone(s.watchers)
	s.mu.Unlock()
	for _, w := range watchers {
		w.stop()
	}
}

// TypeInfo returns the facts of an instance type.
func (s *Server) TypeInfo(name string) (Type, bool) { return s.cat.Type(name) }

// after runs f with the world locked, d from now, unless the simulator is closed
// or reset by then. The world is locked.
func (s *Server) after(d time.Duration, f func()) {
	epoch := s.epoch
	s.clock.AfterFunc(max(d, 0), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed && s.epoch == epoch {
			f()
		}
	})
}

// id makes a resource ID, as in i-0123456789abcdef0.
func (s *Server) id(prefix string) string {
	return fmt.Sprintf("%s-0%016x", prefix, s.rng.Uint64())
}

// hash is a stable random number for the given names, the same for one seed
// whatever happened before.
func (s *Server) hash(names ...string) uint64 {
	// FNV-1a, then a finaliser, as FNV alone barely mixes its high bits.
	h := uint64(14695981039346656037) ^ s.cfg.Seed
	for _, name := range names {
		for i := range len(name) {
			h = (h ^ uint64(name[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// fraction is hash as a number in [0,1).
func (s *Server) fraction(names ...string) float64 {
	return float64(s.hash(names...)>>11) / (1 << 53)
}
