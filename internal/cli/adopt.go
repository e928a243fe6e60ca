package cli

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/adopt"
	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/isolate"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/internal/snapshot"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

type adoptOptions struct {
	dir, cluster, kubeconfig, snapshot string
	names                              []string
	write                              bool
	limits                             limits
}

func newAdoptCommand(s Streams) *cobra.Command {
	var o adoptOptions
	cmd := &cobra.Command{
		Use:   "adopt DIR [KIND/NAME...]",
		Short: "Edit the CUE so that it says what is live",
		Long: `Compare the objects of one cluster in the tree at DIR with what is live, and edit
the CUE at the very values that differ, so that Git says what somebody changed in the
cluster. Comments and formatting stay. With names, only those objects are looked at.

The edits are printed as a diff; --write makes them. A value is refused, with its
line, if it comes from an expression, a comprehension or text that other objects or
clusters share: the edited tree is evaluated again, and nothing but what was adopted
may have changed in any cluster. If anything is refused, the exit code is 3; the rest
is adopted all the same.

What is live is read from the cluster that the kubeconfig names, or from a file made
by 'coppice snapshot'.`,
		Example: `  coppice adopt . --cluster prod-eu
  coppice adopt . --cluster prod-eu --write NodePool/general
  coppice adopt . --cluster prod-eu --snapshot prod-eu.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("coppice adopt takes DIR, the root of the tree; see 'coppice adopt --help'")
			}
			for _, name := range args[1:] {
				if strings.Count(name, "/") != 1 {
					return usagef("%q is no object; write it as in NodePool/general", name)
				}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			o.dir, o.names = args[0], args[1:]
			return runAdopt(context.Background(), s, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.cluster, "cluster", "", "the `name` of the cluster, a folder of clusters/; needed if there are several")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` [KUBECONFIG]")
	f.StringVar(&o.snapshot, "snapshot", "", "read what is live from `FILE`, made by 'coppice snapshot', instead of a cluster")
	f.BoolVar(&o.write, "write", false, "edit the files")
	o.limits.flags(f)
	return cmd
}

func runAdopt(ctx context.Context, s Streams, o adoptOptions) error {
	tree, cluster, err := clusterIn(o.dir, o.cluster, true)
	if err != nil {
		return err
	}
	bounds, err := o.limits.options()
	if err != nil {
		return err
	}
	bundle, findings, err := isolate.Render(ctx, tree.fs, cluster, bounds)
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	if findings.HasErrors() {
		return tell(s, tree, findings)
	}
	live, err := o.live(ctx)
	if err != nil {
		return err
	}
	changes, err := o.changes(bundle, live)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		fmt.Fprintln(s.Err, "The tree says what is live.")
		return nil
	}
	clusters, err := render.Clusters(tree.fs)
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	if bundle.Cluster == "" {
		clusters = []string{""}
	}
	out, err := adopt.Adopt(ctx, tree.fs, clusters, changes, func(ctx context.Context, tree fs.FS, cluster string) (render.Bundle, diag.List, error) {
		return isolate.Render(ctx, tree, cluster, bounds)
	})
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	if err := o.show(s, tree, out); err != nil {
		return err
	}
	if len(out.Refused) > 0 {
		return tell(s, tree, out.Refused)
	}
	return nil
}

// tell prints findings and ends with the exit code for them.
func tell(s Streams, tree localTree, findings diag.List) error {
	if err := diag.WriteText(s.Err, tree.located(findings).Sorted().Grouped(), diag.TextOptions{Sources: tree.source}); err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	return &ExitError{Code: ExitInvalid}
}

// show prints what is edited, and edits it if that is asked for.
func (o adoptOptions) show(s Streams, tree localTree, out adopt.Outcome) error {
	for _, file := range slices.Sorted(maps.Keys(out.Files)) {
		before, err := fs.ReadFile(tree.fs, file)
		if err != nil {
			return &ExitError{Code: ExitFailed, Err: fmt.Errorf("read %s: %w", tree.shown(file), err)}
		}
		fmt.Fprint(s.Out, plan.Redact(udiff.Unified("a/"+file, "b/"+file, string(before), string(out.Files[file]))))
		if !o.write {
			continue
		}
		name := filepath.FromSlash(tree.shown(file))
		info, err := os.Stat(name)
		if err != nil {
			return &ExitError{Code: ExitFailed, Err: err}
		}
		if err := os.WriteFile(name, out.Files[file], info.Mode().Perm()); err != nil {
			return &ExitError{Code: ExitFailed, Err: err}
		}
	}
	if n := len(out.Done); n > 0 && !o.write {
		fmt.Fprintf(s.Err, "%d to adopt; --write edits the files.\n", n)
	}
	return nil
}

// changes are the fields in which the cluster differs from the tree.
func (o adoptOptions) changes(bundle render.Bundle, live map[string]map[string]any) ([]adopt.Change, error) {
	judge, err := admission.New(schemas.CRDs())
	if err != nil {
		return nil, &ExitError{Code: ExitFailed, Err: fmt.Errorf("compile CRDs: %w", err)}
	}
	for _, name := range o.names {
		kind, object, _ := strings.Cut(name, "/")
		if _, ok := bundle.Find(kind, object); !ok {
			return nil, usagef("the tree declares no %s", name)
		}
	}
	var out []adopt.Change
	for _, object := range bundle.Objects {
		if len(o.names) > 0 && !slices.Contains(o.names, object.ID()) {
			continue
		}
		observed := plan.Observed{Git: object.Value, Live: live[object.ID()]}
		if observed.Want = judge.Check(object.Value, nil).Defaulted; observed.Want == nil {
			observed.Want = object.Value
		}
		for _, c := range plan.FieldChanges(observed) {
			// A snapshot lacks what may be secret, which isn't gone from the cluster.
			if o.snapshot != "" && c.Live == nil && len(c.Path) > 0 && stripped(c.Path) {
				continue
			}
			out = append(out, adopt.Change{Cluster: bundle.Cluster, Object: object, FieldChange: c})
		}
	}
	return out, nil
}

// stripped reports whether snapshots leave a field out.
func stripped(path []any) bool {
	return slices.Contains(path, any("annotations")) || path[len(path)-1] == "userData"
}

// live returns the live objects by kind and name.
func (o adoptOptions) live(ctx context.Context) (map[string]map[string]any, error) {
	out := map[string]map[string]any{}
	if o.snapshot != "" {
		f, err := os.Open(o.snapshot)
		if err != nil {
			return nil, usagef("%w", err)
		}
		defer f.Close()
		shot, err := snapshot.Read(f)
		if err != nil {
			return nil, &ExitError{Code: ExitFailed, Err: fmt.Errorf("read %s: %w", o.snapshot, err)}
		}
		for i := range shot.NodePools {
			if err := put(out, karpenter.GroupVersion.String(), "NodePool", shot.NodePools[i].Name, &shot.NodePools[i]); err != nil {
				return nil, err
			}
		}
		for i := range shot.NodeClasses {
			if err := put(out, aws.GroupVersion.String(), "EC2NodeClass", shot.NodeClasses[i].Name, &shot.NodeClasses[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	sources, err := liveSources(ctx, o.kubeconfig)
	if err != nil {
		return nil, err
	}
	for _, src := range sources {
		var object map[string]any
		if err := yaml.Unmarshal(src.Text, &object); err != nil {
			return nil, &ExitError{Code: ExitFailed, Err: fmt.Errorf("read %s: %w", src.Name, err)}
		}
		u := unstructured.Unstructured{Object: object}
		out[u.GetKind()+"/"+u.GetName()] = object
	}
	return out, nil
}

func put(out map[string]map[string]any, version, kind, name string, o any) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: fmt.Errorf("read %s/%s: %w", kind, name, err)}
	}
	object["apiVersion"], object["kind"] = version, kind
	out[kind+"/"+name] = object
	return nil
}
