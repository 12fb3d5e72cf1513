package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/shirou/gopsutil/v4/disk"
)

// MaxDiskPaths is the most paths of a disk collector.
const MaxDiskPaths = 16

// Disk collects "disk": usage and free_bytes of the fullest file system with its path,
// and, with several paths, path0_usage, path0_free_bytes, path0_name and so on for each.
type Disk struct{ paths []string }

// NewDisk returns a collector for the file systems that hold the paths, in their order,
// of which it takes the first MaxDiskPaths; none means "/".
func NewDisk(paths ...string) *Disk {
	if len(paths) == 0 {
		paths = []string{"/"}
	}
	return &Disk{paths: slices.Clone(paths[:min(len(paths), MaxDiskPaths)])}
}

// Type is "disk".
func (*Disk) Type() string { return "disk" }

// Available is true.
func (*Disk) Available(context.Context) bool { return true }

// Cost is CostMedium: a file system of the network may take its time.
func (*Disk) Cost() Cost { return CostMedium }

// Collect asks the file systems. One that cannot be asked is an error beside the
// figures of the others.
func (d *Disk) Collect(ctx context.Context) (Metrics, error) {
	figures := Metrics{}
	var failures []error
	worst := -1.0
	for i, path := range d.paths {
		stat, err := disk.UsageWithContext(ctx, path)
		if err != nil {
			failures = append(failures, fmt.Errorf("path %s: %w", path, err))
			continue
		}
		usage, free := share(stat.UsedPercent, 100), bytesOf(stat.Free)
		if usage > worst {
			worst = usage
			figures["usage"], figures["free_bytes"], figures["path"] = usage, free, path
		}
		if len(d.paths) > 1 {
			at := "path" + strconv.Itoa(i) + "_"
			figures[at+"usage"], figures[at+"free_bytes"], figures[at+"name"] = usage, free, path
		}
	}
	if len(failures) == len(d.paths) {
		return nil, errors.Join(failures...)
	}
	return figures, errors.Join(failures...)
}
