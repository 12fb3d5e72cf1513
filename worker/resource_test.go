package worker

import (
	"encoding/json"
	"testing"

	"github.com/shirou/gopsutil/v4/cpu"
)

func TestBusy(t *testing.T) {
	before := cpu.TimesStat{User: 10, System: 5, Idle: 100, Iowait: 5}
	after := cpu.TimesStat{User: 12, System: 6, Idle: 106, Iowait: 6}
	if got := busy(before, after); got == nil || *got != 0.3 {
		t.Fatalf("busy %v, expected 0.3", got)
	}
	if busy(after, after) != nil || busy(after, before) != nil {
		t.Fatal("expected nothing to be known without time between the readings")
	}
	if share(-1) == nil || *share(-1) != 0 || *share(7) != 1 {
		t.Fatal("a share is between 0 and 1")
	}
}

func TestSamplerSaysWhatItKnows(t *testing.T) {
	s := newSampler(minSampleInterval)
	if got := string(s.resources(2, 8)); got != `{"current_jobs":2,"max_concurrency":8}` {
		t.Fatalf("before the first sample: %s", got)
	}
	s.sample(t.Context())
	var r resources
	if err := json.Unmarshal(s.resources(0, 1), &r); err != nil {
		t.Fatal(err)
	}
	if r.MemoryUsage == nil || *r.MemoryUsage <= 0 || *r.MemoryUsage > 1 || r.CPUUsage != nil {
		t.Fatalf("after the first sample: %+v", r)
	}
}
