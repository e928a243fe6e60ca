package ec2

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/ec2sim"
)

// TestCredentials resolves a class with credentials from each place where a pod may get
// them, against a simulator that knows which keys exist.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	payload, err := json.Marshal(map[string]any{
		"iss": "https://oidc.eks.us-west-2.amazonaws.com/id/EXAMPLE", "sub": "system:serviceaccount:coppice-system:coppice",
		"aud": []string{"sts.amazonaws.com"}, "exp": time.Now().Add(time.Hour).Unix(),
	})
	if err != nil {
		t.Fatal(err)
	}
	token := write("token", "e30."+base64.RawURLEncoding.EncodeToString(payload)+".c2ln")

	// What EKS' agent on a node and EC2's metadata service answer, each to who shows
	// what it asks for.
	keys := fmt.Sprintf(`"AccessKeyId":"AKIDEXAMPLE","SecretAccessKey":"right","Expiration":%q`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "pod-token" {
			http.Error(w, "who asks?", http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, "{%s}", keys)
	}))
	defer agent.Close()
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const list = "/latest/meta-data/iam/security-credentials/"
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "300")
			fmt.Fprint(w, "imds-token")
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "imds-token":
			http.Error(w, "IMDSv2 only", http.StatusUnauthorized)
		case r.URL.Path == list:
			fmt.Fprint(w, "coppice")
		case r.URL.Path == list+"coppice":
			fmt.Fprintf(w, `{"Code":"Success","Type":"AWS-HMAC",%s}`, keys)
		default:
			http.NotFound(w, r)
		}
	}))
	defer metadata.Close()

	for name, env := range map[string]map[string]string{
		"environment": {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "right"},
		"IRSA": {"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_SESSION_NAME": "coppice",
			"AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/coppice"},
		"Pod Identity": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": agent.URL + "/v1/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": write("pod", "pod-token")},
		"profile": {"AWS_PROFILE": "fleet", "AWS_CONFIG_FILE": write("config", "[profile fleet]\nregion = us-west-2\n"),
			"AWS_SHARED_CREDENTIALS_FILE": write("credentials", "[fleet]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = right\n")},
		"instance role": {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.URL},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *ec2sim.Config) { c.Keys = map[string]string{"AKIDEXAMPLE": "right"} })
			t.Setenv("AWS_ACCESS_KEY_ID", "")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "")
			for k, v := range env {
				t.Setenv(k, v)
			}
			// The SDK asks for a role without heeding AWS_ENDPOINT_URL.
			t.Setenv("AWS_ENDPOINT_URL_STS", os.Getenv("AWS_ENDPOINT_URL"))
			if got := len(w.resolve(w.fresh(), newClass()).Status.Subnets); got == 0 {
				t.Error("no subnet was found")
			}
		})
	}
}
