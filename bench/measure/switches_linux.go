package measure

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Switches counts how often the threads of a process have given up a processor or lost it. Threads
// that have ended are not in it.
func Switches(pid int) (sum float64, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err == nil && threads == nil {
		err = fmt.Errorf("/proc has no threads of process %d", pid)
	}
	if err != nil {
		return 0, err
	}
	for _, file := range threads {
		status, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) { // the thread has ended since
			continue
		}
		if err != nil {
			return 0, err
		}
		n, err := switchesOf(string(status))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += n
	}
	return sum, nil
}

// switchesOf reads lines such as
//
//	voluntary_ctxt_switches:	150
//	nonvoluntary_ctxt_switches:	545
func switchesOf(status string) (sum float64, err error) {
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !strings.HasSuffix(name, "voluntary_ctxt_switches") {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
