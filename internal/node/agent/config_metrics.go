package agent

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/node/collector/gpu"
	"github.com/freeslot/freeslot/internal/process/config"
)

const (
	minMetricsInterval = time.Second
	minMetricsTimeout  = 10 * time.Millisecond
	maxMetricsCommands = 16
	maxInterfaces      = 16
)

// costHigh is the default of commands: to start a process is dear.
const costHigh = "high"

var costs = map[string]collector.Cost{"low": collector.CostLow, "medium": collector.CostMedium, costHigh: collector.CostHigh}

// metricTypes are those of the built-in collectors with their costs.
var metricTypes = map[string]collector.Cost{
	"memory":  (*collector.Memory)(nil).Cost(),
	"cpu":     (*collector.CPU)(nil).Cost(),
	"disk":    (*collector.Disk)(nil).Cost(),
	"network": (*collector.Network)(nil).Cost(),
	"process": (*collector.Process)(nil).Cost(),
	"gpu":     (*gpu.Collector)(nil).Cost(),
	"redis":   (*collector.RedisLatency)(nil).Cost(),
}

// defaultMetrics are collected unless configured, the most important ones first. One
// that the machine has not, such as gpu, is left out by itself.
var defaultMetrics = []string{"memory", "cpu", "process", "disk", "gpu", "redis"}

// Metrics says which figures of its machine the node tells.
type Metrics struct {
	// Built-in collectors: `memory`, `cpu`, `process`, `disk`, `network`, `gpu` and `redis`, the
	// most important ones first. When all figures together are too many, those of commands are
	// left out first, and then those of the last collectors. `[]` is none.
	Enabled []string `koanf:"enabled"`
	// `name: duration` from the end of a collection to the next, give or take a tenth, 1s to 24h.
	// Unset: by the collector's cost.
	Intervals map[string]time.Duration `koanf:"intervals"`
	// `name: duration` for one collection, at most its interval. Unset: by the collector's cost.
	Timeouts map[string]time.Duration `koanf:"timeouts"`
	// For the collector `disk`.
	Disk MetricsDisk `koanf:"disk"`
	// For the collector `network`.
	Network MetricsNetwork `koanf:"network"`
	// Up to 16 programs that write figures of your own.
	Commands []MetricsCommand `koanf:"commands"`
}

// MetricsDisk says which file systems are watched.
type MetricsDisk struct {
	// Up to 16 absolute paths. The file systems that hold them are watched.
	Paths []string `koanf:"paths"`
}

// MetricsNetwork says which interfaces are counted; none means all but the loopback.
type MetricsNetwork struct {
	// Up to 16 interfaces. Unset: all but the loopback.
	Interfaces []string `koanf:"interfaces"`
}

// MetricsCommand is a program that writes figures.
type MetricsCommand struct {
	// The name of the figures' collector, other than the built-in ones.
	Name string `koanf:"name"`
	// The program and its arguments. `--check` and the start look the program up in `PATH`.
	Argv []string `koanf:"argv"`
	// From the end of a run to the next, 1s to 24h. The default is by `cost`.
	Interval time.Duration `koanf:"interval"`
	// At most `interval`. The default is by `cost`, and `interval` where that is shorter.
	Timeout time.Duration `koanf:"timeout"`
	// Variables of the agent's environment that the program gets. `[]` passes none.
	PassEnv []string `koanf:"pass_env"`
	// Further variables.
	Env map[string]string `koanf:"env" secret:"true"`
	// `low`, `medium` or `high`. It decides about an unset interval and timeout.
	Cost string `koanf:"cost"`
}

// defaultMetricsConfig collects what every machine has.
func defaultMetricsConfig() Metrics {
	return Metrics{Enabled: slices.Clone(defaultMetrics), Disk: MetricsDisk{Paths: []string{"/"}}}
}

// resolve gives the commands their defaults.
func (m *Metrics) resolve() {
	for i := range m.Commands {
		c := &m.Commands[i]
		c.Cost = orDefault(c.Cost, costHigh)
		if c.PassEnv == nil {
			c.PassEnv = defaultPassEnv
		}
		cost := costs[c.Cost]
		c.Interval = orDefault(c.Interval, cost.DefaultInterval())
		c.Timeout = orDefault(c.Timeout, min(cost.DefaultTimeout(), c.Interval))
	}
}

// validate notes every value that cannot be used.
func (m *Metrics) validate(p *config.Problems) {
	validateOnce("metrics.enabled", m.Enabled, p, func(at, name string) {
		if _, ok := metricTypes[name]; !ok {
			p.OneOf(at, name, typeNames()...)
		}
	})
	m.validateTimes(p)
	if len(m.Disk.Paths) > collector.MaxDiskPaths {
		p.Addf("metrics.disk.paths", "has %d entries, expected at most %d", len(m.Disk.Paths), collector.MaxDiskPaths)
	}
	validateOnce("metrics.disk.paths", m.Disk.Paths, p, func(at, path string) {
		if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
			p.Addf(at, "is %q, expected an absolute path", path)
		}
	})
	if len(m.Network.Interfaces) > maxInterfaces {
		p.Addf("metrics.network.interfaces", "has %d entries, expected at most %d", len(m.Network.Interfaces), maxInterfaces)
	}
	validateOnce("metrics.network.interfaces", m.Network.Interfaces, p, func(at, name string) {
		if name == "" || len(name) > 64 || strings.ContainsAny(name, " \t\n/\x00") {
			p.Addf(at, "is %q, expected the name of an interface such as eth0", name)
		}
	})
	if len(m.Commands) > maxMetricsCommands {
		p.Addf("metrics.commands", "has %d entries, expected at most %d", len(m.Commands), maxMetricsCommands)
	}
	first := make(map[string]int, len(m.Commands))
	for i := range m.Commands {
		c, at := &m.Commands[i], "metrics.commands["+strconv.Itoa(i)+"]"
		c.validate(at, p)
		if j, ok := first[c.Name]; ok && c.Name != "" {
			p.Addf(at+".name", "is %q like that of metrics.commands[%d], expected each name once", c.Name, j)
		} else {
			first[c.Name] = i
		}
	}
}

func (m *Metrics) validateTimes(p *config.Problems) {
	known := func(at, name string) bool {
		_, ok := metricTypes[name]
		if !ok {
			p.Addf(at, "has %q, expected names of %s", name, strings.Join(typeNames(), ", "))
		}
		return ok
	}
	for _, name := range slices.Sorted(maps.Keys(m.Intervals)) {
		if at := "metrics.intervals." + name; !p.Has(at) && known("metrics.intervals", name) {
			p.DurationBetween(at, m.Intervals[name], minMetricsInterval, collector.MaxInterval)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Timeouts)) {
		if at := "metrics.timeouts." + name; !p.Has(at) && known("metrics.timeouts", name) && !p.Has("metrics.intervals."+name) {
			p.DurationBetween(at, m.Timeouts[name], minMetricsTimeout, m.interval(name))
		}
	}
}

func (m *Metrics) interval(name string) time.Duration {
	return orDefault(m.Intervals[name], metricTypes[name].DefaultInterval())
}

func (c *MetricsCommand) validate(at string, p *config.Problems) {
	p.Name(at+".name", c.Name)
	if _, ok := metricTypes[c.Name]; ok {
		p.Addf(at+".name", "is %q, which is a built-in collector", c.Name)
	}
	if _, ok := costs[c.Cost]; !ok {
		p.OneOf(at+".cost", c.Cost, "low", "medium", costHigh)
	}
	p.DurationBetween(at+".interval", c.Interval, minMetricsInterval, collector.MaxInterval)
	if !p.Has(at + ".interval") {
		p.DurationBetween(at+".timeout", c.Timeout, minMetricsTimeout, c.Interval)
	}
	command := c.command()
	command.validateProcess(at, p)
}

// command is how the program is run.
func (c *MetricsCommand) command() Command {
	return Command{Argv: c.Argv, PassEnv: c.PassEnv, Env: c.Env, Timeout: c.Timeout, KillGrace: metricsKillGrace}
}

// validateOnce notes entries that are there more than once, and has each checked.
func validateOnce(path string, items []string, p *config.Problems, check func(at, item string)) {
	for i, item := range items {
		at := path + "[" + strconv.Itoa(i) + "]"
		if j := slices.Index(items, item); j < i {
			p.Addf(at, "is %q like %s[%d], expected each once", item, path, j)
			continue
		}
		check(at, item)
	}
}

// typeNames are the names of the built-in collectors in order.
func typeNames() []string { return slices.Sorted(maps.Keys(metricTypes)) }

// Collectors builds the collectors of a valid configuration, the most important ones
// first. latency gives the round trip of the last answered heartbeat; see
// collector.NewRedisLatency.
func (m *Metrics) Collectors(latency func() (time.Duration, bool)) ([]collector.Entry, error) {
	var entries []collector.Entry
	for _, name := range m.Enabled {
		var c collector.Collector
		switch name {
		case "memory":
			c = collector.NewMemory()
		case "cpu":
			c = collector.NewCPU()
		case "disk":
			c = collector.NewDisk(m.Disk.Paths...)
		case "network":
			c = collector.NewNetwork(m.Network.Interfaces...)
		case "process":
			c = collector.NewProcess()
		case "gpu":
			c = gpu.New("")
		case "redis":
			c = collector.NewRedisLatency(latency)
		default:
			continue // not reached: validated
		}
		entries = append(entries, collector.Entry{Collector: c, Interval: m.Intervals[name], Timeout: m.Timeouts[name]})
	}
	for i := range m.Commands {
		cfg := &m.Commands[i]
		c, err := newCommandCollector(cfg)
		if err != nil {
			var p config.Problems
			p.Add("metrics.commands["+strconv.Itoa(i)+"].argv", err)
			return nil, p
		}
		entries = append(entries, collector.Entry{Collector: c, Interval: cfg.Interval, Timeout: cfg.Timeout})
	}
	return entries, nil
}
