package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mount is one mounted hierarchy.
type mount struct {
	// root is the cgroup that is mounted at point.
	root, point string
	// controllers are those of a v1 hierarchy, with its other options among them.
	controllers []string
	v2          bool
}

// places are where this process is in the hierarchies that it sees.
type places struct {
	// v2 is a directory, empty without a reason to look for one.
	v2 string
	// v1 are directories by controller.
	v1 map[string]string
}

// find reads /proc.
func find() (places, error) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return places{}, err
	}
	defer mounts.Close()
	own, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return places{}, err
	}
	defer own.Close()
	return locate(mounts, own)
}

// locate reads what proc_pid_mountinfo(5) and cgroups(7) describe.
func locate(mountinfo, self io.Reader) (places, error) {
	mounts, err := readMounts(mountinfo)
	if err != nil {
		return places{}, err
	}
	found := places{v1: make(map[string]string)}
	scanner := bufio.NewScanner(self)
	for scanner.Scan() {
		parts := strings.SplitN(scanner.Text(), ":", 3) // hierarchy:controllers:path
		if len(parts) != 3 {
			continue
		}
		for _, m := range mounts {
			dir, ok := m.dir(parts[2])
			if !ok {
				continue
			}
			if m.v2 && parts[0] == "0" && found.v2 == "" {
				found.v2 = dir
			}
			if m.v2 {
				continue
			}
			for name := range strings.SplitSeq(parts[1], ",") {
				if found.v1[name] == "" && name != "" && slices.Contains(m.controllers, name) {
					found.v1[name] = dir
				}
			}
		}
	}
	return found, scanner.Err()
}

func readMounts(mountinfo io.Reader) ([]mount, error) {
	var mounts []mount
	scanner := bufio.NewScanner(mountinfo)
	for scanner.Scan() {
		before, after, ok := strings.Cut(scanner.Text(), " - ")
		head, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(head) < 5 || len(kind) < 3 || kind[0] != "cgroup" && kind[0] != "cgroup2" {
			continue
		}
		mounts = append(mounts, mount{
			root: unescape(head[3]), point: unescape(head[4]), v2: kind[0] == "cgroup2", controllers: strings.Split(kind[2], ","),
		})
	}
	return mounts, scanner.Err()
}

// unescape undoes the kernel's spelling of what would end a field.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// dir is where the cgroup of a path is, unless it is outside of what is mounted.
func (m mount) dir(path string) (string, bool) {
	rel, err := filepath.Rel(m.root, path)
	// A namespace shows what is outside of it as /../name.
	if err != nil || strings.HasPrefix(path, "/../") || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	return filepath.Join(m.point, rel), true
}

// words are those of a small file.
func words(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	return strings.Fields(string(data)), err
}

// set writes to a file that exists; it makes none, as no kernel file can be made.
func set(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("set %s to %s: %w", file, value, err)
	}
	return nil
}

// setIfThere is for files that only some kernels have.
func setIfThere(dir, file, value string) error {
	if err := set(dir, file, value); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
