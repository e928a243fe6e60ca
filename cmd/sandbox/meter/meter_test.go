package meter

import (
	"os"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	// The second field may hold anything, brackets and blanks too.
	stat := "4 (a ) b) S 1 2 3 0 -1 4194560 1 2 3 4 250 50 7 8 20 0 9 0 100 1 2"
	if d, err := parseProcessTime([]byte(stat)); err != nil || d != 3*time.Second {
		t.Errorf("process time %v, %v", d, err)
	}
	busy := "cpu  100 10 50 9999 777 1 2 3 44 0\ncpu0 1\n"
	if d, err := parseBusy([]byte(busy)); err != nil || d != 1660*time.Millisecond {
		t.Errorf("busy %v, %v", d, err)
	}
	if m, err := parseMemory([]byte("VmPeak:\t 9 kB\nVmHWM:\t  2048 kB\n"), "VmHWM:"); err != nil || m != 2 {
		t.Errorf("peak %v, %v", m, err)
	}
	for _, bad := range []string{"", "1 (x) S", "cpu 1 2"} {
		if _, err := parseProcessTime([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a process", bad)
		}
		if _, err := parseBusy([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a machine", bad)
		}
		if _, err := parseMemory([]byte(bad), "VmHWM:"); err == nil {
			t.Errorf("%q is taken for a status", bad)
		}
	}
	before, err := Read(os.Getpid())
	if err != nil {
		t.Skipf("the measuring needs /proc: %v", err)
	}
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
	}
	after, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after.Own < before.Own || OtherLoad(before, after) < 0 {
		t.Errorf("from %+v to %+v", before, after)
	}
	if now, peak, err := Memory(os.Getpid()); err != nil || now < 1 || peak < now {
		t.Errorf("memory %v of %v MiB, %v", now, peak, err)
	}
}
