package reconcile_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cli"
	"github.com/coppice-dev/coppice/internal/explain"
	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/internal/snapshot"
)

// command runs one of ours against the sandbox.
func command(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := cli.Main(args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != want {
		t.Fatalf("coppice %s: exit code %d, want %d\n%s", strings.Join(args, " "), code, want, errs.String())
	}
	return out.String() + errs.String()
}

// token returns one of a new service account, with or without leave to ask for
// decisions.
func (l *loop) token(name string, allowed bool) string {
	l.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	objects := []client.Object{account}
	if allowed {
		objects = append(objects,
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{record.Path, snapshot.ControllerPath}, Verbs: []string{"get"}}}},
			&rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
			})
	}
	for _, o := range objects {
		if err := l.kube.Create(l.t.Context(), o); err != nil {
			l.t.Fatal(err)
		}
	}
	request := &authenticationv1.TokenRequest{}
	if err := l.kube.SubResource("token").Create(l.t.Context(), account, request); err != nil {
		l.t.Fatal(err)
	}
	return request.Status.Token
}

// explains asks why a pod of an app has no place: of the controller, who must be
// asked by somebody it lets, and of a snapshot, which must say the same.
func (l *loop) explains(app, cause string) {
	t := l.t
	t.Helper()
	var pods corev1.PodList
	if err := l.kube.List(t.Context(), &pods, client.MatchingLabels{"app": app}); err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d pods of %s (%v)", len(pods.Items), app, err)
	}
	pod := "default/" + pods.Items[0].Name
	url := "https://" + l.secure
	ask := func(want int, args ...string) string {
		return command(t, want, append([]string{"explain", "pod", pod}, args...)...)
	}

	if out := ask(cli.ExitFailed, "--controller", url, "--token", "guess"); !strings.Contains(out, "certificate") {
		t.Errorf("an unknown certificate was trusted: %s", out)
	}
	if out := ask(cli.ExitFailed, "--controller", url, "--insecure-skip-tls-verify", "--token", "guess"); !strings.Contains(out, "bearer token") {
		t.Errorf("a guessed token: %s", out)
	}
	if out := ask(cli.ExitFailed, "--controller", url, "--insecure-skip-tls-verify", "--token", l.token("nobody", false)); !strings.Contains(out, "ClusterRole") {
		t.Errorf("no leave to ask: %s", out)
	}
	known := []string{"--controller", url, "--insecure-skip-tls-verify", "--token", l.token("reader", true)}
	var answer explain.Answer
	if err := json.Unmarshal([]byte(ask(cli.ExitOK, append(known, "-o", "json")...)), &answer); err != nil {
		t.Fatal(err)
	}
	codes := map[string]string{}
	for _, h := range answer.Holds {
		codes[h.Scope] = h.Code
	}
	if codes["NodePool general"] != cause || codes["NodePool strict"] != "Untolerated" {
		t.Errorf("explained by %v, want %s in general and Untolerated in strict", codes, cause)
	}

	file := filepath.Join(t.TempDir(), "snapshot.json")
	if err := os.WriteFile(file, []byte(command(t, cli.ExitOK, append([]string{"snapshot"}, known...)...)), 0o600); err != nil {
		t.Fatal(err)
	}
	out := ask(cli.ExitOK, "--snapshot", file)
	for _, want := range []string{"no NodePool has a place for it", "would help: ", "FailedScheduling"} {
		if !strings.Contains(out, want) {
			t.Errorf("the snapshot's answer lacks %q:\n%s", want, out)
		}
	}
	if out := command(t, cli.ExitOK, "explain", "nodepool", "general", "--snapshot", file); !strings.Contains(out, "Limit for cpu") {
		t.Errorf("the pool's answer lacks its limit:\n%s", out)
	}
	if out := command(t, cli.ExitFailed, "explain", "node", "nowhere", "--snapshot", file); !strings.Contains(out, "there is no Node nowhere; there is ") {
		t.Errorf("an unknown node: %s", out)
	}
}
