package collector

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/freeslot/freeslot/internal/node/cgroup"
)

// groupLimits reads the limits of the control groups in which the process runs, of version 2 and 1.
// The zero value reads this machine's limits; without control groups nothing is limited. It is safe
// for concurrent use.
type groupLimits struct {
	// root is put before the kernel's paths; empty except in tests.
	root string

	mu sync.Mutex // guards found
	// found holds the folders. It is filled when they are first needed, and again when the process
	// has been moved, which usually removes the folder.
	found *groupFolders
}

// groupFolders holds the folders of the process' groups, from its own to the one nearest to the
// root. The limits of all of them apply.
type groupFolders struct {
	memory, cpu, cpuacct []string
	// memoryV2 and cpuV2 decide which files to expect.
	memoryV2, cpuV2 bool
}

// memoryLimit is the lowest limit that applies to the process, in bytes.
type memoryLimit struct {
	total uint64
	// used is the memory that the limit's group holds, without file pages that the kernel gives
	// back if memory is short.
	used uint64
}

// memory returns the lowest memory limit, and false if there is none.
func (g *groupLimits) memory() (memoryLimit, bool) {
	f := g.folders()
	limitFile, usageFile, cacheField := "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	if f.memoryV2 {
		limitFile, usageFile, cacheField = "memory.max", "memory.current", "inactive_file"
	}
	var lowest memoryLimit
	var folder string
	for _, dir := range f.memory {
		if limit, ok := readUint(dir, limitFile); ok && (folder == "" || limit < lowest.total) {
			lowest.total, folder = limit, dir
		}
	}
	if folder == "" {
		return memoryLimit{}, false
	}
	used, ok := readUint(folder, usageFile)
	if !ok {
		return memoryLimit{}, false
	}
	cache, _ := readField(folder, "memory.stat", cacheField)
	lowest.used = used - min(cache, used)
	return lowest, true
}

// cpuLimit is the lowest processor quota that applies to the process.
type cpuLimit struct {
	// cores is the quota as a number of processors.
	cores float64
	// used is the processor time of the quota's group so far, in seconds.
	used float64
	// folder identifies the group.
	folder string
}

// cpu returns the lowest quota, and false if there is none.
func (g *groupLimits) cpu() (cpuLimit, bool) {
	f := g.folders()
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
		used, ok := readField(lowest.folder, "cpu.stat", "usage_usec")
		lowest.used = float64(used) / 1e6
		return lowest, ok
	}
	// The hierarchies of cpu and cpuacct are usually one. Otherwise groups of the same depth
	// correspond.
	if at >= len(f.cpuacct) {
		return cpuLimit{}, false
	}
	used, ok := readUint(f.cpuacct[at], "cpuacct.usage")
	lowest.used = float64(used) / 1e9
	return lowest, ok
}

// quota returns the quota of one group in processors. "max" and -1 mean that there is none.
func quota(dir string, v2 bool) (float64, bool) {
	text := read(dir, "cpu.max")
	if !v2 {
		text = read(dir, "cpu.cfs_quota_us") + " " + read(dir, "cpu.cfs_period_us")
	}
	granted, period, _ := strings.Cut(text, " ")
	x, err := strconv.ParseUint(strings.TrimSpace(granted), 10, 64)
	if err != nil {
		return 0, false
	}
	y, err := strconv.ParseUint(strings.TrimSpace(period), 10, 64)
	return float64(x) / float64(y), err == nil && y > 0
}

// folders returns the folders; they are empty if the kernel has no control groups.
func (g *groupLimits) folders() *groupFolders {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.found == nil || g.found.gone() {
		g.found = findFolders(g.root)
	}
	return g.found
}

// gone reports whether one of the process' own folders no longer exists, or none was found.
func (f *groupFolders) gone() bool {
	if f.memory == nil && f.cpu == nil {
		return true
	}
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

func findFolders(root string) *groupFolders {
	paths := cgroup.ParseOwn(read(root, "/proc/self/cgroup"))
	mounts := cgroup.ParseMounts(read(root, "/proc/self/mountinfo"))
	find := func(controller string) (dirs []string, v2 bool) {
		// If both versions are mounted, a controller belongs to one of them: version 1 lists it by
		// name.
		name := controller
		if _, ok := paths[name]; !ok {
			name, v2 = "", true
		}
		path, ok := paths[name]
		for _, m := range mounts {
			if ok && m.Has(name) {
				return shown(root, m, path), v2
			}
		}
		return nil, v2
	}
	f := &groupFolders{}
	f.memory, f.memoryV2 = find("memory")
	f.cpu, f.cpuV2 = find("cpu")
	f.cpuacct, _ = find("cpuacct")
	return f
}

// shown returns the folders of the group at path and of all groups above it that the mount shows. A
// mount in another namespace than the process' shows only its top: in a container that is the
// process' own group.
func shown(root string, m cgroup.Mount, path string) []string {
	dirs := []string{}
	for dir, ok := m.Dir(path); ok && dir != m.Point; dir = filepath.Dir(dir) {
		dirs = append(dirs, filepath.Join(root, dir))
	}
	return append(dirs, filepath.Join(root, m.Point))
}

// read returns the text of a file; empty if it cannot be read.
func read(dir, file string) string {
	data, _ := os.ReadFile(filepath.Join(dir, file)) // empty, see above
	return string(data)
}

// readUint reads a file with one number. "max" counts as none.
func readUint(dir, file string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(read(dir, file)), 10, 64)
	return n, err == nil
}

// readField reads one number of a file with lines of names and numbers.
func readField(dir, file, name string) (uint64, bool) {
	for line := range strings.Lines(read(dir, file)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
