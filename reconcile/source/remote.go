package source

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/forge"
	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/githubapp"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// Remote returns the repository that a source with a URL reads, with the credentials that
// it reads it with.
func Remote(ctx context.Context, reader client.Reader, src *coppice.NodeSource) (git.Remote, error) {
	p := &pass{Reconciler: &Reconciler{reader: reader, clock: clock.RealClock{}, tokens: &tokens{}}, src: src}
	return p.remoteWith(ctx, src.Spec.SecretRef)
}

// Forge opens the forge of spec.pullRequests, with what its Secret of that name holds.
func Forge(src *coppice.NodeSource, secret map[string][]byte, cl forge.Client) (forge.Forge, error) {
	spec := src.Spec.PullRequests
	name := spec.SecretRef.Name
	c := forge.Config{
		URL: cmp.Or(spec.URL, src.Spec.URL), Kind: spec.Forge, API: spec.API,
		Token: string(secret["token"]), Username: string(secret["username"]), Client: cl,
	}
	c.Client.Roots = secret["ca.crt"]
	if id := string(secret["githubAppID"]); id != "" {
		c.App = &forge.App{App: githubapp.App{ID: id}}
		var err error
		if c.App.Key, err = githubapp.ParseKey(secret["githubAppPrivateKey"]); err != nil {
			return nil, fmt.Errorf("read the Secret %q: %w", name, err)
		}
		if text := string(secret["githubAppInstallationID"]); text != "" {
			if c.App.Installation, err = strconv.ParseInt(text, 10, 64); err != nil {
				return nil, fmt.Errorf("the Secret %q has no number for githubAppInstallationID; give the one in the installation's URL", name)
			}
		}
	} else if c.Token == "" {
		return nil, fmt.Errorf("the Secret %q has neither token nor githubAppID; add one", name)
	}
	f, err := forge.New(c)
	if err != nil {
		return nil, fmt.Errorf("spec.pullRequests: %w", err)
	}
	return f, nil
}

// Branch is the branch that pull requests of a source are to be merged into.
func Branch(src *coppice.NodeSource) string {
	if b := src.Spec.PullRequests.Branch; b != "" {
		return b
	}
	if src.Spec.Ref != nil {
		return src.Spec.Ref.Branch
	}
	return ""
}
