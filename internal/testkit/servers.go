package testkit

import (
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
	"github.com/coppice-dev/coppice/internal/testkit/gitserver"
)

// GitServer is a Git server in this process.
type GitServer struct {
	*gitserver.Server
	// URL is the address below which repositories lie, as in URL/NAME.git.
	URL                string
	Username, Password string
}

// Repo is the URL of a repository.
func (g *GitServer) Repo(name string) string { return g.URL + "/" + name + ".git" }

// Git starts a Git server with empty repositories of the given names. Clients
// need its username and password.
func Git(t testing.TB, repos ...string) *GitServer {
	t.Helper()
	g := &GitServer{Username: "coppice", Password: "test-password"}
	srv, err := gitserver.New(gitserver.Config{Dir: t.TempDir(), Username: g.Username, Password: g.Password})
	if err != nil {
		t.Fatalf("start a Git server: %v", err)
	}
	for _, name := range repos {
		if err := srv.Create(name); err != nil {
			t.Fatal(err)
		}
	}
	ts := httptest.NewServer(srv)
	t.Cleanup(ts.Close)
	g.Server, g.URL = srv, ts.URL
	return g
}

// EC2 starts an EC2 simulator in this process and makes the AWS SDK's default
// configuration find it. It returns the simulator's URL as well.
func EC2(t testing.TB, cfg ec2sim.Config) (*ec2sim.Server, string) {
	t.Helper()
	sim, err := ec2sim.New(cfg)
	if err != nil {
		t.Fatalf("start the EC2 simulator: %v", err)
	}
	ts := httptest.NewServer(sim)
	t.Cleanup(func() {
		sim.Close() // ends long polls, which the server would wait for
		ts.Close()
	})
	region := cfg.Region
	if region == "" {
		region = "us-west-2"
	}
	e := endpoints.Endpoints{EC2: ts.URL, Region: region, AccessKeyID: "AKIATEST", SecretAccessKey: "test-secret"}
	if ids := slices.Sorted(maps.Keys(cfg.Keys)); len(ids) > 0 {
		e.AccessKeyID, e.SecretAccessKey = ids[0], cfg.Keys[ids[0]]
	}
	for _, kv := range e.Environ() {
		if key, value, _ := strings.Cut(kv, "="); strings.HasPrefix(key, "AWS_") {
			t.Setenv(key, value)
		}
	}
	return sim, ts.URL
}
