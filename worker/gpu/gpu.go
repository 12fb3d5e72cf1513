// Package gpu collects the figures of NVIDIA graphics processors for a worker. It is a package of
// its own because every program that imports it is linked dynamically, even without cgo; see
// docs/nodeagent.md#metrics.
package gpu

import (
	"github.com/freeslot/freeslot/internal/node/collector/gpu"
	"github.com/freeslot/freeslot/worker"
)

// Collector collects "gpu": count, and of all devices together and each by itself utilization,
// memory and temperature. It is not available where there is no driver, which is no failure.
func Collector() worker.Collector { return gpu.New("") }
