// Package endpoints is what the sandbox tells about itself once it is ready, in
// JSON: where its parts listen and with what credentials they let a client in.
//
// The sandbox writes it, tests and people read it. Everything listens on
// 127.0.0.1; the credentials are made anew for each sandbox and end with it.
package endpoints

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// Endpoints are the addresses of one running sandbox.
type Endpoints struct {
	// PID is the sandbox's process.
	PID int `json:"pid"`
	// DataDir holds its data and logs.
	DataDir string `json:"dataDir"`

	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string `json:"kubeconfig"`
	// APIServer is the API server's URL, as user data names it.
	APIServer   string `json:"apiServer"`
	ClusterName string `json:"clusterName"`

	// EC2 is the URL of the simulator, for all AWS services.
	EC2             string `json:"ec2"`
	Region          string `json:"region"`
	AccessKeyID     string `json:"accessKeyID"`
	SecretAccessKey string `json:"secretAccessKey"`
	// Queue is the name of the SQS queue that interruptions are sent to.
	Queue string `json:"queue"`

	// Git is the URL below which repositories lie, as in GIT/NAME.git.
	Git         string `json:"git"`
	GitUsername string `json:"gitUsername"`
	GitPassword string `json:"gitPassword"`
}

// Environ is the environment in which a controller finds the sandbox: the AWS
// SDK's variables, and those that Karpenter names its cluster with.
func (e Endpoints) Environ() []string {
	return []string{
		"KUBECONFIG=" + e.Kubeconfig,
		"CLUSTER_NAME=" + e.ClusterName,
		"CLUSTER_ENDPOINT=" + e.APIServer,
		"AWS_ENDPOINT_URL=" + e.EC2,
		"AWS_REGION=" + e.Region,
		"AWS_ACCESS_KEY_ID=" + e.AccessKeyID,
		"AWS_SECRET_ACCESS_KEY=" + e.SecretAccessKey,
		"AWS_EC2_METADATA_DISABLED=true",
	}
}

// Repo is the URL of a repository.
func (e Endpoints) Repo(name string) string { return e.Git + "/" + name + ".git" }

// CloneURL is the URL of a repository with the credentials in it, for people.
func (e Endpoints) CloneURL(name string) string {
	u, err := url.Parse(e.Repo(name))
	if err != nil {
		return e.Repo(name)
	}
	u.User = url.UserPassword(e.GitUsername, e.GitPassword)
	return u.String()
}

// Write writes the endpoints to a file, which appears complete or not at all.
// Only its owner may read it.
func (e Endpoints) Write(path string) error {
	data, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the endpoints: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".endpoints-*")
	if err != nil {
		return fmt.Errorf("write the endpoints: %w", err)
	}
	_, err = tmp.Write(append(data, '\n'))
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("write the endpoints: %w", err)
	}
	return nil
}

// Read reads what Write wrote.
func Read(path string) (Endpoints, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Endpoints{}, fmt.Errorf("read the endpoints: %w", err)
	}
	var e Endpoints
	if err := json.Unmarshal(data, &e); err != nil {
		return Endpoints{}, fmt.Errorf("read the endpoints in %s: %w", path, err)
	}
	return e, nil
}
