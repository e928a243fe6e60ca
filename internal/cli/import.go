package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render/convert"
)

type importOptions struct {
	files      []string
	cluster    bool
	kubeconfig string
	convert    convert.Options
}

func newImportCommand(s Streams) *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import FILE... | --cluster",
		Short: "Turn manifests, legacy ones too, and node groups into CUE",
		Long: `Read what there is and print it as CUE, in today's API:

  NodePool, EC2NodeClass        karpenter.sh and karpenter.k8s.aws, v1 and v1beta1
  Provisioner, AWSNodeTemplate  v1alpha5 and v1alpha1
  EKS managed node groups       JSON of 'aws eks describe-nodegroup'
  Auto Scaling groups           JSON of 'aws autoscaling describe-auto-scaling-groups'

and parts of such objects, such as a bare limits: or requirements:. The ConfigMap
karpenter-global-settings becomes flags of the controller. FILE may be - for
standard input.

The CUE goes to stdout. Notes go to stderr: each change of meaning at the line that
it concerns. What v1 can't express is an error, and nothing is printed then, unless
--allow-lossy says to leave it out.`,
		Example: `  coppice import nodepool.yaml class.yaml > clusters/prod/nodes.cue
  coppice import --cluster > clusters/prod/nodes.cue
  aws eks describe-nodegroup --cluster-name prod --nodegroup-name web | coppice import - --discovery prod`,
		RunE: func(_ *cobra.Command, args []string) error {
			o.files = args
			return runImport(s, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.cluster, "cluster", false, "read the objects of the cluster that the kubeconfig names, in the newest version that it serves of each kind")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` for --cluster [KUBECONFIG]")
	f.BoolVar(&o.convert.AllowLossy, "allow-lossy", false, "leave out what v1 can't express, with a warning")
	f.StringVar(&o.convert.Role, "role", "", "the IAM role of nodes, for classes that name none")
	f.StringVar(&o.convert.Discovery, "discovery", "", "select subnets and security groups by the tag karpenter.sh/discovery with this `value`, for classes that select none")
	f.StringVar(&o.convert.AMIAlias, "ami-alias", "", "the image, as in al2023@v20260101, for classes that select none")
	f.StringVar(&o.convert.Package, "package", "cluster", "the `name` of the CUE package")
	return cmd
}

func runImport(s Streams, o importOptions) error {
	if o.cluster == (len(o.files) > 0) {
		return usagef("coppice import takes either FILE... or --cluster; see 'coppice import --help'")
	}
	if !convert.IsPackageName(o.convert.Package) {
		return usagef("--package %q: write a name of letters, digits and _ that begins with a letter, as in prod_eu", o.convert.Package)
	}
	var sources []convert.Source
	var err error
	if o.cluster {
		sources, err = liveSources(context.Background(), o.kubeconfig)
	} else {
		sources, err = fileSources(s, o.files)
	}
	if err != nil {
		return err
	}
	texts := map[string][]byte{}
	for _, src := range sources {
		texts[src.Name] = src.Text
	}
	result, found := convert.Convert(sources, o.convert)
	if len(found) > 0 {
		opts := diag.TextOptions{Sources: func(name string) []byte { return texts[name] }}
		if err := diag.WriteText(s.Err, found, opts); err != nil {
			return &ExitError{Code: ExitFailed, Err: err}
		}
	}
	if found.HasErrors() {
		return &ExitError{Code: ExitInvalid}
	}
	out, err := result.CUE()
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	if _, err := s.Out.Write(out); err != nil {
		return &ExitError{Code: ExitFailed, Err: fmt.Errorf("write CUE: %w", err)}
	}
	return nil
}

func fileSources(s Streams, files []string) ([]convert.Source, error) {
	var out []convert.Source
	for _, file := range files {
		text, err := readInput(s, file)
		if err != nil {
			return nil, err
		}
		if len(strings.TrimSpace(string(text))) == 0 {
			return nil, usagef("there is nothing in %s to import", cmp.Or(strings.TrimPrefix(file, "-"), "standard input"))
		}
		out = append(out, convert.Source{Name: cmp.Or(strings.TrimPrefix(slashed(file), "-"), "stdin"), Text: text})
	}
	return out, nil
}
