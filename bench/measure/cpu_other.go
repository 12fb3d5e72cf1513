//go:build !linux

package measure

import "errors"

// CPUSeconds is not known here.
func CPUSeconds(int) (float64, error) { return 0, errors.New("CPU time of processes: only on Linux") }
