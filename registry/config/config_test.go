package config_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/registry"
	"github.com/freeslot/freeslot/registry/config"
)

// seen is what the tests compare of options: collectors by their types.
func seen(opts registry.NamingOptions) (registry.NamingOptions, map[string][2]time.Duration) {
	collections := map[string][2]time.Duration{}
	for _, c := range opts.Collectors {
		collections[c.Collector.Type()] = [2]time.Duration{c.Interval, c.Timeout}
	}
	opts.Collectors = nil
	return opts, collections
}

// TestSeed: the complete example of the earlier design is read, in its spelling and in ours, but for the keys that have
// no effect: each is refused with what has.
func TestSeed(t *testing.T) {
	t.Parallel()
	yaml, err := os.ReadFile("testdata/seed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, spelling := range []string{"-", "_"} {
		yaml := strings.ReplaceAll(string(yaml), "-", spelling)
		_, err := config.Read([]byte(yaml))
		e, ok := errors.AsType[*freeslot.Error](err)
		if !ok || len(e.Errors) != 3 {
			t.Fatalf("%v, expected three keys that have no effect", err)
		}
		for i, want := range []string{
			"registry.cleanup.interval has no effect here; an operator sets it for each service: schedctl registry set SERVICE --every 30s",
			"registry.cleanup.global" + spelling + "timeout has no effect here; an operator sets it for each service: schedctl registry set SERVICE --limit 2m",
			"registry.redis.connection" + spelling + "timeout has no effect here; leave it out: each call to Redis has 2s",
		} {
			if got := e.Errors[i].Message; got != want {
				t.Errorf("%q, expected %q", got, want)
			}
		}
		for _, line := range []string{"  cleanup:\n", "    interval: 30s\n", "    global" + spelling + "timeout: 2m\n", "    connection" + spelling + "timeout: 3s\n"} {
			yaml = strings.Replace(yaml, line, "", 1)
		}
		opts, err := config.Read([]byte(yaml))
		if err != nil {
			t.Fatal(err)
		}
		got, collections := seen(opts)
		want := registry.NamingOptions{Options: registry.Options{
			KeyPrefix: "registry",
			Heartbeat: registry.HeartbeatPolicy{
				HeartbeatInterval: 10 * time.Second, MetadataInterval: time.Minute,
				Thresholds: map[string]registry.Threshold{
					"memory.usage": {Kind: registry.Absolute, Value: 0.1}, "process.cpu_usage": {Kind: registry.Absolute, Value: 0.2},
				},
			},
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string][2]time.Duration{
			"memory": {30 * time.Second, 5 * time.Second}, "cpu": {time.Minute, 5 * time.Second},
			"process": {2 * time.Minute, 5 * time.Second}, "disk": {5 * time.Minute, 5 * time.Second},
		}, collections); diff != "" {
			t.Error(diff)
		}
		opts.RedisURL = "redis://127.0.0.1"
		if _, err := registry.NewNaming(opts); err != nil {
			t.Error(err)
		}
	}
}

// TestOwn: what only our design has.
func TestOwn(t *testing.T) {
	t.Parallel()
	opts, err := config.Read([]byte(`
registry:
  redis: {url: "rediss://a:1", username: u, password_file: /p, tls: {ca_file: /ca}}
  namespace: eu
  heartbeat: {change-thresholds: {db.lag: {threshold: 5, type: percent}}}
  metrics: {immediate_update_on_significant_change: false, flat_metrics: true, enabled_metrics: [network], collection_intervals: {network: 1s}, collection_timeout: 2s}
  stop_pause: 1s
  timeout: 1m
  snapshot_dir: /var/lib/x`))
	if err != nil {
		t.Fatal(err)
	}
	got, collections := seen(opts)
	want := registry.NamingOptions{Options: registry.Options{
		RedisURL: "rediss://a:1", Namespace: "eu", FlatMetrics: true, StopPause: time.Second,
		Access:    registry.Access{Username: "u", PasswordFile: "/p", TLS: registry.TLS{CAFile: "/ca"}},
		Heartbeat: registry.HeartbeatPolicy{DisableImmediate: true, Thresholds: map[string]registry.Threshold{"db.lag": {Kind: registry.Percent, Value: 5}}},
	}, Timeout: time.Minute, SnapshotDir: "/var/lib/x"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string][2]time.Duration{"network": {time.Second, time.Second}}, collections); diff != "" {
		t.Error(diff)
	}
	if opts, err := config.Read(nil); err != nil || opts.RedisURL != "" {
		t.Errorf("nothing: %+v, %v", opts, err)
	}
}

// TestRefuses: all mistakes at once, each by its key as it was written.
func TestRefuses(t *testing.T) {
	t.Parallel()
	_, err := config.Read([]byte(`
server: {port: 1}
registry:
  namespace: a b
  timeout: 1ms
  redis: {key-prefix: "{x}", url: "http://user:hidden@a"}
  heartbeat:
    heart-beat: 1s
    heartbeat-interval: 1ms
    metadata-interval: soon
    change-thresholds:
      memory.usagePercent: {threshold: -1, type: "relative"}
      health: {threshold: 0, type: absolute}
      process.cpu_usage: {threshold: 0.1, type: absolute}
  metrics:
    enabled-metrics: [memory, database, process, application]
    collection-intervals: {memory: 0s, cpu: 1s}
    collection-timeout: -1s
    collection_timeout: 1s
    change-thresholds: {cpu.processCpuLoad: {threshold: 20.0, type: absolute}}`))
	e, ok := errors.AsType[*freeslot.Error](err)
	if !ok || e.Code != freeslot.CodeInvalidArgument || strings.Contains(err.Error(), "hidden") {
		t.Fatal(err)
	}
	var got []string
	for _, bad := range e.Errors {
		got = append(got, bad.Message)
	}
	slices.Sort(got)
	want := []string{
		`registry.heartbeat.change-thresholds.health.type is "absolute", expected any: each change of health is sent at once`,
		"registry.heartbeat.change-thresholds.memory.usagePercent.threshold is -1, expected 0 or more",
		`registry.heartbeat.change-thresholds.memory.usagePercent.type is "relative", expected absolute, percent or any`,
		"registry.heartbeat.heart-beat is not a key of the configuration, expected heartbeat_interval, metadata_interval or change_thresholds",
		"registry.heartbeat.heartbeat-interval is 1ms, expected 100ms to 5m",
		`registry.heartbeat.metadata-interval is "soon", expected a duration such as 500ms, 8s or 1h30m`,
		"registry.metrics.change-thresholds.cpu.processCpuLoad differs from another threshold of process.cpu_usage, expected one",
		"registry.metrics.collection-intervals.cpu is of a collector that enabled_metrics does not have",
		"registry.metrics.collection-intervals.memory is 0s, expected 100ms to 24h",
		"registry.metrics.collection_timeout is there with dashes, too, expected one of them",
		`registry.metrics.enabled-metrics[1] is "database", expected memory, cpu, disk, network, process or application; a program adds others to Options.Collectors`,
		`registry.metrics.enabled-metrics[3] is "application" once more`,
		"registry.namespace has ' ' at position 1, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit",
		`registry.redis.key-prefix is "{x}", expected no braces and no control characters`,
		"registry.redis.url is not a Redis URL: invalid URL scheme: http",
		"registry.timeout is 1ms, expected 200ms to 1h",
		"server is not a key of the configuration, expected registry",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRefusesZero: a time of 0 is not the default, and a threshold that nothing can cross is none.
func TestRefusesZero(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]string{
		"{heartbeat: {heartbeat-interval: 0s}}":                       "registry.heartbeat.heartbeat-interval is 0s, expected 100ms to 5m",
		"{heartbeat: {metadata-interval: -1s}}":                       "registry.heartbeat.metadata-interval is -1s, expected 100ms to 24h",
		"{metrics: {enabled-metrics: [cpu], collection-timeout: 0s}}": "registry.metrics.collection-timeout is 0s, expected 1ms to 1h",
		"{metrics: {collection-timeout: 1s}}":                         "registry.metrics.collection-timeout has no effect without collectors, expected enabled_metrics beside it",
		"{timeout: 0s}":                                               "registry.timeout is 0s, expected 200ms to 1h",
		"{stop-pause: -1s}":                                           "registry.stop-pause is -1s, expected 0s or more",
		"{heartbeat: {change-thresholds: {application.threadCount: {threshold: 1, type: any}}}}":          "registry.heartbeat.change-thresholds.application.threadCount is not a figure of a collector that runs here, expected one of process.cpu_usage, process.goroutines, process.heap_bytes, process.open_fds, process.rss_bytes, process.uptime_seconds",
		"{metrics: {enabled-metrics: [disk], change-thresholds: {cpu.usage: {threshold: 1, type: any}}}}": "registry.metrics.change-thresholds.cpu.usage is not a figure of a collector that runs here, expected one of disk.free_bytes, disk.path, disk.pathN_free_bytes, disk.pathN_name, disk.pathN_usage, disk.usage",
	} {
		if _, err := config.Read([]byte("registry: " + yaml)); err == nil || err.Error() != "invalid_argument: "+want {
			t.Errorf("%s: %v, expected %s", yaml, err, want)
		}
	}
	if opts, err := config.Read([]byte("registry: {stop-pause: 0s}")); err != nil || opts.StopPause >= 0 {
		t.Errorf("stop-pause of %s, %v; expected none", opts.StopPause, err)
	}
}
