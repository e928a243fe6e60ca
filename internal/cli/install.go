package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coppice-dev/coppice/internal/install"
)

func newInstallCommand(s Streams) *cobra.Command {
	o := install.Options{}
	var cluster string
	cmd := &cobra.Command{
		Use:   "install [flags] [-- CONTROLLER-FLAG...]",
		Short: "Print the manifests that run the controller in a cluster",
		Long: `Print a Namespace, a ServiceAccount with the rights that the controller needs and no
others, a Deployment, a PodDisruptionBudget and a Service. The CRDs come from 'coppice
crds'. Nothing is sent anywhere: apply the output, or keep it in Git.

Metrics and decisions are served over TLS on port 8443, to those who are bound to the
ClusterRole coppice-decisions. What follows -- are flags of 'coppice controller'.`,
		Example: `  coppice crds | kubectl apply --server-side -f -
  coppice install --cluster-name demo --image REGISTRY/coppice:VERSION \
    -- --interruption-queue=demo --feature-gates=NodeRepair=true | kubectl apply -f -`,
		RunE: func(_ *cobra.Command, args []string) error {
			if cluster == "" {
				return usagef("the cluster's name isn't known; give --cluster-name")
			}
			if o.Image == "" {
				return usagef("the controller's image isn't known; give --image")
			}
			o.Flags = append([]string{"--cluster-name=" + cluster, "--metrics-bind-address=0", "--health-probe-bind-address=:8081", "--secure-bind-address=:8443"}, args...)
			if err := checkControllerFlags(args); err != nil {
				return usagef("%s; see 'coppice controller --help'", err)
			}
			if err := install.Write(s.Out, o); err != nil {
				return usagef("%s", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&cluster, "cluster-name", "", "the cluster's name, as in its EKS name or the tag kubernetes.io/cluster/NAME (required)")
	f.StringVar(&o.Image, "image", "", "the controller's image, as a kubelet pulls it (required)")
	f.StringVar(&o.Namespace, "namespace", "coppice-system", "namespace that is made for it")
	f.IntVar(&o.Replicas, "replicas", 2, "number of controllers, of which one leads")
	f.StringVar(&o.RoleARN, "role-arn", "", "IAM role of the service account (IRSA); with Pod Identity none is needed")
	return cmd
}

// checkControllerFlags refuses what the controller would.
func checkControllerFlags(args []string) error {
	var o controllerOptions
	f := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	o.register(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is no flag of the controller", f.Arg(0))
	}
	return nil
}
