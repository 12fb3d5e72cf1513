package collector

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// cgroup reads the limits of the control groups in which the process runs, of version 2
// and 1. The zero value reads those of this machine; where there are none, nothing is
// limited. It is safe for concurrent use.
type cgroup struct {
	// root is what the paths of the kernel are below; empty means "/". For tests.
	root string

	mu sync.Mutex // guards found
	// found are the folders, looked up when they are needed first and again when the
	// process has been moved, which removes the folder as a rule.
	found *cgroupFolders
}

// cgroupFolders are the folders of the process's groups, from its own one to that
// nearest to the root. Limits of all of them hold.
type cgroupFolders struct {
	memory, cpu, cpuacct []string
	// memoryV2 and cpuV2 say which files to expect.
	memoryV2, cpuV2 bool
}

// memoryLimit is the lowest limit that holds for the process, in bytes.
type memoryLimit struct {
	total uint64
	// used is what the group of that limit holds, without file pages that the kernel
	// gives back when memory is short.
	used uint64
}

// memory returns the lowest memory limit, and false when there is none.
func (c *cgroup) memory() (memoryLimit, bool) {
	f := c.folders()
	if f == nil {
		return memoryLimit{}, false
	}
	limitFile, usageFile, cacheField := "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	if f.memoryV2 {
		limitFile, usageFile, cacheField = "memory.max", "memory.current", "inactive_file"
	}
	var lowest memoryLimit
	var folder string
	for _, dir := range f.memory {
		if limit, ok := readUint(filepath.Join(dir, limitFile)); ok && (folder == "" || limit < lowest.total) {
			lowest.total, folder = limit, dir
		}
	}
	if folder == "" {
		return memoryLimit{}, false
	}
	used, ok := readUint(filepath.Join(folder, usageFile))
	if !ok {
		return memoryLimit{}, false
	}
	cache, _ := readField(filepath.Join(folder, "memory.stat"), cacheField)
	lowest.used = used - min(cache, used)
	return lowest, true
}

// cpuLimit is the lowest processor quota that holds for the process.
type cpuLimit struct {
	// cores is the quota as a number of processors.
	cores float64
	// used is the processor time of the quota's group so far, in seconds.
	used float64
	// folder tells groups apart.
	folder string
}

// cpu returns the lowest quota, and false when there is none.
func (c *cgroup) cpu() (cpuLimit, bool) {
	f := c.folders()
	if f == nil {
		return cpuLimit{}, false
	}
	lowest, at := cpuLimit{}, -1
	for i, dir := range f.cpu {
		if cores, ok := quota(dir, f.cpuV2); ok && (at < 0 || cores < lowest.cores) {
			lowest.cores, lowest.folder, at = cores, dir, i
		}
	}
	if at < 0 {
		return cpuLimit{}, false
	}
	if f.cpuV2 {
		used, ok := readField(filepath.Join(lowest.folder, "cpu.stat"), "usage_usec")
		lowest.used = float64(used) / 1e6
		return lowest, ok
	}
	// The hierarchies of cpu and cpuacct are one as a rule; otherwise the groups of the
	// same depth are taken for each other.
	if at >= len(f.cpuacct) {
		return cpuLimit{}, false
	}
	used, ok := readUint(filepath.Join(f.cpuacct[at], "cpuacct.usage"))
	lowest.used = float64(used) / 1e9
	return lowest, ok
}

// quota is that of one group in processors.
func quota(dir string, v2 bool) (float64, bool) {
	if v2 {
		data, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
		fields := bytes.Fields(data)
		if err != nil || len(fields) != 2 {
			return 0, false
		}
		return ratio(string(fields[0]), string(fields[1]))
	}
	granted, err := os.ReadFile(filepath.Join(dir, "cpu.cfs_quota_us"))
	if err != nil {
		return 0, false
	}
	period, err := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us"))
	if err != nil {
		return 0, false
	}
	return ratio(strings.TrimSpace(string(granted)), strings.TrimSpace(string(period)))
}

// ratio fails for "max" and -1, which mean no limit.
func ratio(a, b string) (float64, bool) {
	x, err := strconv.ParseUint(a, 10, 64)
	if err != nil {
		return 0, false
	}
	y, err := strconv.ParseUint(b, 10, 64)
	if err != nil || y == 0 {
		return 0, false
	}
	return float64(x) / float64(y), true
}

func (c *cgroup) folders() *cgroupFolders {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found == nil || c.found.gone() {
		c.found = findCgroups(c.root)
	}
	return c.found
}

// gone reports whether one of the process's own folders does not exist any more.
func (f *cgroupFolders) gone() bool {
	for _, dirs := range [][]string{f.memory, f.cpu} {
		if len(dirs) == 0 {
			continue
		}
		if _, err := os.Stat(dirs[0]); errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// findCgroups returns nil where the kernel tells nothing of control groups.
func findCgroups(root string) *cgroupFolders {
	groups, err := os.ReadFile(root + "/proc/self/cgroup")
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile(root + "/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	paths := parseCgroups(string(groups))
	points := parseCgroupMounts(string(mounts))
	find := func(controller string) (dirs []string, v2 bool) {
		// Where both versions are mounted, a controller belongs to one of them: version 1
		// lists it by name.
		name := controller
		if _, ok := paths[name]; !ok {
			name, v2 = "", true
		}
		path, ok := paths[name]
		point, mounted := points[name]
		if !ok || !mounted {
			return nil, v2
		}
		return point.folders(root, path), v2
	}
	f := &cgroupFolders{}
	f.memory, f.memoryV2 = find("memory")
	f.cpu, f.cpuV2 = find("cpu")
	f.cpuacct, _ = find("cpuacct")
	return f
}

// parseCgroups reads /proc/self/cgroup: the path by controller of version 1, and that
// of version 2 under the empty name.
func parseCgroups(text string) map[string]string {
	paths := make(map[string]string)
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			paths[controller] = parts[2]
		}
	}
	return paths
}

// cgroupMount is where a hierarchy is mounted, and which of its groups is there.
type cgroupMount struct{ group, point string }

// parseCgroupMounts reads /proc/self/mountinfo: the mount by controller of version 1,
// and that of version 2 under the empty name. The first mount of several counts.
func parseCgroupMounts(text string) map[string]cgroupMount {
	points := make(map[string]cgroupMount)
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		mount := cgroupMount{group: unescape(fields[3]), point: unescape(fields[4])}
		names := []string{""}
		switch kind[0] {
		case "cgroup2":
		case "cgroup":
			names = strings.Split(kind[2], ",")
		default:
			continue
		}
		for _, name := range names {
			if _, ok := points[name]; !ok {
				points[name] = mount
			}
		}
	}
	return points
}

// folders are those of the group at path and of all groups above it that are mounted.
func (m cgroupMount) folders(root, path string) []string {
	top := filepath.Join(root, m.point)
	below, err := filepath.Rel(m.group, path)
	if err != nil || below == ".." || strings.HasPrefix(below, "../") {
		// Seen from another namespace than that of the mount: what is mounted in a
		// container is its own group.
		below = "."
	}
	dirs := []string{}
	for below != "." {
		dirs = append(dirs, filepath.Join(top, below))
		below = filepath.Dir(below)
	}
	return append(dirs, top)
}

var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func unescape(s string) string { return mountEscapes.Replace(s) }

// readUint reads a file with one number. "max" is none.
func readUint(path string) (uint64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 64)
	return n, err == nil
}

// readField reads one number of a file with lines of names and numbers.
func readField(path, name string) (uint64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
