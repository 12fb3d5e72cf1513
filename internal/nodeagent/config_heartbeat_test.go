package nodeagent

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/worker"
)

func loadHeartbeats(t *testing.T, keys ...string) (Config, error) {
	t.Helper()
	opts := config.Options{Environ: []string{}}
	for _, k := range append([]string{"node.id=n1", "services=[{name: a, http: {url: 'http://127.0.0.1:1/'}}]"}, keys...) {
		path, value, _ := strings.Cut(k, "=")
		opts.Flags = append(opts.Flags, config.Flag{Name: "--set " + path, Path: path, Value: value})
	}
	return Load(opts)
}

func TestHeartbeatKeys(t *testing.T) {
	t.Parallel()
	cfg, err := loadHeartbeats(t, "metadata_interval=2m", "immediate_update=false",
		"change_thresholds={cpu.usage: {threshold: 50, type: percent}, license.state: {type: any}}",
		"metrics.commands=[{name: license, argv: [/bin/true]}]")
	if err != nil {
		t.Fatal(err)
	}
	// Keys that are not named keep their defaults.
	if got := slices.Sorted(maps.Keys(cfg.ChangeThresholds)); !slices.Equal(got, []string{"cpu.usage", "license.state", "memory.usage"}) {
		t.Errorf("thresholds of %v", got)
	}
	if cfg.MetadataInterval != 2*time.Minute || cfg.ImmediateUpdate || cfg.ChangeThresholds["cpu.usage"].worker() != (worker.Threshold{Kind: worker.Percent, Value: 50}) {
		t.Errorf("%+v", cfg)
	}
	// No collectors is not the default.
	cfg.Metrics = Metrics{}
	if _, err := cfg.newWorker(worker.Config{RedisURL: "redis://127.0.0.1:1", Node: cfg.profile()}); err != nil {
		t.Error(err)
	}
}

// TestUnknownThresholds: a threshold of a figure that no configured collector has is refused, with
// the figures that they have. The default thresholds stay where their collectors are left out.
func TestUnknownThresholds(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		"cpu.usge":                    "change_thresholds.cpu.usge is not a figure of a collector that runs here, expected one of cpu.cores, cpu.host_usage, cpu.load1, cpu.usage, disk.free_bytes,",
		"network.rx_bytes_per_second": "change_thresholds.network.rx_bytes_per_second is not a figure of a collector that runs here, expected one of cpu.cores,",
		"license":                     "change_thresholds.license is not a figure of a collector that runs here, expected one of",
		"mine.State":                  "mine.*",
		"gpu.gpu0_memory_usage":       "",
		"disk.path12_usage":           "",
		"cpu.load1":                   "",
		"mine.state":                  "",
	} {
		_, err := loadHeartbeats(t, "metrics.commands=[{name: mine, argv: [/bin/true]}]", "change_thresholds={"+keys+": {type: any}}")
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", keys, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, expected %s", keys, err, want)
		}
	}
	if _, err := loadHeartbeats(t, "metrics.enabled=[]"); err != nil {
		t.Error(err)
	}
}

func TestBadHeartbeatKeys(t *testing.T) {
	t.Parallel()
	_, err := loadHeartbeats(t, "metadata_interval=1s", "change_thresholds={a.b: {threshold: -1, type: relative}}")
	for _, want := range []string{
		"metadata_interval is 1s, expected 3s to 1h",
		`change_thresholds.a.b.type is "relative", expected absolute, percent or any`,
		"change_thresholds.a.b.threshold is -1, expected 0 or more",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}
