package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is what this tree calls itself; the commit comes from the build.
const version = "0.1.0-dev"

func newVersionCommand(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit it was built from, and the Go release",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			fmt.Fprintf(s.Out, "coppice %s", version)
			if c := commit(); c != "" {
				fmt.Fprintf(s.Out, " (%s)", c)
			}
			fmt.Fprintf(s.Out, " %s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}

// commit is what the go command recorded about the tree, if it did.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var hash, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			hash = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+dirty"
			}
		}
	}
	if len(hash) > 12 {
		hash = hash[:12]
	}
	if hash == "" {
		return ""
	}
	return hash + dirty
}
