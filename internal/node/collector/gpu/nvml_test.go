//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/node/collector"
)

// fake compiles the stand-in for the driver's library.
func fake(t testing.TB, defines ...string) *Collector {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler (scripts/deps.sh cc)")
	}
	path := filepath.Join(t.TempDir(), DefaultLibrary)
	args := append(defines, "-shared", "-fPIC", "-w", "-o", path, "testdata/nvml.c")
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return New(path)
}

func TestFiguresOfAllDevicesAndOfEach(t *testing.T) {
	t.Parallel()
	c := fake(t)
	if !c.Available(t.Context()) {
		t.Fatal("expected the library to be found")
	}
	want := collector.Metrics{
		"count": 2, "utilization": 0.5, "memory_usage": 0.375,
		"memory_used_bytes": int64(18 << 30), "memory_total_bytes": int64(48 << 30),
		"temperature_celsius": int64(61), "name": "Fake GPU 0",
		"gpu0_name": "Fake GPU 0", "gpu0_utilization": 0.25, "gpu0_memory_usage": 0.25,
		"gpu0_memory_used_bytes": int64(6 << 30), "gpu0_memory_total_bytes": int64(24 << 30), "gpu0_temperature_celsius": int64(61),
		"gpu1_name": "Fake GPU 1", "gpu1_utilization": 0.75, "gpu1_memory_usage": 0.5,
		"gpu1_memory_used_bytes": int64(12 << 30), "gpu1_memory_total_bytes": int64(24 << 30),
	}
	for range 3 { // the library fails when it is not initialized exactly once
		got, err := c.Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(- expected, + got):\n%s", diff)
		}
		for field := range got {
			if err := collector.CheckFigure("gpu."+field, []collector.Collector{c}); err != nil {
				t.Error(field, err)
			}
		}
	}
}

func TestDriverThatIsNotThereIsNotAvailable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*Collector{
		"no library":        New(filepath.Join(t.TempDir(), DefaultLibrary)),
		"driver not loaded": fake(t, "-DINIT=9"),
		"no device":         fake(t, "-DGPUS=0"),
	} {
		for range 2 { // asked again, it is still not
			if c.Available(t.Context()) {
				t.Errorf("%s: expected it not to be available", name)
			}
		}
	}
	if _, err := New(filepath.Join(t.TempDir(), DefaultLibrary)).Collect(t.Context()); err == nil {
		t.Error("expected a collection without a library to fail")
	}
}

func TestDriverThatDoesNotWorkSaysWhy(t *testing.T) {
	t.Parallel()
	for define, want := range map[string]string{
		"-DINIT=18":      "nvmlInit_v2: Driver/library version mismatch (18)",
		"-DLACKS_COUNT":  "the library lacks the function nvmlDeviceGetCount_v2",
		"-DGPUS=1|LOST0": "device 0: nvmlDeviceGetHandleByIndex_v2: GPU is lost (15)",
	} {
		c := fake(t, strings.Split(strings.Replace(define, "LOST0", "-DLOST=0", 1), "|")...)
		if !c.Available(t.Context()) {
			t.Errorf("%s: expected it to be available", define)
		}
		for range 2 {
			figures, err := c.Collect(t.Context())
			if err == nil || err.Error() != want || figures != nil {
				t.Errorf("%s: got %v and %v, expected %q", define, figures, err, want)
			}
		}
	}
}

func TestFunctionThatIsNotNeededMayBeMissing(t *testing.T) {
	t.Parallel()
	c := fake(t, "-DLACKS_UTILIZATION")
	got, err := c.Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := got["utilization"]; ok || got["memory_usage"] != 0.375 {
		t.Fatalf("got %v", got)
	}
}

func TestLostDeviceIsAnErrorBesideTheOthersFigures(t *testing.T) {
	t.Parallel()
	c := fake(t, "-DLOST=1")
	got, err := c.Collect(t.Context())
	if err == nil || !strings.Contains(err.Error(), "device 1: ") {
		t.Fatalf("error %v", err)
	}
	if got["count"] != 2 || got["utilization"] != 0.25 || got["gpu1_name"] != nil {
		t.Fatalf("got %v", got)
	}
}

func BenchmarkCollect(b *testing.B) {
	c := fake(b)
	for b.Loop() {
		if _, err := c.Collect(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
