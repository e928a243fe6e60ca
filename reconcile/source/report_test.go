package source

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/schemas/coppice"
)

// armoured writes an OpenPGP key as gpg exports it.
func armoured(t *testing.T, kind string, write func(*bytes.Buffer) error) []byte {
	t.Helper()
	var raw, out bytes.Buffer
	if err := write(&raw); err != nil {
		t.Fatal(err)
	}
	w, err := armor.Encode(&out, kind, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(raw.Bytes())
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (p *place) tip() *object.Commit {
	p.t.Helper()
	ref, err := p.repo().Reference(plumbing.NewBranchReferenceName("coppice/drift"), true)
	if err != nil {
		p.t.Fatal(err)
	}
	c, err := p.repo().CommitObject(ref.Hash())
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// testSigned: reports are signed, worded and addressed as the source says, and
// nothing else is pushed when that can't be done.
func testSigned(t *testing.T, w *world) {
	// The key is older than the case's clock.
	made := &packet.Config{Time: func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }}
	entity, err := openpgp.NewEntity("Coppice", "", "coppice@example.com", made)
	if err != nil {
		t.Fatal(err)
	}
	public := armoured(t, openpgp.PublicKeyType, func(b *bytes.Buffer) error { return entity.Serialize(b) })
	if err := entity.EncryptPrivateKeys([]byte(plantedPassword), nil); err != nil {
		t.Fatal(err)
	}
	private := armoured(t, openpgp.PrivateKeyType, func(b *bytes.Buffer) error { return entity.SerializePrivateWithoutSigning(b, nil) })

	p := w.place(t, "signed", func(s *coppice.NodeSource) {
		s.Spec.WriteBack = &coppice.WriteBack{
			Author:        coppice.CommitAuthor{Name: "Fleet Bot", Email: "fleet@example.com"},
			SigningKeyRef: &coppice.SecretReference{Name: "key"},
			Message:       "chore({{ .Cluster }}): {{.Fields}} field, {{.Nonsense}}",
			SkipCI:        true,
		}
	})
	p.commit(p.tree(map[string]int{"a": 100}))
	p.pass()
	p.edit("a", `{"spec":{"limits":{"cpu":"5"}}}`)
	c := want(t, p.pass(), conditionReportFailed, metav1.ConditionTrue, reasonReportFailed)
	if !strings.Contains(c.Message, `{{.Nonsense}}`) || !strings.Contains(c.Message, "{{.Summary}}") {
		t.Error(c.Message)
	}
	p.spec(func(s *coppice.NodeSource) {
		s.Spec.WriteBack.Message = "chore({{ .Cluster }}): {{.Fields}} field\n\n{{.Details}}"
	})
	if c = want(t, p.pass(), conditionReportFailed, metav1.ConditionTrue, reasonSecret); !strings.Contains(c.Message, `no Secret "key"; create it with the keys git.asc and passphrase`) {
		t.Error(c.Message)
	}
	key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "signed", Name: "key"}, Data: map[string][]byte{"git.asc": private, "passphrase": []byte("wrong " + plantedPassword)}}
	p.create(key)
	if c = want(t, p.pass(), conditionReportFailed, metav1.ConditionTrue, reasonSecret); !strings.Contains(c.Message, "passphrase is wrong") {
		t.Error(c.Message)
	}
	if n := p.commits("coppice/drift"); n != 0 {
		t.Errorf("%d commits without a signature", n)
	}
	key.Data["passphrase"] = []byte(plantedPassword)
	if err := p.kube.Update(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	want(t, p.pass(), conditionReportFailed, "", "")
	tip := p.tip()
	if _, err := tip.Verify(string(public)); err != nil {
		t.Errorf("the signature: %v", err)
	}
	if !strings.HasPrefix(tip.Message, "chore(demo): 1 field [skip ci]\n\nNodePool/signed-a spec.limits.cpu (by kubectl-edit)\n\nCoppice-Cluster: demo\n") ||
		tip.Author.Name != "Fleet Bot" || tip.Author.Email != "fleet@example.com" {
		t.Errorf("%s: %q", tip.Author, tip.Message)
	}
	page := p.branch()["drift/demo/signed/fleet.md"]
	if !strings.Contains(page, "| `spec.limits.cpu` | `100` | `\"5\"` | kubectl-edit |") {
		t.Errorf("page:\n%s", page)
	}

	// Another key signs what comes next.
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(ed, "x", []byte(plantedPassword))
	if err != nil {
		t.Fatal(err)
	}
	key.Data = map[string][]byte{"identity": pem.EncodeToMemory(block), "password": []byte(plantedPassword)}
	if err := p.kube.Update(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	p.edit("a", `{"spec":{"limits":{"cpu":100}}}`)
	p.pass()
	if tip = p.tip(); !strings.HasPrefix(tip.PGPSignature, "-----BEGIN SSH SIGNATURE-----") || len(p.branch()) != 1 {
		t.Errorf("signature %q, branch %v", tip.PGPSignature, p.branch())
	}
}

// testRedacted: what is secret is told nowhere, whichever way it comes. What is
// searched for, in every case, is in the harness.
func testRedacted(t *testing.T, w *world) {
	p := w.place(t, "redacted", nil)
	tree := p.tree(map[string]int{"a": 100})
	hook := `nodePools: "redacted-a": metadata: annotations: {"example.com/hook": "https://ci:planted-token-1@hooks.example.com/x", "kubectl.kubernetes.io/last-applied-configuration": "{\"token\":\"planted-last-applied-1\"}"}` + "\n"
	tree["pools.cue"] += hook
	p.commit(tree)
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	p.edit("a", `{"metadata":{"annotations":{"example.com/hook":"https://ci:planted-token-1-b@hooks.example.com/x","kubectl.kubernetes.io/last-applied-configuration":"{\"token\":\"planted-last-applied-1-b\"}"}}}`)
	class := p.class()
	if err := p.kube.Patch(t.Context(), class, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"userData":"planted-user-data-1-b"}}`)), client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	src := p.pass()
	want(t, src, coppice.ConditionDrifted, metav1.ConditionTrue, reasonDrift)
	if src.Status.Drift == nil || src.Status.Drift.Fields != 3 {
		t.Errorf("drift: %+v", src.Status.Drift)
	}
	report := p.reports()["drift/demo/redacted/fleet.yaml"]
	for _, say := range []string{"spec.userData", "*** (", "https://***@hooks.example.com/x"} {
		if !strings.Contains(report, say) {
			t.Errorf("the report lacks %q:\n%s", say, report)
		}
	}
	// A refused commit quotes what it doesn't like.
	bad := p.tree(map[string]int{"a": 100})
	bad["classes.cue"] = strings.Replace(bad["classes.cue"], `userData: "#!/bin/sh\nTOKEN=planted-user-data-1 join\n"`, `userData: ["planted-user-data-1"]`, 1)
	p.commit(bad)
	want(t, p.pass(), conditionReady, metav1.ConditionFalse, reasonInvalid)
	if class = p.class(); class.Spec.UserData == nil || *class.Spec.UserData != "planted-user-data-1-b" {
		t.Errorf("the class is %+v", class.Spec)
	}
}
