package controlplane

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

const (
	// etcdQuota lets load tests write for long between compactions; etcd's own
	// default is 2 GiB.
	etcdQuota = 8 << 30
	// etcdStart is generous: it takes 0.1 to 0.6 s on two idle cores.
	etcdStart = 60 * time.Second
)

// startEtcd starts a single member and returns the address of its clients. It
// waits within ctx and lives within life.
func startEtcd(ctx, life context.Context, dir, log string) (string, <-chan error, error) {
	anyPort := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{log}
	cfg.UnsafeNoFsync = true
	cfg.QuotaBackendBytes = etcdQuota
	cfg.ListenClientUrls = []url.URL{anyPort}
	cfg.AdvertiseClientUrls = []url.URL{anyPort}
	cfg.ListenPeerUrls = []url.URL{anyPort}
	cfg.AdvertisePeerUrls = []url.URL{anyPort}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return "", nil, fmt.Errorf("start etcd: %w", err)
	}
	limit := time.NewTimer(etcdStart)
	defer limit.Stop()
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		e.Close()
		return "", nil, fmt.Errorf("start etcd: %w", err)
	case <-limit.C:
		e.Close()
		return "", nil, fmt.Errorf("start etcd: not ready within %s", etcdStart)
	case <-ctx.Done():
		e.Close()
		return "", nil, fmt.Errorf("start etcd: %w", ctx.Err())
	}

	stopped := make(chan error, 1)
	go func() {
		select {
		case err := <-e.Err():
			stopped <- err
		case <-life.Done():
			e.Close()
			stopped <- nil
		}
	}()
	return "http://" + e.Clients[0].Addr().String(), stopped, nil
}
