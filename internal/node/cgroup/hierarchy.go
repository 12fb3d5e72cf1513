package cgroup

import (
	"path/filepath"
	"slices"
	"strings"
)

// Mount is one mounted hierarchy.
type Mount struct {
	// Root is the cgroup that is mounted at Point.
	Root, Point string
	// controllers lists the controllers of a v1 hierarchy, with its other options among them.
	controllers []string
	v2          bool
}

// ParseMounts reads the hierarchies in /proc/self/mountinfo; see proc_pid_mountinfo(5).
func ParseMounts(mountinfo string) []Mount {
	var mounts []Mount
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		head, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(head) < 5 || len(kind) < 3 || kind[0] != "cgroup" && kind[0] != "cgroup2" {
			continue
		}
		mounts = append(mounts, Mount{
			Root: unescape(head[3]), Point: unescape(head[4]), v2: kind[0] == "cgroup2",
			controllers: strings.Split(kind[2], ","),
		})
	}
	return mounts
}

// unescape undoes the kernel's spelling of characters that would end a field.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// ParseOwn reads /proc/self/cgroup: the paths of the process' groups, by the controllers of v1. The
// path in v2 is under "". See cgroups(7).
func ParseOwn(text string) map[string]string {
	paths := make(map[string]string)
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3) // hierarchy:controllers:path
		if len(parts) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			paths[controller] = parts[2]
		}
	}
	return paths
}

// Has reports whether the hierarchy has a controller of v1 or, if controller is "", is v2.
func (m Mount) Has(controller string) bool {
	if controller == "" {
		return m.v2
	}
	return !m.v2 && slices.Contains(m.controllers, controller)
}

// Dir returns the directory of the cgroup at path; ok is false if the mount does not show it.
func (m Mount) Dir(path string) (dir string, ok bool) {
	rel, err := filepath.Rel(m.Root, path)
	// A namespace shows a cgroup outside of it as /../name.
	if err != nil || strings.HasPrefix(path, "/../") || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	return filepath.Join(m.Point, rel), true
}
