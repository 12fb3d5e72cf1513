//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"bytes"
	"fmt"

	"github.com/ebitengine/purego"
)

const (
	nameBytes         = 96 // NVML_DEVICE_NAME_V2_BUFFER_SIZE
	temperatureSensor = 0  // NVML_TEMPERATURE_GPU
)

// nvml is a loaded library. Handles are pointers into it.
type nvml struct {
	// missing names a required function that the library lacks.
	missing string

	initialize  func() int32
	shutdown    func() int32
	deviceCount func(count *uint32) int32
	handle      func(index uint32, device *uintptr) int32
	// The fields below are nil if the library lacks the functions.
	errorString func(code int32) string
	name        func(device uintptr, name *byte, length uint32) int32
	utilization func(device uintptr, rates *utilizationRates) int32
	memory      func(device uintptr, memory *memoryInfo) int32
	temperature func(device uintptr, sensor uint32, celsius *uint32) int32
}

// utilizationRates is nvmlUtilization_t, in percent.
type utilizationRates struct{ gpu, _ uint32 }

// memoryInfo is nvmlMemory_t, in bytes.
type memoryInfo struct{ total, _, used uint64 }

// open loads the library, and returns false if there is none.
func open(path string) (library, bool) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, false
	}
	n := &nvml{}
	for _, f := range []struct {
		target   any
		symbol   string
		required bool
	}{
		{&n.initialize, "nvmlInit_v2", true},
		{&n.shutdown, "nvmlShutdown", true},
		{&n.deviceCount, "nvmlDeviceGetCount_v2", true},
		{&n.handle, "nvmlDeviceGetHandleByIndex_v2", true},
		{&n.errorString, "nvmlErrorString", false},
		{&n.name, "nvmlDeviceGetName", false},
		{&n.utilization, "nvmlDeviceGetUtilizationRates", false},
		{&n.memory, "nvmlDeviceGetMemoryInfo", false},
		{&n.temperature, "nvmlDeviceGetTemperature", false},
	} {
		address, err := purego.Dlsym(handle, f.symbol)
		switch {
		case err == nil:
			purego.RegisterFunc(f.target, address)
		case f.required && n.missing == "":
			n.missing = f.symbol
		}
	}
	return n, true
}

func (n *nvml) check(call string, code int32) error {
	if code == 0 {
		return nil
	}
	s := &status{call: call, code: code}
	if n.errorString != nil {
		s.text = n.errorString(code)
	}
	return s
}

func (n *nvml) start() error {
	if n.missing != "" {
		return fmt.Errorf("the library lacks the function %s", n.missing)
	}
	return n.check("nvmlInit_v2", n.initialize())
}

func (n *nvml) stop() { n.shutdown() }

func (n *nvml) count() (int, error) {
	var count uint32
	err := n.check("nvmlDeviceGetCount_v2", n.deviceCount(&count))
	return int(count), err
}

// device leaves out figures that the device does not support; virtual and older devices lack some.
func (n *nvml) device(i int) (device, error) {
	var handle uintptr
	if err := n.check("nvmlDeviceGetHandleByIndex_v2", n.handle(uint32(i), &handle)); err != nil {
		return device{}, err
	}
	var d device
	if n.name != nil {
		name := make([]byte, nameBytes)
		if n.name(handle, &name[0], nameBytes) == 0 {
			text, _, _ := bytes.Cut(name, []byte{0})
			d.name = string(text)
		}
	}
	if rates := (utilizationRates{}); n.utilization != nil && n.utilization(handle, &rates) == 0 {
		share := float64(min(rates.gpu, 100)) / 100
		d.utilization = &share
	}
	if info := (memoryInfo{}); n.memory != nil && n.memory(handle, &info) == 0 {
		d.memory = &memory{total: info.total, used: info.used}
	}
	if degrees := uint32(0); n.temperature != nil && n.temperature(handle, temperatureSensor, &degrees) == 0 {
		celsius := int64(degrees)
		d.celsius = &celsius
	}
	return d, nil
}
