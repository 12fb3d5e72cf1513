package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticksPerSecond is the unit of /proc/<pid>/stat, fixed for all programs on Linux.
const ticksPerSecond = 100

// CPUSeconds is the time, user and system, that a process has used of all processors.
func CPUSeconds(pid int) (float64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The second field is the command in parentheses, which may hold anything.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("process %d: stat has %d fields", pid, len(fields))
	}
	var sum float64
	for _, text := range fields[11:13] {
		ticks, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, err
		}
		sum += ticks
	}
	return sum / ticksPerSecond, nil
}
