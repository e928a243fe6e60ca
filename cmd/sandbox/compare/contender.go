package compare

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coppice-dev/coppice/cmd/sandbox/child"
)

// The two that are compared.
const (
	coppice = "coppice"
	peer    = "karpenter"
)

// peerModule is what the peer must have been built from, and at which version.
const (
	peerModule  = "github.com/aws/karpenter-provider-aws"
	peerVersion = "v1.14.1"
)

// Limits of requests to the API server, the same for both. They are far above
// either's default, so that neither waits for itself.
const (
	clientQPS   = "500"
	clientBurst = "1000"
)

// coppiceBatch is Coppice's default batch window, as environment variables that
// both read.
func coppiceBatch() []string {
	return []string{"BATCH_IDLE_DURATION=200ms", "BATCH_MAX_DURATION=2s"}
}

// contender is one of the two.
type contender struct {
	name string
	child.Program
}

// contenders makes both ready to run.
func (b *bench) contenders() ([]*contender, error) {
	e := b.stack.Endpoints
	common := append(e.Environ(),
		"PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"), "TMPDIR="+os.TempDir(),
		"INTERRUPTION_QUEUE="+e.Queue, "KUBE_CLIENT_QPS="+clientQPS, "KUBE_CLIENT_BURST="+clientBurst,
		"LOG_LEVEL=info",
	)
	ours := &contender{coppice, child.Program{
		Path: b.cfg.Coppice, Args: []string{"controller"}, Log: filepath.Join(b.cfg.DataDir, "coppice.log"), Failed: b.failed,
		Env: append(common[:len(common):len(common)], "LEADER_ELECT=false", "METRICS_BIND_ADDRESS=0", "HEALTH_PROBE_BIND_ADDRESS=0", "SECURE_BIND_ADDRESS=0"),
	}}
	ports := make([]string, 2)
	for i := range ports {
		addr, err := child.FreeAddress()
		if err != nil {
			return nil, err
		}
		_, ports[i], _ = strings.Cut(addr, ":")
	}
	theirs := &contender{peer, child.Program{
		Path: b.cfg.Karpenter, Log: filepath.Join(b.cfg.DataDir, "karpenter.log"), Failed: b.failed,
		Env: append(common[:len(common):len(common)], "DISABLE_LEADER_ELECTION=true", "SYSTEM_NAMESPACE=kube-system",
			"METRICS_PORT="+ports[0], "HEALTH_PROBE_PORT="+ports[1]),
	}}
	if b.cfg.EqualBatch {
		theirs.Env = append(theirs.Env, coppiceBatch()...)
	}
	theirs.Env = append(theirs.Env, b.cfg.KarpenterEnv...)
	return []*contender{ours, theirs}, nil
}

// checkPeer makes sure that the peer is Karpenter's own code, nothing replaced,
// and returns its version.
func checkPeer(path string) (string, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read what %s was built from: %w", path, err)
	}
	if info.Main.Path != peerModule || info.Main.Version != peerVersion {
		return "", fmt.Errorf("%s was built from %s %s, not from %s %s: run make karpenter", path, info.Main.Path, info.Main.Version, peerModule, peerVersion)
	}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			return "", fmt.Errorf("%s was built with %s replaced by %s: run make karpenter", path, dep.Path, dep.Replace.Path)
		}
	}
	return info.Main.Version, nil
}
