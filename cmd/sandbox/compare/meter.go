package compare

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

// reading is what the kernel told of a process and of the machine at one time.
type reading struct {
	at time.Time
	// own and self are the processor time of the controller and of this process,
	// busy that of the whole machine.
	own, self, busy time.Duration
}

// read takes a reading of the process with the number.
func read(pid int) (reading, error) {
	r := reading{at: time.Now()}
	var err error
	if r.own, err = processTime(strconv.Itoa(pid)); err != nil {
		return r, err
	}
	if r.self, err = processTime("self"); err != nil {
		return r, err
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return r, fmt.Errorf("read the machine's load: %w", err)
	}
	r.busy, err = parseBusy(stat)
	return r, err
}

// otherLoad is the share of the machine that neither the controller nor the
// sandbox used between two readings, though it was not idle.
func otherLoad(from, to reading) float64 {
	elapsed := to.at.Sub(from.at) * time.Duration(runtime.NumCPU())
	if elapsed <= 0 {
		return 0
	}
	other := (to.busy - from.busy) - (to.own - from.own) - (to.self - from.self)
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

// peakMemory is the most that a process has had in memory, in MiB.
func peakMemory(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read a process's memory: %w", err)
	}
	return parsePeak(text)
}

func parsePeak(text []byte) (float64, error) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				return 0, fmt.Errorf("read VmHWM: %w", err)
			}
			return kib / 1024, nil
		}
	}
	return 0, errors.New("/proc/PID/status has no VmHWM")
}
