package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/explain"
	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/internal/snapshot"
	"github.com/coppice-dev/coppice/schemas"
)

// lookOptions say where to look at a cluster.
type lookOptions struct {
	kubeconfig, context, controller, token, ca string
	insecure                                   bool
	// record and market say what the controller is asked for.
	record, market bool
}

func (o *lookOptions) register(f *pflag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; KUBECONFIG and ~/.kube/config otherwise")
	f.StringVar(&o.context, "context", "", "the kubeconfig's `context`; its current one otherwise")
	f.StringVar(&o.controller, "controller", "", "the controller's --secure-bind-address as a `URL`, to ask for what it knows")
	f.StringVar(&o.token, "token", "", "bearer `token` for the controller; the kubeconfig's own otherwise")
	f.StringVar(&o.ca, "certificate-authority", "", "`file` with the CA of the controller's certificate")
	f.BoolVar(&o.insecure, "insecure-skip-tls-verify", false, "don't check the controller's certificate, which is signed by itself unless you gave it one")
}

func newExplainCommand(s Streams) *cobra.Command {
	look := lookOptions{record: true}
	var from, output string
	cmd := &cobra.Command{
		Use:   "explain pod NAMESPACE/NAME | node NAME | nodeclaim NAME | nodepool NAME",
		Short: "Say why a pod, node or pool is as it is, and what would change it",
		Long: `Say what state an object is in, what was decided about it and why, what holds it
up, and what would help.

The cluster's objects and Coppice's events are read with your kubeconfig. What the
controller decided and why is in its memory: give --controller to ask for it. It is
served to those who may get the path /decisions:

  kubectl -n coppice port-forward deploy/coppice 8443 &
  coppice explain pod web/shop-1 --controller https://localhost:8443 \
    --insecure-skip-tls-verify --token "$(kubectl create token me)"

With --snapshot nothing is asked: the answer is out of the file.`,
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			about, err := subject(args[0], args[1])
			if err != nil {
				return err
			}
			if err := readable(output); err != nil {
				return err
			}
			shot, err := lookAt(look, from)
			if err != nil {
				return failed(err)
			}
			answer, err := explain.Explain(shot, about)
			if err != nil {
				return failed(err)
			}
			return show(s, output, answer)
		},
	}
	look.register(cmd.Flags())
	cmd.Flags().StringVar(&from, "snapshot", "", "answer from a `file` that 'coppice snapshot' wrote")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func newDisruptionsCommand(s Streams) *cobra.Command {
	look := lookOptions{record: true}
	var from, output string
	cmd := &cobra.Command{
		Use:   "disruptions",
		Short: "List which nodes are being taken away, which are next, and which are blocked by what",
		Long: `List which nodes are being taken away and how far that is, which are next and when,
which stay until somebody acts and why, and how many each pool's budgets let go now.

Commands under way, drift and expiry are read from the cluster's objects with your
kubeconfig. What keeps a node from being consolidated is in the controller's memory:
give --controller to ask for it, as for 'coppice explain'.

With --snapshot nothing is asked: the answer is out of the file.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := readable(output); err != nil {
				return err
			}
			shot, err := lookAt(look, from)
			if err != nil {
				return failed(err)
			}
			return show(s, output, explain.Ongoing(shot))
		},
	}
	look.register(cmd.Flags())
	cmd.Flags().StringVar(&from, "snapshot", "", "answer from a `file` that 'coppice snapshot' wrote")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func readable(output string) error {
	if output != "text" && output != "json" {
		return usagef("output %q: give text or json", output)
	}
	return nil
}

// show prints an answer for people, or for programs.
func show(s Streams, output string, answer interface{ WriteText(io.Writer) error }) error {
	if output == "json" {
		e := json.NewEncoder(s.Out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return failed(e.Encode(answer))
	}
	return failed(answer.WriteText(s.Out))
}

func newSnapshotCommand(s Streams) *cobra.Command {
	look := lookOptions{record: true, market: true}
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Write what decisions about nodes depend on, without secrets, as one file",
		Long: `Write the cluster's nodes, pods, pools, claims, volumes and budgets to stdout, as
JSON, reduced to what decisions about nodes depend on: no environment, commands,
user data or annotations of others; Secrets and ConfigMaps aren't read.

Other commands take the file with --snapshot. With --controller it holds the decision
record too, and the flags and prices that the controller works with, which plans count
with; the token has to be allowed to get the paths /decisions and /controller.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			shot, err := lookAt(look, "")
			if err != nil {
				return failed(err)
			}
			return failed(shot.Write(s.Out))
		},
	}
	look.register(cmd.Flags())
	return cmd
}

// subject reads what is to be explained.
func subject(kind, name string) (record.Subject, error) {
	kinds := map[string]string{
		"pod": "Pod", "pods": "Pod", "po": "Pod", "node": "Node", "nodes": "Node", "no": "Node",
		"nodeclaim": "NodeClaim", "nodeclaims": "NodeClaim", "nodepool": "NodePool", "nodepools": "NodePool",
	}
	s := record.Subject{Kind: kinds[strings.ToLower(kind)], Name: name}
	if s.Kind == "" {
		return s, usagef("a %q can't be explained; give pod, node, nodeclaim or nodepool", kind)
	}
	if s.Kind == "Pod" {
		var ok bool
		if s.Namespace, s.Name, ok = strings.Cut(name, "/"); !ok {
			s.Namespace, s.Name = "default", name
		}
	}
	if s.Name == "" || strings.Contains(s.Name, "/") {
		return s, usagef("%q is no name; give pod NAMESPACE/NAME, or another kind's NAME", name)
	}
	return s, nil
}

// lookAt reads a snapshot file, or takes one of the cluster, with what the controller
// knows if that can be asked.
func lookAt(o lookOptions, file string) (*snapshot.Snapshot, error) {
	if file != "" {
		if o.controller != "" {
			return nil, usagef("--snapshot has the record in it; leave out --controller")
		}
		f, err := os.Open(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, usagef("there is no file %s; write one with 'coppice snapshot'", file)
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		shot, err := snapshot.Read(f)
		if err != nil {
			return nil, usagef("%s is no snapshot: %v; write one with 'coppice snapshot'", file, err)
		}
		return shot, nil
	}
	cfg, err := kubeConfig(controllerOptions{kubeconfig: o.kubeconfig, context: o.context, qps: 50, burst: 100})
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), schemas.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	kube, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reach API server: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	shot, err := snapshot.Take(ctx, kube, time.Now())
	if err != nil {
		return nil, err
	}
	if o.controller == "" {
		return shot, nil
	}
	c, err := controllerClient(o, cfg)
	if err != nil {
		return nil, err
	}
	if o.market {
		if err := record.Ask(c, o.controller, snapshot.ControllerPath, &shot.Controller); err != nil {
			return nil, err
		}
	}
	if o.record {
		if shot.Decisions, err = record.Fetch(c, o.controller); err != nil {
			return nil, err
		}
	}
	return shot, nil
}

// controllerClient authenticates to the controller as the kubeconfig's user does to
// the API server, where that is by token.
func controllerClient(o lookOptions, kube *rest.Config) (*http.Client, error) {
	cfg := &rest.Config{
		BearerToken: kube.BearerToken, BearerTokenFile: kube.BearerTokenFile, ExecProvider: kube.ExecProvider, AuthProvider: kube.AuthProvider,
		TLSClientConfig: rest.TLSClientConfig{CAFile: o.ca, Insecure: o.insecure}, Timeout: 30 * time.Second,
	}
	if o.insecure && o.token == "" {
		return nil, usagef("whoever answers at an unchecked address would get the kubeconfig's token; give a --token that is good for little, or --certificate-authority")
	}
	if o.token != "" {
		cfg.BearerToken, cfg.BearerTokenFile, cfg.ExecProvider, cfg.AuthProvider = o.token, "", nil, nil
	}
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("reach the controller: %w", err)
	}
	return c, nil
}

// failed gives an error an exit code, unless it has one.
func failed(err error) error {
	if err == nil {
		return nil
	}
	var exit *ExitError
	if errors.As(err, &exit) {
		return err
	}
	return &ExitError{Code: ExitFailed, Err: err}
}
