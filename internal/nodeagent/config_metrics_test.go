package nodeagent

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/node/collector"
)

const someService = "services: [{name: a, command: {argv: [cat]}}]\n"

func TestMetricsDefaults(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, someService+"metrics: {commands: [{name: a, argv: [cat]}, {name: b, argv: [cat], cost: low, interval: 1s, pass_env: []}]}", "FREESLOT_NODE__ID=n1")
	if err != nil {
		t.Fatal(err)
	}
	want := Metrics{
		Enabled: []string{"memory", "cpu", "process", "disk", "gpu", "redis"},
		Disk:    MetricsDisk{Paths: []string{"/"}},
		Commands: []MetricsCommand{
			{Name: "a", Argv: []string{"cat"}, Interval: 5 * time.Minute, Timeout: 30 * time.Second, PassEnv: defaultPassEnv, Cost: "high"},
			{Name: "b", Argv: []string{"cat"}, Interval: time.Second, Timeout: time.Second, PassEnv: []string{}, Cost: "low"},
		},
	}
	if diff := cmp.Diff(want, cfg.Metrics); diff != "" {
		t.Error(diff)
	}
	if cfg, err := load(t, someService+"metrics: {enabled: []}", "FREESLOT_NODE__ID=n1"); err != nil || len(cfg.Metrics.Enabled) != 0 {
		t.Errorf("%v, %v; want no error, len(cfg.Metrics.Enabled) == 0", cfg.Metrics.Enabled, err)
	}
}

// TestMetricsCollectors: every configured value reaches the collectors.
func TestMetricsCollectors(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, someService+`metrics:
  enabled: [network, disk, redis, memory, cpu, process, gpu]
  intervals: {disk: 5m, redis: 1s}
  timeouts: {disk: 1m, cpu: 100ms}
  disk: {paths: [/tmp, /]}
  network: {interfaces: [lo]}
  commands: [{name: own, argv: [sh, -c, "echo '{\"a\":1}'"], cost: medium, timeout: 3s}]
`, "FREESLOT_NODE__ID=n1")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := cfg.Metrics.Collectors(func() (time.Duration, bool) { return 2 * time.Millisecond, true })
	if err != nil {
		t.Fatal(err)
	}
	type times struct {
		Type              string
		Interval, Timeout time.Duration
	}
	var got []times
	byType := map[string]collector.Collector{}
	for _, e := range entries {
		got = append(got, times{e.Collector.Type(), e.Interval, e.Timeout})
		byType[e.Collector.Type()] = e.Collector
	}
	if diff := cmp.Diff([]times{
		{"network", 0, 0},
		{"disk", 5 * time.Minute, time.Minute},
		{"redis", time.Second, 0},
		{"memory", 0, 0},
		{"cpu", 0, 100 * time.Millisecond},
		{"process", 0, 0},
		{"gpu", 0, 0},
		{"own", time.Minute, 3 * time.Second},
	}, got); diff != "" {
		t.Error(diff)
	}
	collect := func(name string) collector.Metrics {
		m, err := byType[name].Collect(t.Context())
		if err != nil {
			t.Error(err)
		}
		return m
	}
	if m := collect("disk"); m["path0_name"] != "/tmp" || m["path1_name"] != "/" {
		t.Errorf("disk %v", m)
	}
	if m := collect("redis"); m["latency_ms"] != 2.0 {
		t.Errorf("redis %v", m)
	}
	if m := collect("own"); m["a"] != int64(1) {
		t.Errorf("own %v", m)
	}
	collect("network")
	if m := collect("network"); m["rx_bytes_per_second"] == nil {
		t.Errorf("network %v", m)
	}
	if _, err := collector.New(entries, nil, nil); err != nil {
		t.Errorf("a valid configuration is refused: %v", err)
	}
	cfg.Metrics.Commands[0].Argv = []string{"no-such-program"}
	if _, err := cfg.Metrics.Collectors(nil); err == nil || !strings.HasPrefix(err.Error(), `metrics.commands[0].argv begins with "no-such-program"`) {
		t.Errorf("error %v", err)
	}
}

func TestMetricsRefuses(t *testing.T) {
	t.Parallel()
	command := func(s string) string { return "commands: [{name: own, argv: [cat], " + s + "}]" }
	for yaml, want := range map[string]string{
		"enabled: [memory, swap]":                                    `metrics.enabled[1] is "swap", expected cpu, disk, gpu, memory, network, process or redis`,
		"enabled: [cpu, memory, cpu]":                                `metrics.enabled[2] is "cpu" like metrics.enabled[0], expected each once`,
		"intervals: {swap: 1m}":                                      `metrics.intervals has "swap", expected names of cpu, disk, gpu, memory, network, process, redis`,
		"intervals: {cpu: 1ms}":                                      "metrics.intervals.cpu is 1ms, expected 1s to 24h",
		"intervals: {cpu: often}":                                    `metrics.intervals.cpu is "often", expected a duration such as 500ms, 8s or 1h30m`,
		"timeouts: {swap: 1m}":                                       `metrics.timeouts has "swap", expected names of cpu, disk, gpu, memory, network, process, redis`,
		"timeouts: {cpu: 1m}":                                        "metrics.timeouts.cpu is 1m, expected 10ms to 15s",
		"{intervals: {cpu: 2s}, timeouts: {cpu: 3s}}":                "metrics.timeouts.cpu is 3s, expected 10ms to 2s",
		"disk: {paths: [data]}":                                      `metrics.disk.paths[0] is "data", expected an absolute path`,
		"disk: {paths: [/, /]}":                                      `metrics.disk.paths[1] is "/" like metrics.disk.paths[0], expected each once`,
		"disk: {paths: [" + letters(17, "/") + "]}":                  "metrics.disk.paths has 17 entries, expected at most 16",
		"network: {interfaces: ['']}":                                `metrics.network.interfaces[0] is "", expected the name of an interface such as eth0`,
		"network: {interfaces: [" + letters(17, "") + "]}":           "metrics.network.interfaces has 17 entries, expected at most 16",
		"commands: [{name: 'a b', argv: [cat]}]":                     "metrics.commands[0].name has ' ' at position 1, expected 1 to 64 characters of A-Z a-z 0-9 . _ -, beginning with a letter or digit",
		"commands: [{name: cpu, argv: [cat]}]":                       `metrics.commands[0].name is "cpu", which is a built-in collector`,
		"commands: [{name: a, argv: [cat]}, {name: a, argv: [cat]}]": `metrics.commands[1].name is "a" like that of metrics.commands[0], expected each name once`,
		"commands: [{name: a, argv: []}]":                            "metrics.commands[0].argv is empty, expected a program and its arguments",
		"commands: [{name: a, argv: [no-such-program]}]":             `metrics.commands[0].argv begins with "no-such-program", which cannot be run: executable file not found in $PATH`,
		command("cost: huge"):                                        `metrics.commands[0].cost is "huge", expected low, medium or high`,
		command("interval: 1ms"):                                     "metrics.commands[0].interval is 1ms, expected 1s to 24h",
		command("timeout: 10m"):                                      "metrics.commands[0].timeout is 10m, expected 10ms to 5m",
		command("pass_env: ['A=B']"):                                 `metrics.commands[0].pass_env[0] is "A=B", expected the name of a variable`,
		command("env: {'A=B': hidden}"):                              `metrics.commands[0].env has "A=B", which cannot be a variable`,
		command("shell: true"):                                       "metrics.commands[0].shell is not a key of the configuration, expected name, argv, interval, timeout, pass_env, env or cost",
	} {
		section := "metrics: {" + yaml + "}"
		if strings.HasPrefix(yaml, "{") {
			section = "metrics: " + yaml
		}
		_, err := load(t, someService+section, "FREESLOT_NODE__ID=n1")
		if err == nil {
			t.Errorf("%s: accepted", yaml)
			continue
		}
		got, _, _ := strings.Cut(err.Error(), " (from ")
		if got != want || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hidden") {
			t.Errorf("\n got %s\nwant %s", err, want)
		}
	}
}

// letters is a list of n names.
func letters(n int, prefix string) string {
	var names []string
	for i := range n {
		names = append(names, prefix+string(rune('a'+i)))
	}
	return strings.Join(names, ", ")
}

// TestMetricsInTheManual compares the table of figures with the collectors that work here.
func TestMetricsInTheManual(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/nodeagent.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "\n## Metrics\n")
	section, _, _ = strings.Cut(section, "\n## ")
	told := map[string]map[string]bool{}
	name := ""
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue
		}
		if in := strings.Trim(cells[1], " `"); in != "" {
			name = in
			told[name] = map[string]bool{}
			if newCollector, ok := builtIn[name]; ok && !strings.EqualFold(strings.TrimSpace(cells[2]), newCollector(&Metrics{}, nil).Cost().String()) {
				t.Errorf("%s has the cost %s", name, newCollector(&Metrics{}, nil).Cost())
			}
		}
		for field := range strings.SplitSeq(cells[3], ",") {
			told[name][strings.Trim(field, " `")] = true
		}
	}
	m := defaultMetricsConfig()
	m.Enabled, m.Disk.Paths = typeNames(), []string{"/", "/tmp"}
	entries, err := m.Collectors(func() (time.Duration, bool) { return time.Millisecond, true })
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Collector.Type()
		if told[name] == nil {
			t.Errorf("the manual lacks %s", name)
		}
		if !e.Collector.Available(t.Context()) {
			continue
		}
		for range 2 {
			figures, err := e.Collector.Collect(t.Context())
			if err != nil {
				t.Error(err)
			}
			for field := range figures {
				if !told[name][field] && !strings.HasPrefix(field, "path1_") {
					t.Errorf("the manual lacks %s.%s", name, field)
				}
			}
		}
	}
}
