package collector

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/shirou/gopsutil/v4/common"
	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/net"

	"github.com/freeslot/freeslot/internal/node/cgroup"
)

const gib = int64(1) << 30

// machine is a copy of a fixture, and a context with which gopsutil reads it.
func machine(t *testing.T, name string) (string, context.Context) {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS(filepath.Join("testdata", "cgroup", name))); err != nil {
		t.Fatal(err)
	}
	return root, context.WithValue(context.Background(), common.EnvKey, common.EnvMap{common.HostProcEnvKey: filepath.Join(root, "proc")})
}

func TestMemoryIsThatOfTheCgroupWhereItIsLimited(t *testing.T) {
	t.Parallel()
	host := Metrics{"usage": 0.5, "total_bytes": int64(16384000 << 10), "used_bytes": int64(8192000 << 10), "available_bytes": int64(8192000 << 10)}
	for name, want := range map[string]Metrics{
		"v2-systemd":       {"usage": 0.5, "total_bytes": 2 * gib, "used_bytes": gib, "available_bytes": gib, "host_usage": 0.5},
		"v2-container":     {"usage": 0.75, "total_bytes": 2 * gib, "used_bytes": 3 * gib / 2, "available_bytes": gib / 2, "host_usage": 0.5},
		"v2-unlimited":     host,
		"v1-container":     {"usage": 0.5, "total_bytes": gib, "used_bytes": gib / 2, "available_bytes": gib / 2, "host_usage": 0.5},
		"hybrid-unlimited": host,
		"none":             host,
	} {
		root, ctx := machine(t, name)
		m := NewMemory()
		m.machine = memoryBelow(root)
		got, err := m.Collect(ctx)
		if err != nil {
			t.Errorf("%s: %v; want no error", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (- expected, + got):\n%s", name, diff)
		}
	}
}

func TestMemoryThatTheHostLacksIsNotAvailableInACgroup(t *testing.T) {
	t.Parallel()
	root, ctx := machine(t, "v2-systemd")
	write(t, root, "proc/meminfo", "MemTotal: 16384000 kB\nMemFree: 1024 kB\nMemAvailable: 2048 kB\n")
	m := NewMemory()
	m.machine = memoryBelow(root)
	got, err := m.Collect(ctx)
	if err != nil || got["available_bytes"] != int64(2048<<10) || got["host_usage"] != 1.0 || got["usage"] != 0.5 {
		t.Fatalf("got %v, %v", got, err)
	}
}

func TestProcessThatWasMovedIsFollowed(t *testing.T) {
	t.Parallel()
	root, ctx := machine(t, "v2-systemd")
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		m.machine = memoryBelow(root)
		if got, err := m.Collect(ctx); err != nil || got["total_bytes"] != 2*gib {
			t.Fatalf("got %v, %v", got, err)
		}
		write(t, root, "proc/self/cgroup", "0::/other.slice\n")
		write(t, root, "sys/fs/cgroup/other.slice/memory.max", "1073741824\n")
		write(t, root, "sys/fs/cgroup/other.slice/memory.current", "0\n")
		if err := os.RemoveAll(filepath.Join(root, "sys/fs/cgroup/agents.slice")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(MinInterval)
		if got, err := m.Collect(ctx); err != nil || got["total_bytes"] != gib {
			t.Fatalf("got %v, %v", got, err)
		}
	})
}

func TestCPUIsTheShareOfTheQuotaWhereThereIsOne(t *testing.T) {
	t.Parallel()
	// A quarter of the host's time between the readings is idle.
	const later = "cpu  1600 0 650 8200 550 0 0 0 0 0\n"
	for name, c := range map[string]struct {
		change map[string]string
		want   Metrics
	}{
		"v2-systemd": { // 1.5 processors; 4.5 s used in 4 s
			map[string]string{"sys/fs/cgroup/agents.slice/nodeagent.service/cpu.stat": "usage_usec 7500000\n"},
			Metrics{"usage": 0.75, "host_usage": 0.75, "cores": 1.5, "load1": 1.25},
		},
		"v2-container": { // half a processor, all of it used
			map[string]string{"sys/fs/cgroup/cpu.stat": "usage_usec 3100000\n"},
			Metrics{"usage": 1.0, "host_usage": 0.75, "cores": 0.5, "load1": 1.25},
		},
		"v1-container": { // 2 processors; 2 s used in 4 s
			map[string]string{"sys/fs/cgroup/cpu,cpuacct/cpuacct.usage": "6000000000\n"},
			Metrics{"usage": 0.25, "host_usage": 0.75, "cores": 2.0, "load1": 1.25},
		},
		"v2-unlimited":     {nil, Metrics{"usage": 0.75, "cores": 8.0, "load1": 1.25}},
		"hybrid-unlimited": {nil, Metrics{"usage": 0.75, "cores": 8.0, "load1": 1.25}},
		"none":             {nil, Metrics{"usage": 0.75, "cores": 8.0, "load1": 1.25}},
	} {
		root, ctx := machine(t, name)
		synctest.Test(t, func(t *testing.T) {
			collect := cpuOf(root)
			first := collect(t, ctx)
			if _, ok := first["usage"]; ok || first["load1"] != 1.25 {
				t.Errorf("%s: the first time %v", name, first)
			}
			time.Sleep(4 * time.Second)
			write(t, root, "proc/stat", later)
			for path, text := range c.change {
				write(t, root, path, text)
			}
			if diff := cmp.Diff(c.want, collect(t, ctx)); diff != "" {
				t.Errorf("%s (- expected, + got):\n%s", name, diff)
			}
			time.Sleep(minSample / 2)
			write(t, root, "proc/stat", "cpu  1601 0 650 8200 550 0 0 0 0 0\n")
			if diff := cmp.Diff(c.want, collect(t, ctx)); diff != "" {
				t.Errorf("%s: a moment later (- expected, + got):\n%s", name, diff)
			}
		})
	}
}

// cpuOf collects from a machine with eight processors.
func cpuOf(root string) func(*testing.T, context.Context) Metrics {
	c := NewCPU()
	c.cores, c.machine = 8, cpuBelow(root)
	return func(t *testing.T, ctx context.Context) Metrics {
		t.Helper()
		m, err := c.Collect(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

func TestQuotaThatIsNoneOfThisMachine(t *testing.T) {
	t.Parallel()
	root, ctx := machine(t, "v2-systemd")
	c := NewCPU()
	c.cores, c.machine = 1, cpuBelow(root) // the quota is 1.5 processors
	m, err := c.Collect(ctx)
	if err != nil || m["cores"] != 1.0 {
		t.Fatalf("got %v, %v", m, err)
	}
}

func TestCountersThatGoBackTellNothing(t *testing.T) {
	t.Parallel()
	before := cpu.TimesStat{User: 10, System: 5, Idle: 100, Iowait: 5}
	after := cpu.TimesStat{User: 12, System: 6, Idle: 106, Iowait: 6}
	if got := busy(before, after); got != 0.3 {
		t.Errorf("busy %v, expected 0.3", got)
	}
	if busy(after, after) >= 0 || busy(after, before) >= 0 {
		t.Error("expected nothing to be known without time between the readings")
	}
	limit := cpuLimit{cores: 2, used: 10, folder: "a"}
	if got := limit.usage(cpuLimit{used: 9, folder: "a"}, time.Second); got != 0.5 {
		t.Errorf("usage %v, expected 0.5", got)
	}
	if limit.usage(cpuLimit{used: 11, folder: "a"}, time.Second) >= 0 || limit.usage(cpuLimit{used: 9, folder: "b"}, time.Second) >= 0 {
		t.Error("expected nothing to be known of another group's counters")
	}
}

func TestCgroupPathsWithOddCharacters(t *testing.T) {
	t.Parallel()
	mounts := cgroup.ParseMounts(`30 22 0:26 /a\040b /sys/fs/c\134group rw shared:4 master:1 - cgroup2 none rw` + "\nnonsense\n1 2 - \n")
	if len(mounts) != 1 || !mounts[0].Has("") || mounts[0].Root != "/a b" || mounts[0].Point != `/sys/fs/c\group` {
		t.Errorf("got %+v", mounts)
	}
	if got := cgroup.ParseOwn("0::/a:b c\nnonsense\n")[""]; got != "/a:b c" {
		t.Errorf("got %q", got)
	}
	for path, want := range map[string][]string{
		"/a/b/c": {"/r/m/b/c", "/r/m/b", "/r/m"}, "/a": {"/r/m"}, "/": {"/r/m"}, "/../x": {"/r/m"}, "/other": {"/r/m"},
	} {
		if diff := cmp.Diff(want, shown("/r", cgroup.Mount{Root: "/a", Point: "/m"}, path)); diff != "" {
			t.Errorf("%s (- expected, + got):\n%s", path, diff)
		}
	}
}

func TestNetworkRates(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	reading := func(rx, tx, errin uint64) map[string]net.IOCountersStat {
		return map[string]net.IOCountersStat{"a": {BytesRecv: rx, BytesSent: tx, Errin: errin}, "b": {BytesRecv: 2 * rx, Errout: errin}}
	}
	n := NewNetwork()
	if got := n.take(at(0), reading(100, 1000, 0)); len(got) != 0 {
		t.Fatalf("the first time %v", got)
	}
	want := Metrics{"rx_bytes_per_second": int64(30), "tx_bytes_per_second": int64(50), "errors_per_second": 0.4}
	if diff := cmp.Diff(want, n.take(at(10), reading(200, 1500, 2))); diff != "" {
		t.Fatalf("(- expected, + got):\n%s", diff)
	}
	// Interface a began again, and c is new.
	now := reading(300, 0, 2)
	now["c"] = net.IOCountersStat{BytesRecv: 1 << 40}
	want = Metrics{"rx_bytes_per_second": int64(20), "tx_bytes_per_second": int64(0), "errors_per_second": 0.0}
	if diff := cmp.Diff(want, n.take(at(20), now)); diff != "" {
		t.Fatalf("(- expected, + got):\n%s", diff)
	}
	if n.counts("lo") || n.counts("lo0") || !n.counts("eth0") || !n.counts("lolan") || NewNetwork("lo").counts("eth0") || !NewNetwork("lo").counts("lo") {
		t.Error("expected all but the loopback, or what was chosen")
	}
}

// TestThisMachine collects twice with each collector from the machine of the test.
func TestThisMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		collector Collector
		fields    []string
	}{
		{NewMemory(), []string{"usage", "total_bytes", "used_bytes", "available_bytes"}},
		{NewCPU(), []string{"cores", "load1"}},
		{NewDisk("/", dir), []string{"usage", "free_bytes", "path", "path0_usage", "path0_free_bytes", "path0_name", "path1_usage", "path1_free_bytes", "path1_name"}},
		{NewNetwork(), []string{"rx_bytes_per_second", "tx_bytes_per_second", "errors_per_second"}},
		{NewProcess(), []string{"goroutines", "heap_bytes", "rss_bytes", "open_fds", "uptime_seconds"}},
		{NewRedisLatency(func() (time.Duration, bool) { return 1500 * time.Microsecond, true }), []string{"latency_ms"}},
	} {
		name := c.collector.Type()
		if !c.collector.Available(t.Context()) {
			t.Errorf("%s is not available", name)
		}
		if _, err := c.collector.Collect(t.Context()); err != nil {
			t.Errorf("%s: %v; want no error", name, err)
		}
		got, err := c.collector.Collect(t.Context())
		if err != nil {
			t.Errorf("%s: %v; want no error", name, err)
		}
		for _, field := range c.fields {
			if _, ok := got[field]; !ok {
				t.Errorf("%s has no %s: %v", name, field, slices.Sorted(maps.Keys(got)))
			}
		}
		for field := range got {
			if err := CheckFigure(name+"."+field, []Collector{c.collector}); err != nil {
				t.Error(name+"."+field, err)
			}
		}
		if usage, ok := got["usage"].(float64); ok && (usage < 0 || usage > 1) {
			t.Errorf("%s has a usage of %v", name, usage)
		}
		if cleaned, dropped := clean(got); len(dropped) > 0 || len(cleaned) != len(got) {
			t.Errorf("%s has what cannot be published: %v", name, dropped)
		}
	}
}

func TestProcessFigures(t *testing.T) {
	t.Parallel()
	got, err := NewProcess().Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got["goroutines"].(int) < 2 || got["rss_bytes"].(int64) < 1<<20 || got["heap_bytes"].(int64) < 1<<16 || got["open_fds"].(int) < 3 || got["uptime_seconds"].(int64) > 3600 {
		t.Fatalf("got %v", got)
	}
}

// TestProcessLoad: the load of the process is its share of the processors that it may use, also where others use the rest.
func TestProcessLoad(t *testing.T) {
	t.Parallel()
	p, at := NewProcess(), time.Unix(1000, 0)
	for i, c := range []struct {
		after      time.Duration
		used, want float64
	}{
		{0, 100, -1},                               // nothing to compare with
		{minSample / 2, 100.1, -1},                 // too short
		{10*time.Second - minSample/2, 120, 0.5},   // 20 s of 10 s with 4 processors
		{minSample / 2, 121, 0.5},                  // too short: as before
		{10*time.Second - minSample/2, 121, 0.025}, // 1 s of 10 s since the reading before the last one
		{10 * time.Second, 121 + 100, 1},           // no more than all
	} {
		at = at.Add(c.after)
		p.take(processReading{at, c.used}, 4)
		if p.usage != c.want {
			t.Errorf("reading %d: usage %v, expected %v", i, p.usage, c.want)
		}
	}
	if _, err := p.Collect(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWhatIsMissingIsAnErrorBesideTheRest(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	got, err := NewDisk(missing, "/").Collect(t.Context())
	if err == nil || got["path"] != "/" || got["path1_name"] != "/" || got["path0_name"] != nil {
		t.Errorf("disk: %v, %v", got, err)
	}
	if got, err := NewDisk(missing).Collect(t.Context()); err == nil || got != nil {
		t.Errorf("disk: %v, %v", got, err)
	}
	n := NewNetwork("lo", "missing0")
	_, _ = n.Collect(t.Context())
	got, err = n.Collect(t.Context())
	if err == nil || err.Error() != "there is no interface missing0" || got["rx_bytes_per_second"] == nil {
		t.Errorf("network: %v, %v", got, err)
	}
	if got, err := NewRedisLatency(func() (time.Duration, bool) { return 0, false }).Collect(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("redis: %v, %v", got, err)
	}
}

func write(t *testing.T, root, path, text string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkCollect(b *testing.B) {
	for _, c := range []Collector{
		NewMemory(), NewCPU(), NewDisk(), NewNetwork(), NewProcess(),
		NewRedisLatency(func() (time.Duration, bool) { return time.Millisecond, true }),
	} {
		b.Run(c.Type(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Collect(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
