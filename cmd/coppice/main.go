// Command coppice declares Kubernetes nodes in CUE, reconciles them from Git and
// reports back to Git.
package main

import (
	"os"

	// For images that hold nothing but this binary.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/coppice-dev/coppice/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
