// Package meter reads from the kernel what a process and the machine use: processor time
// and memory. It needs Linux's /proc.
package meter

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc: USER_HZ, which is 100 on every
// architecture that Go runs on.
const tick = 10 * time.Millisecond

// Reading is what the kernel told of a process and of the machine at one time.
type Reading struct {
	At time.Time
	// Own and Self are the processor time of the process and of this one, Busy that of
	// the whole machine.
	Own, Self, Busy time.Duration
}

// Read takes a reading of the process with the number.
func Read(pid int) (Reading, error) {
	r := Reading{At: time.Now()}
	var err error
	if r.Own, err = processTime(strconv.Itoa(pid)); err != nil {
		return r, err
	}
	if r.Self, err = processTime("self"); err != nil {
		return r, err
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return r, fmt.Errorf("read the machine's load: %w", err)
	}
	r.Busy, err = parseBusy(stat)
	return r, err
}

// OtherLoad is the share of the machine that neither the process nor this one used
// between two readings, though it was not idle.
func OtherLoad(from, to Reading) float64 {
	elapsed := to.At.Sub(from.At) * time.Duration(runtime.NumCPU())
	if elapsed <= 0 {
		return 0
	}
	other := (to.Busy - from.Busy) - (to.Own - from.Own) - (to.Self - from.Self)
	return max(0, float64(other)/float64(elapsed))
}

func processTime(pid string) (time.Duration, error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, fmt.Errorf("read a process's time: %w", err)
	}
	return parseProcessTime(text)
}

// parseProcessTime adds up the user and system time in /proc/PID/stat, see proc(5).
func parseProcessTime(text []byte) (time.Duration, error) {
	// The second field is the program's name in brackets, which may hold anything.
	end := bytes.LastIndexByte(text, ')')
	fields := bytes.Fields(text[end+1:])
	const utime, stime = 14 - 3, 15 - 3
	if end < 0 || len(fields) <= stime {
		return 0, errors.New("/proc/PID/stat has too few fields")
	}
	total := int64(0)
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/PID/stat: %w", err)
		}
		total += n
	}
	return time.Duration(total) * tick, nil
}

// parseBusy adds up all processors' time in /proc/stat that was not idle.
func parseBusy(text []byte) (time.Duration, error) {
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	// cpu user nice system idle iowait irq softirq steal; guests are in user.
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", first)
	}
	total := int64(0)
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/stat: %w", err)
		}
		total += n
	}
	return time.Duration(total) * tick, nil
}

// Memory is what a process has resident now and the most that it has had, in MiB.
func Memory(pid int) (now, peak float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read a process's memory: %w", err)
	}
	if now, err = parseMemory(text, "VmRSS:"); err != nil {
		return 0, 0, err
	}
	peak, err = parseMemory(text, "VmHWM:")
	return now, peak, err
}

// Mapped is what a process has resident of files, in MiB: its program above all, which
// the kernel drops when memory is short.
func Mapped(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read a process's memory: %w", err)
	}
	return parseMemory(text, "RssFile:")
}

func parseMemory(text []byte, name string) (float64, error) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				return 0, fmt.Errorf("read %s %w", name, err)
			}
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("/proc/PID/status has no %s", strings.TrimSuffix(name, ":"))
}
