package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/shirou/gopsutil/v4/disk"
)

// MaxDiskPaths is the largest number of paths of a disk collector.
const MaxDiskPaths = 16

// Disk collects "disk": usage and free_bytes of the fullest file system with its path, and, with
// several paths, path0_usage, path0_free_bytes, path0_name and so on for each. A network file
// system may be slow, so the cost is medium.
type Disk struct {
	builtIn
	paths []string
}

// NewDisk returns a collector for the file systems that hold the paths, in their order. It takes
// the first MaxDiskPaths; none means "/".
func NewDisk(paths ...string) *Disk {
	if len(paths) == 0 {
		paths = []string{"/"}
	}
	return &Disk{
		builtIn: builtIn{
			"disk", CostMedium, []string{"usage", "free_bytes", "path", "pathN_usage", "pathN_free_bytes", "pathN_name"},
		},
		paths: slices.Clone(paths[:min(len(paths), MaxDiskPaths)]),
	}
}

// Collect asks the file systems. For one that does not answer, it returns an error together with
// the figures of the others.
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
