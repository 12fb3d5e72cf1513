package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// places holds the directories of this process in the hierarchies.
type places struct {
	// v2 is empty if no hierarchy of v2 shows the process.
	v2 string
	// v1 holds the directories by controller.
	v1 map[string]string
}

// find reads /proc.
func find() (places, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return places{}, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return places{}, err
	}
	return locate(string(mounts), string(own)), nil
}

// locate takes, for each controller, the first mount that shows the group of the process.
func locate(mountinfo, own string) places {
	mounts, found := ParseMounts(mountinfo), places{v1: make(map[string]string)}
	for controller, path := range ParseOwn(own) {
		for _, m := range mounts {
			dir, ok := m.Dir(path)
			if !ok || !m.Has(controller) {
				continue
			}
			if controller == "" {
				found.v2 = dir
			} else {
				found.v1[controller] = dir
			}
			break
		}
	}
	return found
}

// words returns the words of a small file.
func words(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	return strings.Fields(string(data)), err
}

// set writes to a file of the kernel, which must exist.
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

// setIfThere writes to a file that only some kernels have.
func setIfThere(dir, file, value string) error {
	if err := set(dir, file, value); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
