// Package install writes the manifests that run the controller in a cluster: who it is
// there, what it may do, and the Deployment.
package install

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/template"
)

//go:embed install.yaml
var manifests string

// Options say what is installed.
type Options struct {
	// Namespace is made, and holds all that has one.
	Namespace string
	// Image is the controller's, as a kubelet pulls it.
	Image string
	// Replicas is the number of controllers, of which one leads.
	Replicas int
	// RoleARN is the IAM role of the controller's service account, "" with Pod Identity.
	RoleARN string
	// Flags are the controller's.
	Flags []string
}

var (
	label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	image = regexp.MustCompile(`^[a-z0-9][-a-zA-Z0-9._:/@]*$`)
	role  = regexp.MustCompile(`^arn:aws[-a-z]*:iam::[0-9]{12}:role/[-A-Za-z0-9+=,.@_/]+$`)
)

// check returns what is wrong with the options, as a sentence that ends in what to do.
func (o Options) check() error {
	switch {
	case !label.MatchString(o.Namespace):
		return fmt.Errorf("namespace %q is no name of one; give lower-case letters, digits and dashes, 63 at most", o.Namespace)
	case !image.MatchString(o.Image):
		return fmt.Errorf("image %q is no reference to one; give it as in REGISTRY/coppice:VERSION", o.Image)
	case o.Replicas < 1:
		return fmt.Errorf("%d replicas run nothing; give 1, or 2 so that another takes over at once", o.Replicas)
	case o.RoleARN != "" && !role.MatchString(o.RoleARN):
		return fmt.Errorf("role %q is no ARN of an IAM role; give it as in arn:aws:iam::111122223333:role/coppice, or leave it out with Pod Identity", o.RoleARN)
	}
	return nil
}

// Write writes the manifests as YAML documents.
func Write(w io.Writer, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	// A JSON string is a YAML string, whatever it holds.
	quote := func(s string) (string, error) {
		text, err := json.Marshal(s)
		return string(text), err
	}
	t, err := template.New("install.yaml").Funcs(template.FuncMap{"json": quote}).Parse(manifests)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	var b strings.Builder
	if err := t.Execute(&b, o); err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	_, err = io.WriteString(w, b.String())
	return err
}
