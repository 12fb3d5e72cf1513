package nodeagent

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/node/collector/gpu"
	"github.com/freeslot/freeslot/internal/replica/config"
)

const (
	minMetricsInterval = time.Second
	minMetricsTimeout  = 10 * time.Millisecond
	maxMetricsCommands = 16
	maxInterfaces      = 16
)

// costHigh is the default cost of commands, because each run starts a process.
const costHigh = "high"

var costs = map[string]collector.Cost{
	"low": collector.CostLow, "medium": collector.CostMedium, costHigh: collector.CostHigh,
}

// latency is the round trip of the last answered heartbeat; see collector.NewRedisLatency.
type latency = func() (time.Duration, bool)

// builtIn makes the built-in collectors.
var builtIn = map[string]func(m *Metrics, last latency) collector.Collector{
	"memory":  func(*Metrics, latency) collector.Collector { return collector.NewMemory() },
	"cpu":     func(*Metrics, latency) collector.Collector { return collector.NewCPU() },
	"disk":    func(m *Metrics, _ latency) collector.Collector { return collector.NewDisk(m.Disk.Paths...) },
	"network": func(m *Metrics, _ latency) collector.Collector { return collector.NewNetwork(m.Network.Interfaces...) },
	"process": func(*Metrics, latency) collector.Collector { return collector.NewProcess() },
	"gpu":     func(*Metrics, latency) collector.Collector { return gpu.New("") },
	"redis":   func(_ *Metrics, last latency) collector.Collector { return collector.NewRedisLatency(last) },
}

// defaultMetrics are collected unless configured otherwise, the most important ones first.
// Collectors without a device on the machine, such as gpu, are never available.
var defaultMetrics = []string{"memory", "cpu", "process", "disk", "gpu", "redis"}

// Metrics configures which figures of its machine the node reports.
type Metrics struct {
	// Built-in collectors: `memory`, `cpu`, `process`, `disk`, `network`, `gpu` and `redis`, the
	// most important ones first. If all figures together are too many, the commands' figures are
	// left out first, and then the figures of the last collectors. `[]` is none.
	Enabled []string `koanf:"enabled"`
	// `name: duration` from the end of a collection to the next, plus or minus a tenth, 1s to 24h.
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

// MetricsDisk lists the file systems that are watched.
type MetricsDisk struct {
	// Up to 16 absolute paths. The file systems that hold them are watched.
	Paths []string `koanf:"paths"`
}

// MetricsNetwork lists the interfaces that are counted; none means all except the loopback.
type MetricsNetwork struct {
	// Up to 16 interfaces. Unset: all except the loopback.
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
	// At most `interval`. The default is by `cost`, or `interval` if that is shorter.
	Timeout time.Duration `koanf:"timeout"`
	// Variables of the agent's environment that the program gets. `[]` passes none.
	PassEnv []string `koanf:"pass_env"`
	// Further variables.
	Env map[string]string `koanf:"env" secret:"true"`
	// `low`, `medium` or `high`. It decides an unset interval and timeout.
	Cost string `koanf:"cost"`
}

// defaultMetricsConfig collects the figures that every machine has.
func defaultMetricsConfig() Metrics {
	return Metrics{Enabled: slices.Clone(defaultMetrics), Disk: MetricsDisk{Paths: []string{"/"}}}
}

// resolve gives the commands their defaults.
func (m *Metrics) resolve() {
	for i := range m.Commands {
		c := &m.Commands[i]
		c.Cost = cmp.Or(c.Cost, costHigh)
		if c.PassEnv == nil {
			c.PassEnv = defaultPassEnv
		}
		cost := costs[c.Cost]
		c.Interval = cmp.Or(c.Interval, cost.DefaultInterval())
		c.Timeout = cmp.Or(c.Timeout, min(cost.DefaultTimeout(), c.Interval))
	}
}

// validate records every value that cannot be used.
func (m *Metrics) validate(p *config.Problems) {
	validateOnce("metrics.enabled", m.Enabled, p, func(at, name string) {
		p.OneOf(at, name, typeNames()...)
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
	for i := range m.Commands {
		m.Commands[i].validate("metrics.commands["+strconv.Itoa(i)+"]", p)
	}
	p.Once("metrics.commands", "name", len(m.Commands), func(i int) string { return m.Commands[i].Name })
}

func (m *Metrics) validateTimes(p *config.Problems) {
	known := func(at, name string) bool {
		_, ok := builtIn[name]
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
		if at := "metrics.timeouts." + name; !p.Has(at) && known("metrics.timeouts", name) &&
			!p.Has("metrics.intervals."+name) {
			p.DurationBetween(at, m.Timeouts[name], minMetricsTimeout, m.interval(name))
		}
	}
}

func (m *Metrics) interval(name string) time.Duration {
	return cmp.Or(m.Intervals[name], builtIn[name](m, nil).Cost().DefaultInterval())
}

func (c *MetricsCommand) validate(at string, p *config.Problems) {
	p.Name(at+".name", c.Name)
	if _, ok := builtIn[c.Name]; ok {
		p.Addf(at+".name", "is %q, which is a built-in collector", c.Name)
	}
	p.OneOf(at+".cost", c.Cost, "low", "medium", costHigh)
	p.DurationBetween(at+".interval", c.Interval, minMetricsInterval, collector.MaxInterval)
	if !p.Has(at + ".interval") {
		p.DurationBetween(at+".timeout", c.Timeout, minMetricsTimeout, c.Interval)
	}
	command := c.command()
	command.validateProcess(at, p)
}

// command returns how the program is run.
func (c *MetricsCommand) command() Command {
	return Command{Argv: c.Argv, PassEnv: c.PassEnv, Env: c.Env, Timeout: c.Timeout, KillGrace: metricsKillGrace}
}

// validateOnce records entries that come more than once, and calls check for the others.
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

// typeNames returns the names of the built-in collectors in order.
func typeNames() []string { return slices.Sorted(maps.Keys(builtIn)) }

// known returns the configured collectors, for CheckFigure; they do not collect.
func (m *Metrics) known() []collector.Collector {
	var all []collector.Collector
	for _, name := range m.Enabled {
		if build, ok := builtIn[name]; ok {
			all = append(all, build(m, nil))
		}
	}
	for i := range m.Commands {
		all = append(all, &commandCollector{name: m.Commands[i].Name})
	}
	return all
}

// Collectors builds the collectors of a valid configuration, the most important ones first.
func (m *Metrics) Collectors(last latency) ([]collector.Entry, error) {
	var entries []collector.Entry
	for _, name := range m.Enabled {
		entries = append(
			entries, collector.Entry{Collector: builtIn[name](m, last), Interval: m.Intervals[name], Timeout: m.Timeouts[name]},
		)
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
