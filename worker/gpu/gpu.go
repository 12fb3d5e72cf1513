// Package gpu collects the figures of NVIDIA graphics processors for a worker. It is a separate
// package because every program that imports it is linked dynamically, even without cgo; see
// docs/nodeagent.md#metrics.
package gpu

import (
	"github.com/freeslot/freeslot/internal/node/collector/gpu"
	"github.com/freeslot/freeslot/worker"
)

// Collector collects "gpu": the count of devices, and the utilization, memory and temperature of
// each device and of all together. It is not available without a driver, which is not a failure.
func Collector() worker.Collector { return gpu.New("") }
