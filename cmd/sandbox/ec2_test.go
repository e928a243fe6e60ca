package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
)

// startSim starts the simulator alone, in a process of its own.
func startSim(t *testing.T, args ...string) (info string, e endpoints.Endpoints) {
	t.Helper()
	info = filepath.Join(t.TempDir(), "info.json")
	cmd := exec.Command(os.Args[0], append([]string{"ec2sim", "--info", info}, args...)...)
	cmd.Env = append(os.Environ(), role+"=sandbox")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the simulator failed: %v\n%s", err, &stderr)
		}
	})
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if e, err := endpoints.Read(info); err == nil {
			return info, e
		}
	}
	t.Fatalf("the simulator did not start:\n%s", &stderr)
	return "", endpoints.Endpoints{}
}

// sandbox runs a command line in this process.
func sandbox(t *testing.T, args ...string) (code int, stdout string) {
	t.Helper()
	var out bytes.Buffer
	code = run(args, &out, os.Stderr)
	return code, out.String()
}

func TestEC2Alone(t *testing.T) {
	scenario := filepath.Join(t.TempDir(), "scenario.yaml")
	if err := os.WriteFile(scenario, []byte("steps: [{at: 1h, outage: {zones: [us-west-2d]}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Two hours pass in 100 ms and more.
	info, e := startSim(t, "--scenario", scenario, "--speed", "100000", "--boot-delay", "1s")
	client := ec2.New(ec2.Options{
		Region: e.Region, BaseEndpoint: aws.String(e.EC2),
		Credentials: credentials.NewStaticCredentialsProvider(e.AccessKeyID, e.SecretAccessKey, ""),
	})
	zones, err := client.DescribeAvailabilityZones(t.Context(), &ec2.DescribeAvailabilityZonesInput{})
	if err != nil || len(zones.AvailabilityZones) != 4 {
		t.Fatalf("%v, %v", zones, err)
	}
	time.Sleep(100 * time.Millisecond)

	commands := [][]string{
		{"shortage", "--type", "m5.*", "--capacity-type", "spot", "--left", "3"},
		{"prices", "--zone", "us-west-2a", "--factor", "1.5"},
		{"boot", "--delay", "10s", "--fail", "0.5"},
		{"fault", "ec2:CreateFleet", "--code", "InternalError", "--count", "2"},
		{"outage", "us-west-2b"},
		{"interrupt", "--count", "1"},
	}
	for _, args := range commands {
		if code, out := sandbox(t, append([]string{"ec2", "--info", info}, args...)...); code != 0 || out != "" {
			t.Errorf("%v: exit code %d, %q", args, code, out)
		}
	}
	state := func() ec2sim.State {
		t.Helper()
		code, out := sandbox(t, "ec2", "--endpoint", e.EC2, "state")
		var st ec2sim.State
		if err := json.Unmarshal([]byte(out), &st); err != nil || code != 0 {
			t.Fatalf("state: exit code %d, %v: %s", code, err, out)
		}
		return st
	}
	// Five that were asked for, and the scenario's outage.
	if st := state(); len(st.Effects) != 6 {
		t.Errorf("effects %+v", st.Effects)
	}
	if code, out := sandbox(t, "ec2", "--info", info, "calls"); code != 0 || !strings.Contains(out, "ec2:DescribeAvailabilityZones") {
		t.Errorf("calls: exit code %d, %q", code, out)
	}
	if code, out := sandbox(t, "ec2", "--info", info, "ls"); code != 0 || !strings.HasPrefix(out, "INSTANCE") {
		t.Errorf("ls: exit code %d, %q", code, out)
	}
	if code, _ := sandbox(t, "ec2", "--info", info, "clear"); code != 0 || len(state().Effects) != 0 {
		t.Errorf("clear: exit code %d, %+v", code, state())
	}

	t.Setenv("AWS_ENDPOINT_URL", "")
	for name, args := range map[string][]string{
		"no simulator":  {"ec2", "ls"},
		"unknown zone":  {"ec2", "--info", info, "outage", "us-west-2x"},
		"no zone":       {"ec2", "--info", info, "outage"},
		"no file":       {"ec2", "--info", info, "play", "nowhere.yaml"},
		"bad pattern":   {"ec2", "--info", info, "shortage", "--type", "["},
		"open to all":   {"ec2sim", "--listen", "0.0.0.0:0"},
		"time reversed": {"ec2sim", "--speed", "-1"},
		"no scenario":   {"up", "--scenario", "nowhere.yaml"},
	} {
		if code, _ := sandbox(t, args...); code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", name, code, exitUsage)
		}
	}
}
