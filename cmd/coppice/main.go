// Command coppice declares Kubernetes nodes in CUE, reconciles them from Git and
// reports back to Git.
package main

import (
	"os"

	"github.com/coppice-dev/coppice/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
