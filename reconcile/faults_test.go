package reconcile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit"
)

// lossy is a way to AWS that sometimes loses the answer to a call that was carried
// out: the connection is cut, and the caller can't know.
type lossy struct {
	url  string
	loss atomic.Uint64 // of a thousand calls that change something
	lost atomic.Int64
}

func newLossy(t *testing.T, target string, seed uint64) *lossy {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 1))
	l := &lossy{}
	proxy := &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host }, // the signature covers the host
		ErrorLog: nil,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // cuts the connection without an answer
		},
		ModifyResponse: func(r *http.Response) error {
			if !changes(r.Request) {
				return nil
			}
			mu.Lock()
			lose := rng.Uint64N(1000) < l.loss.Load()
			mu.Unlock()
			if lose {
				l.lost.Add(1)
				return errors.New("the answer is lost")
			}
			return nil
		},
	}
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The body is read twice: by whoever asks what the call is, and by AWS.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.Header.Set("X-Changes", fmt.Sprint(bytes.Contains(body, []byte("Action=CreateFleet")) ||
			bytes.Contains(body, []byte("Action=TerminateInstances")) || bytes.Contains(body, []byte("Action=CreateLaunchTemplate"))))
		proxy.ServeHTTP(w, r)
	}))
	ts.Config.ErrorLog = nil
	t.Cleanup(ts.Close)
	l.url = ts.URL
	return l
}

func changes(r *http.Request) bool { return r.Header.Get("X-Changes") == "true" }

// wire is a way to the API server that can be cut: connections end and no new ones
// are let through, as when the API server restarts or the network is split.
type wire struct {
	addr string
	mu   sync.Mutex
	down bool
	open map[net.Conn]bool
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: l.Addr().String(), open: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { w.forward(in, target) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		w.cut()
		wg.Wait()
	})
	return w
}

func (w *wire) forward(in net.Conn, target string) {
	defer in.Close()
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer out.Close()
	w.mu.Lock()
	refused := w.down
	w.open[in], w.open[out] = true, true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.open, in)
		delete(w.open, out)
		w.mu.Unlock()
	}()
	if refused {
		return
	}
	done := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(out, in); done <- struct{}{} }()
	go func() { _, _ = io.Copy(in, out); done <- struct{}{} }()
	<-done
	// Either side's end is the other's.
	_, _ = in.Close(), out.Close()
	<-done
}

// cut ends every connection and lets none through until mend.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for c := range w.open {
		_ = c.Close()
	}
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// replica is "coppice controller" in a process of its own that is started again
// whenever it ends, as a Deployment would.
type replica struct {
	t     *testing.T
	path  string
	env   []string
	log   string
	clock string // the file that says how wrong its clock is

	mu      sync.Mutex
	cmd     *exec.Cmd
	stopped bool
	starts  int
	began   int64 // where this process's part of the log begins
	done    chan struct{}
}

// startReplica runs a replica. Its program is that of the test, which is the same command
// but for a clock that can be turned.
func startReplica(t *testing.T, log string, env []string) *replica {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{t: t, path: path, log: log, clock: log + ".clock", done: make(chan struct{})}
	r.env = append(slices.Clone(env), turnedClock+"="+r.clock)
	r.turn(0)
	go r.run()
	t.Cleanup(func() {
		r.mu.Lock()
		r.stopped = true
		if r.cmd != nil {
			_ = r.cmd.Process.Kill() // it may have ended by itself
		}
		r.mu.Unlock()
		<-r.done
	})
	return r
}

func (r *replica) run() {
	defer close(r.done)
	for {
		r.mu.Lock()
		if r.stopped {
			r.mu.Unlock()
			return
		}
		out, err := os.OpenFile(r.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err == nil {
			if info, err := out.Stat(); err == nil {
				r.began = info.Size()
			}
			r.cmd = exec.Command(r.path, "controller")
			r.cmd.Env, r.cmd.Stdout, r.cmd.Stderr = r.env, out, out
			err = r.cmd.Start()
			r.starts++
		}
		cmd := r.cmd
		r.mu.Unlock()
		if err != nil {
			r.t.Errorf("start a controller: %v", err)
			return
		}
		_ = cmd.Wait() // how it ended is what the test is about
		_ = out.Close()
	}
}

// kill ends the process at once, with no chance to tidy up.
func (r *replica) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd != nil && r.cmd.Process != nil {
		_ = r.cmd.Process.Signal(syscall.SIGKILL) // it may have ended by itself
	}
}

// leads reports whether the process has become the leader.
func (r *replica) leads() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	data, err := os.ReadFile(r.log)
	return err == nil && int64(len(data)) > r.began && bytes.Contains(data[r.began:], []byte("Successfully acquired lease"))
}

// kubeconfigVia is the administrator's kubeconfig with another way to the API server.
func kubeconfigVia(t *testing.T, kubeconfig, addr string) string {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cfg.Clusters {
		c.Server = "https://" + addr
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// simulator is the simulator's control API.
type simulator struct {
	t   *testing.T
	url string
}

func (s simulator) call(method, path string, in, out any) {
	s.t.Helper()
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			s.t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+"/_sim/"+path, &body)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %s %v %s", method, path, resp.Status, err, data)
	}
	if out != nil {
		if err := json.Unmarshal(data, out); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s simulator) do(step ec2sim.Step) { s.call("POST", "do", step, nil) }

// live lists the instances that are neither ended nor ending.
func (s simulator) live() []ec2sim.Instance {
	var all, out []ec2sim.Instance
	s.call("GET", "instances", nil, &all)
	for _, i := range all {
		if i.State == "pending" || i.State == "running" {
			out = append(out, i)
		}
	}
	return out
}

// controllerEnv is the environment in which a controller finds the sandbox by way of
// the faults.
func controllerEnv(env *testkit.Env, kubeconfig, aws string, more ...string) []string {
	out := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}
	for _, kv := range env.Environ() {
		switch key, _, _ := strings.Cut(kv, "="); key {
		case "KUBECONFIG":
			kv = "KUBECONFIG=" + kubeconfig
		case "AWS_ENDPOINT_URL":
			kv = "AWS_ENDPOINT_URL=" + aws
		}
		out = append(out, kv)
	}
	return append(out, more...)
}

// logTail is the end of a log.
func logTail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	const most = 6000
	return string(data[max(0, len(data)-most):])
}

// until looks again and again, every tenth of a second, until ok or the limit.
func until(t *testing.T, limit time.Duration, ok func() (bool, string)) string {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	end := time.After(limit)
	for {
		done, seen := ok()
		if done {
			return ""
		}
		select {
		case <-end:
			return seen
		case <-t.Context().Done():
			return "the test was ended"
		case <-tick.C:
		}
	}
}
