// Package gpu collects the figures of NVIDIA graphics processors by NVML, the library that comes
// with their driver. The library is loaded at run time: a build needs nothing, and without a driver
// the collector is not available.
//
// It is never available on other systems than Linux on amd64 and arm64, and in a build with the tag
// nogpu. It is a separate package because every program that imports it is linked dynamically, even
// without cgo.
package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/freeslot/freeslot/internal/node/collector"
)

// DefaultLibrary is the name that the system's loader looks up.
const DefaultLibrary = "libnvidia-ml.so.1"

// MaxGPUs is the largest number of devices whose figures are collected; the figure count counts
// all.
const MaxGPUs = 16

// Collector collects "gpu". For all devices together it collects count, utilization (mean),
// memory_usage, memory_used_bytes, memory_total_bytes, temperature_celsius (highest) and name (the
// first device's); and for each device gpu0_utilization and so on. Figures that a device does not
// have are absent.
type Collector struct {
	path string
	// lib is nil until it has been loaded. It stays loaded, because unloading can upset a driver.
	lib library
	// started is true if the library was initialized, and not shut down since.
	started bool
}

// library is the used part of NVML. Errors of its functions are of type status, except for a
// missing function.
type library interface {
	start() error
	stop()
	count() (int, error)
	// device returns the figures of the device at i, or an error and no figures.
	device(i int) (device, error)
}

// device holds the figures of one device; missing ones are nil or empty.
type device struct {
	name        string
	utilization *float64 // 0 to 1
	memory      *memory
	celsius     *int64
}

type memory struct{ total, used uint64 }

// status is a nvmlReturn_t that is not NVML_SUCCESS.
type status struct {
	call string
	code int32
	text string
}

func (s *status) Error() string {
	if s.text == "" {
		return s.call + " returned " + strconv.Itoa(int(s.code))
	}
	return fmt.Sprintf("%s: %s (%d)", s.call, s.text, s.code)
}

// Codes that mean that there is no device.
const (
	driverNotLoaded = 9
	libraryNotFound = 12
)

// New returns a collector that loads the library at path; empty means DefaultLibrary.
func New(path string) *Collector {
	if path == "" {
		path = DefaultLibrary
	}
	return &Collector{path: path}
}

// Type returns "gpu".
func (*Collector) Type() string { return "gpu" }

// Fields implements collector.Lister.
func (*Collector) Fields() []string {
	fields := []string{"count"}
	for _, f := range []string{
		"name", "utilization", "memory_usage", "memory_used_bytes", "memory_total_bytes", "temperature_celsius",
	} {
		fields = append(fields, f, "gpuN_"+f)
	}
	return fields
}

// Cost returns collector.CostMedium.
func (*Collector) Cost() collector.Cost { return collector.CostMedium }

// Available reports whether there is a driver with a device. A driver that does not work, such as
// one that was updated without a restart, is available, and Collect returns its error.
func (c *Collector) Available(context.Context) bool {
	if c.lib == nil {
		lib, ok := open(c.path)
		if !ok {
			return false
		}
		c.lib = lib
	}
	if err := c.start(); err != nil {
		var s *status
		return !errors.As(err, &s) || s.code != driverNotLoaded && s.code != libraryNotFound
	}
	n, err := c.lib.count()
	if err == nil && n == 0 {
		c.stop()
		return false
	}
	return true
}

func (c *Collector) start() error {
	if c.started {
		return nil
	}
	if err := c.lib.start(); err != nil {
		return err
	}
	c.started = true
	return nil
}

func (c *Collector) stop() {
	c.lib.stop()
	c.started = false
}

// Collect asks the driver. For a device that does not answer, it returns an error together with the
// figures of the others.
func (c *Collector) Collect(ctx context.Context) (collector.Metrics, error) {
	if c.lib == nil && !c.Available(ctx) {
		return nil, errors.New("there is no driver")
	}
	if err := c.start(); err != nil {
		return nil, err
	}
	n, err := c.lib.count()
	if err != nil {
		c.stop() // the next call may find another driver
		return nil, err
	}
	var t totals
	figures := collector.Metrics{"count": n}
	var failures []error
	for i := range min(n, MaxGPUs) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		d, err := c.lib.device(i)
		if err != nil {
			failures = append(failures, fmt.Errorf("device %d: %w", i, err))
			continue
		}
		d.addTo(figures, "gpu"+strconv.Itoa(i)+"_")
		t.add(d)
	}
	if n > 0 && len(failures) == min(n, MaxGPUs) {
		c.stop()
		return nil, errors.Join(failures...)
	}
	t.device().addTo(figures, "")
	return figures, errors.Join(failures...)
}

func (d device) addTo(figures collector.Metrics, prefix string) {
	if d.name != "" {
		figures[prefix+"name"] = d.name
	}
	if d.utilization != nil {
		figures[prefix+"utilization"] = *d.utilization
	}
	if d.memory != nil {
		figures[prefix+"memory_used_bytes"] = int64(min(d.memory.used, math.MaxInt64))
		figures[prefix+"memory_total_bytes"] = int64(min(d.memory.total, math.MaxInt64))
		if d.memory.total > 0 {
			figures[prefix+"memory_usage"] = rounded(float64(d.memory.used) / float64(d.memory.total))
		}
	}
	if d.celsius != nil {
		figures[prefix+"temperature_celsius"] = *d.celsius
	}
}

// totals adds up devices.
type totals struct {
	all         device
	busy        float64
	tellingBusy int
}

func (t *totals) add(d device) {
	if t.all.name == "" {
		t.all.name = d.name
	}
	if d.utilization != nil {
		t.busy += *d.utilization
		t.tellingBusy++
	}
	if d.memory != nil {
		if t.all.memory == nil {
			t.all.memory = &memory{}
		}
		t.all.memory.total += d.memory.total
		t.all.memory.used += d.memory.used
	}
	if d.celsius != nil && (t.all.celsius == nil || *d.celsius > *t.all.celsius) {
		t.all.celsius = d.celsius
	}
}

func (t *totals) device() device {
	if t.tellingBusy > 0 {
		mean := rounded(t.busy / float64(t.tellingBusy))
		t.all.utilization = &mean
	}
	return t.all
}

func rounded(v float64) float64 { return math.Round(v*1000) / 1000 }
