package cli

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestBoundMemory(t *testing.T) {
	tests := map[string]struct {
		why   string
		limit int64
		file  string
		text  string
		env   string
		want  int64
	}{
		"given":      {"nine tenths of the flag's", 1000, "memory.max", "500\n", "", 900},
		"version 2":  {"the container's", -1, "memory.max", "1073741800\n", "", 966367620},
		"unlimited":  {"no bound", -1, "memory.max", "max\n", "", 1 << 62},
		"version 1":  {"the container's", -1, "memory/memory.limit_in_bytes", "2000\n", "", 1800},
		"v1, none":   {"a number that stands for none", -1, "memory/memory.limit_in_bytes", "9223372036854771712\n", "", 1 << 62},
		"no cgroups": {"no bound", -1, "other", "1\n", "", 1 << 62},
		"turned off": {"no bound although there is one", 0, "memory.max", "500\n", "", 1 << 62},
		"GOMEMLIMIT": {"it wins", 1000, "memory.max", "500\n", "700B", 1 << 62},
	}
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetGCPercent(percent); debug.SetMemoryLimit(limit) })
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, "sys/fs/cgroup", tc.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("GOMEMLIMIT", tc.env)
			t.Setenv("GOGC", "")
			debug.SetMemoryLimit(1 << 62)
			boundMemory(tc.limit, root)
			if got := debug.SetMemoryLimit(-1); got != tc.want {
				t.Errorf("the limit is %d, want %d (%s)", got, tc.want, tc.why)
			}
			if got := debug.SetGCPercent(controllerGarbage); got != controllerGarbage {
				t.Errorf("garbage may be %d per cent", got)
			}
		})
	}
}
