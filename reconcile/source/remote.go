package source

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// Remote returns the repository that a source with a URL reads, with the credentials that
// it reads it with.
func Remote(ctx context.Context, reader client.Reader, src *coppice.NodeSource) (git.Remote, error) {
	p := &pass{Reconciler: &Reconciler{reader: reader, clock: clock.RealClock{}, tokens: &tokens{}}, src: src}
	return p.remoteWith(ctx, src.Spec.SecretRef)
}
