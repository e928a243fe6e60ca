package source

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/coppice-dev/coppice/schemas/coppice"
)

// HookPath is where forges send their deliveries: below it lie a source's
// namespace and name.
const HookPath = "/hooks/"

// The bounds of a delivery. GitHub sends 25 MB at most and cuts long pushes short
// before that; what is in a body isn't needed, only its signature.
const (
	hookBytes   = 3 << 20
	hookHeaders = 64 << 10
	hookTimeout = 10 * time.Second
	// hookSlots is how many deliveries are worked on at the same time.
	hookSlots = 16
	// hookReaders is how many bodies are held at the same time, and with that how much
	// memory those take who prove nothing: 96 MiB. Slow senders don't keep the slots.
	hookReaders = 32
)

// A delivery that comes again within replayWindow asks for nothing. Only so many
// are remembered; a replay of one that is forgotten costs one look at the
// repository.
const (
	replayWindow = 10 * time.Minute
	replayMax    = 10_000
)

// receiver takes the word of forges that something was pushed, and writes it down
// as the annotation that asks for a pass, so that it doesn't matter which replica
// hears it. It believes nothing but that there is something to look at.
type receiver struct {
	client client.Client
	// reader reads from the API server: a cache would hold all of the cluster's
	// Secrets.
	reader client.Reader
	clock  clock.PassiveClock
	// readers are taken while a body is held, slots while it is worked on.
	readers, slots chan struct{}

	mu   sync.Mutex
	seen map[[sha256.Size]byte]time.Time
}

func newReceiver(c client.Client, reader client.Reader, now clock.PassiveClock) *receiver {
	return &receiver{
		client: c, reader: reader, clock: now,
		readers: make(chan struct{}, hookReaders), slots: make(chan struct{}, hookSlots),
		seen: map[[sha256.Size]byte]time.Time{},
	}
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	rest, ok := strings.CutPrefix(req.URL.Path, HookPath)
	namespace, name, two := strings.Cut(rest, "/")
	if !ok || !two || namespace == "" || name == "" || strings.Contains(name, "/") {
		http.NotFound(w, req)
		return
	}
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "deliveries are posted", http.StatusMethodNotAllowed)
		return
	}
	if !take(w, r.readers) {
		return
	}
	defer func() { <-r.readers }()
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, hookBytes))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			http.Error(w, "the delivery is too large", http.StatusRequestEntityTooLarge)
		} else {
			http.Error(w, "the delivery broke off", http.StatusBadRequest)
		}
		return
	}
	if !take(w, r.slots) {
		return
	}
	defer func() { <-r.slots }()
	ctx, cancel := context.WithTimeout(req.Context(), hookTimeout)
	defer cancel()
	log := ctrllog.FromContext(ctx).WithValues("namespace", namespace, "source", name)
	src, proof, err := r.authentic(ctx, client.ObjectKey{Namespace: namespace, Name: name}, req.Header, body)
	if err != nil {
		// Whoever can't prove who it is isn't told what there is.
		log.Info("Delivery not accepted", "error", err.Error())
		http.Error(w, "the source or the signature is unknown", http.StatusUnauthorized)
		return
	}
	now := r.clock.Now()
	id := sha256.Sum256([]byte(strings.Join([]string{namespace, name, proof, string(body)}, "\x00")))
	if event := req.Header.Get("X-GitHub-Event"); event == "ping" || r.replayed(id, now) {
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprintln(w, "nothing to do")
		return
	}
	n, err := r.request(ctx, src, now)
	if err != nil {
		r.forget(id)
		log.Error(err, "Ask for a pass")
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	_, _ = fmt.Fprintf(w, "asked for %s\n", plural(n, "pass", "passes"))
}

// take takes a place, or says that there is none.
func take(w http.ResponseWriter, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		http.Error(w, "too many deliveries at once; try again", http.StatusServiceUnavailable)
		return false
	}
}

// authentic returns the source that a delivery is for, if it was sent by somebody
// who knows the shared secret, and what proved that.
func (r *receiver) authentic(ctx context.Context, key client.ObjectKey, head http.Header, body []byte) (*coppice.NodeSource, string, error) {
	src := &coppice.NodeSource{}
	if err := r.reader.Get(ctx, key, src); err != nil {
		return nil, "", fmt.Errorf("read source: %w", err)
	}
	hook := src.Spec.Webhook
	if hook == nil {
		return nil, "", errors.New("the source takes no deliveries; set spec.webhook")
	}
	var secret corev1.Secret
	if err := r.reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: hook.SecretRef.Name}, &secret); err != nil {
		return nil, "", fmt.Errorf("read Secret: %w", err)
	}
	token := secret.Data["token"]
	if len(token) == 0 {
		return nil, "", fmt.Errorf("the Secret %q has no key token", hook.SecretRef.Name)
	}
	proof, ok := authenticated(hook.Type, token, head, body)
	if !ok {
		return nil, "", errors.New("the signature is missing or wrong")
	}
	return src, proof, nil
}

// authenticated checks a delivery as its sender's documentation says:
// https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries,
// https://docs.gitlab.com/user/project/integrations/webhooks/,
// https://docs.gitea.com/usage/webhooks and
// https://support.atlassian.com/bitbucket-cloud/docs/manage-webhooks/.
func authenticated(kind string, token []byte, head http.Header, body []byte) (proof string, ok bool) {
	mac := hmac.New(sha256.New, token)
	_, _ = mac.Write(body)
	sum := hex.EncodeToString(mac.Sum(nil))
	want := ""
	switch kind {
	case "github":
		proof, want = head.Get("X-Hub-Signature-256"), "sha256="+sum
	case "gitea":
		proof, want = head.Get("X-Gitea-Signature"), sum
	case "bitbucket":
		proof, want = head.Get("X-Hub-Signature"), "sha256="+sum
	case "generic":
		proof, want = head.Get("X-Signature"), "sha256="+sum
	case "gitlab":
		// GitLab signs nothing: it shows the secret itself. Hashes are compared, so
		// that the time tells nothing, not even its length.
		shown, real := sha256.Sum256([]byte(head.Get("X-Gitlab-Token"))), sha256.Sum256(token)
		return head.Get("X-Gitlab-Event-UUID"), hmac.Equal(shown[:], real[:])
	default:
		return "", false
	}
	return proof, hmac.Equal([]byte(proof), []byte(want))
}

// replayed remembers a delivery and reports whether it was here before.
func (r *receiver) replayed(id [sha256.Size]byte, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.seen[id]; ok && now.Sub(at) < replayWindow {
		return true
	}
	if len(r.seen) >= replayMax {
		for old, at := range r.seen {
			if now.Sub(at) >= replayWindow {
				delete(r.seen, old)
			}
		}
		if len(r.seen) >= replayMax {
			clear(r.seen)
		}
	}
	r.seen[id] = now
	return false
}

func (r *receiver) forget(id [sha256.Size]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, id)
}

// request asks for a pass of a source and of all others of its namespace that read
// the same repository.
func (r *receiver) request(ctx context.Context, src *coppice.NodeSource, now time.Time) (int, error) {
	var list coppice.NodeSourceList
	if err := r.reader.List(ctx, &list, client.InNamespace(src.Namespace)); err != nil {
		return 0, fmt.Errorf("list sources: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		coppice.DeliveredAtAnnotation: now.UTC().Format(time.RFC3339Nano),
	}}})
	if err != nil {
		return 0, err
	}
	n := 0
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name != src.Name && (repository(other) == "" || repository(other) != repository(src)) {
			continue
		}
		err := r.client.Patch(ctx, other, client.RawPatch("application/merge-patch+json", patch), client.FieldOwner("coppice-webhook"))
		if client.IgnoreNotFound(err) != nil {
			return n, fmt.Errorf("annotate source %q: %w", other.Name, err)
		}
		n++
	}
	return n, nil
}

// repository returns what all addresses of a source's repository have in common: host and
// path, whichever way they are reached. It is "" for one that Flux fetches and that nobody
// speaks in.
func repository(src *coppice.NodeSource) string {
	address := src.Spec.URL
	if address == "" && src.Spec.PullRequests != nil {
		address = src.Spec.PullRequests.URL
	}
	u, err := url.Parse(address)
	if err != nil || address == "" {
		return address
	}
	return strings.ToLower(u.Hostname()) + "/" + strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")
}

// serveHooks adds the receiver's server to a manager, on every replica.
func serveHooks(mgr ctrl.Manager, address string, now clock.PassiveClock) error {
	handler := newReceiver(mgr.GetClient(), mgr.GetAPIReader(), now)
	return mgr.Add(&hookServer{address: address, handler: handler})
}

type hookServer struct {
	address string
	handler http.Handler
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *hookServer) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s *hookServer) Start(ctx context.Context) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("serve webhooks: %w", err)
	}
	return s.serve(ctx, ln)
}

// serve answers until ctx ends.
func (s *hookServer) serve(ctx context.Context, ln net.Listener) error {
	log := ctrl.Log.WithName("webhook")
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: hookTimeout, ReadTimeout: hookTimeout, WriteTimeout: 2 * hookTimeout,
		MaxHeaderBytes: hookHeaders,
		BaseContext:    func(net.Listener) context.Context { return ctrllog.IntoContext(ctx, log) },
	}
	log.Info("Serving webhooks", "address", ln.Addr().String())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve webhooks: %w", err)
	case <-ctx.Done():
	}
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), hookTimeout)
	defer cancel()
	return server.Shutdown(wait)
}
