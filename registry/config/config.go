// Package config reads the options of a provider and a consumer from YAML, with the keys of
// docs/registry.md. It also accepts the keys of the earlier designs of the registry.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	beat "github.com/freeslot/freeslot/internal/heartbeat"
	"github.com/freeslot/freeslot/internal/node/collector"
	redisregistry "github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/registry"
)

// document is the whole file. Keys of sections may have dashes instead of underscores.
type document struct {
	Registry section `koanf:"registry"`
}

type section struct {
	Redis       redis          `koanf:"redis"`
	Namespace   string         `koanf:"namespace"`
	Heartbeat   heartbeat      `koanf:"heartbeat"`
	Metrics     metrics        `koanf:"metrics"`
	StopPause   *time.Duration `koanf:"stop_pause"`
	Timeout     time.Duration  `koanf:"timeout"`
	SnapshotDir string         `koanf:"snapshot_dir"`
	Cleanup     struct {
		Interval      time.Duration `koanf:"interval"`
		GlobalTimeout time.Duration `koanf:"global_timeout"`
	} `koanf:"cleanup"`
}

type redis struct {
	URL                  string          `koanf:"url" secret:"true"`
	Username             string          `koanf:"username"`
	PasswordFile         string          `koanf:"password_file"`
	SentinelUsername     string          `koanf:"sentinel_username"`
	SentinelPasswordFile string          `koanf:"sentinel_password_file"`
	TLS                  config.RedisTLS `koanf:"tls"`
	KeyPrefix            string          `koanf:"key_prefix"`
	ConnectionTimeout    time.Duration   `koanf:"connection_timeout"`
}

type heartbeat struct {
	HeartbeatInterval time.Duration        `koanf:"heartbeat_interval"`
	MetadataInterval  time.Duration        `koanf:"metadata_interval"`
	ChangeThresholds  map[string]threshold `koanf:"change_thresholds"`
}

type metrics struct {
	EnabledMetrics      []string                 `koanf:"enabled_metrics"`
	CollectionIntervals map[string]time.Duration `koanf:"collection_intervals"`
	CollectionTimeout   time.Duration            `koanf:"collection_timeout"`
	ChangeThresholds    map[string]threshold     `koanf:"change_thresholds"`
	ImmediateUpdate     bool                     `koanf:"immediate_update_on_significant_change"`
	FlatMetrics         bool                     `koanf:"flat_metrics"`
}

type threshold struct {
	Threshold float64 `koanf:"threshold"`
	Type      string  `koanf:"type"`
}

// byName lists the sections whose keys are names of metrics, which stay as they are.
var byName = []string{"change_thresholds", "collection_intervals"}

// earlier maps figures of the earlier designs, which count in percent, to ours, which are parts of
// 1.
var earlier = map[string]string{"memory.usagePercent": "memory.usage", "cpu.processCpuLoad": "process.cpu_usage"}

var collectors = map[string]func() registry.Collector{
	"memory":  func() registry.Collector { return collector.NewMemory() },
	"cpu":     func() registry.Collector { return collector.NewCPU() },
	"disk":    func() registry.Collector { return collector.NewDisk() },
	"network": func() registry.Collector { return collector.NewNetwork() },
	"process": func() registry.Collector { return collector.NewProcess() },
}

// collectorType returns the collector with that name, which the earlier designs named differently.
func collectorType(name string) string {
	if name == "application" {
		return "process"
	}
	return name
}

// Read reads a YAML document, for [registry.NewNaming], or its Options for [registry.NewProvider].
// Errors: a *freeslot.Error that names every key that is unknown, has a bad value, or has no effect
// here. For a key without effect it says what has one.
func Read(yaml []byte) (opts registry.NamingOptions, err error) {
	raw, err := config.ParseYAML(yaml)
	if err != nil {
		return opts, freeslot.Invalid("registry", "cannot be read: %v", err)
	}
	var p config.Problems
	asWritten := make(map[string]string)
	raw = underscored(raw, "", "", asWritten, &p)
	var d document
	d.Registry.Metrics.ImmediateUpdate = true
	p = append(p, config.Decode(raw, &d)...)
	s := &d.Registry
	opts = s.options(&p)
	s.validate(&p, func(path string) bool { _, is := asWritten[path]; return is })
	if len(p) == 0 {
		return opts, nil
	}
	var found freeslot.FieldErrors
	for _, problem := range p {
		found.Addf(written(problem.Path, asWritten), "%s", problem.Message)
	}
	return registry.NamingOptions{}, found.Err()
}

// underscored returns a section with underscores instead of dashes. It records each original key in
// asWritten.
func underscored(in map[string]any, at, was string, asWritten map[string]string, p *config.Problems) map[string]any {
	out := make(map[string]any, len(in))
	for _, key := range slices.Sorted(maps.Keys(in)) {
		name, value := strings.ReplaceAll(key, "-", "_"), in[key]
		path := at + name
		if _, twice := out[name]; twice {
			p.Addf(path, "is there with dashes, too, expected one of them")
		}
		asWritten[path] = was + key
		if inner, ok := value.(map[string]any); ok && !slices.Contains(byName, name) {
			value = underscored(inner, path+".", was+key+".", asWritten, p)
		}
		out[name] = value
	}
	return out
}

// written returns a path as it is written in the file.
func written(path string, asWritten map[string]string) string {
	for end := len(path); end > 0; end = strings.LastIndexAny(path[:end], ".[") {
		if was, ok := asWritten[path[:end]]; ok {
			return was + path[end:]
		}
	}
	return path
}

func (s *section) options(p *config.Problems) registry.NamingOptions {
	r, pause := &s.Redis, time.Duration(0)
	if s.StopPause != nil {
		if pause = *s.StopPause; pause == 0 {
			pause = -1 // none
		}
	}
	return registry.NamingOptions{
		Options: registry.Options{
			RedisURL: r.URL, KeyPrefix: r.KeyPrefix, Namespace: s.Namespace,
			Access: registry.Access{
				Username: r.Username, PasswordFile: r.PasswordFile,
				SentinelUsername: r.SentinelUsername, SentinelPasswordFile: r.SentinelPasswordFile, TLS: registry.TLS(r.TLS),
			},
			Heartbeat: registry.HeartbeatPolicy{
				HeartbeatInterval: s.Heartbeat.HeartbeatInterval, MetadataInterval: s.Heartbeat.MetadataInterval,
				Thresholds: s.thresholds(p), DisableImmediate: !s.Metrics.ImmediateUpdate,
			},
			Collectors: s.collectors(p), FlatMetrics: s.Metrics.FlatMetrics, StopPause: pause,
		},
		Timeout: s.Timeout, SnapshotDir: s.SnapshotDir,
	}
}

// thresholds returns the thresholds of both sections. The earlier designs have them twice.
func (s *section) thresholds(p *config.Problems) map[string]registry.Threshold {
	out := make(map[string]registry.Threshold)
	add := func(at string, given map[string]threshold) {
		for _, name := range slices.Sorted(maps.Keys(given)) {
			path, t := at+".change_thresholds."+name, registry.Threshold{Kind: registry.Any, Value: given[name].Threshold}
			p.Add(path+".threshold", t.Validate())
			t.Kind = beat.ThresholdKind(given[name].Type)
			p.OneOf(path+".type", string(t.Kind), string(registry.Absolute), string(registry.Percent), string(registry.Any))
			if name == "health" {
				if t.Kind != registry.Any {
					p.Addf(path+".type", "is %q, expected any: each change of health is sent at once", t.Kind)
				}
				continue
			}
			if ours, ok := earlier[name]; ok {
				name = ours // the type of the process' load is process
				if t.Kind == registry.Absolute {
					t.Value /= 100
				}
			}
			s.checkFigure(path, name, p)
			if other, ok := out[name]; ok && other != t {
				p.Addf(path, "differs from another threshold of %s, expected one", name)
			}
			out[name] = t
		}
	}
	add("registry.heartbeat", s.Heartbeat.ChangeThresholds)
	add("registry.metrics", s.Metrics.ChangeThresholds)
	return out
}

// checkFigure refuses a name that no collector has, or whose collector is not enabled although
// others are: a threshold of it would have no effect. A program can have types of its own.
func (s *section) checkFigure(path, name string, p *config.Problems) {
	kind, _, _ := strings.Cut(name, ".")
	create := collectors[collectorType(kind)]
	if create == nil {
		return
	}
	var enabled []registry.Collector
	for _, e := range s.Metrics.EnabledMetrics {
		if create := collectors[collectorType(e)]; create != nil {
			enabled = append(enabled, create())
		}
	}
	if len(enabled) == 0 {
		enabled = append(enabled, create())
	}
	p.Add(path, collector.CheckFigure(name, enabled))
}

func (s *section) collectors(p *config.Problems) (out []registry.Collection) {
	m := &s.Metrics
	index := func(name string) int {
		return slices.IndexFunc(out, func(c registry.Collection) bool { return c.Collector.Type() == collectorType(name) })
	}
	for i, name := range m.EnabledMetrics {
		at, create := fmt.Sprintf("registry.metrics.enabled_metrics[%d]", i), collectors[collectorType(name)]
		switch {
		case create == nil:
			p.Addf(
				at,
				"is %q, expected memory, cpu, disk, network, process or application; a program adds others to Options.Collectors",
				name,
			)
		case index(name) >= 0:
			p.Addf(at, "is %q once more", name)
		default:
			out = append(out, registry.Collection{Collector: create(), Timeout: m.CollectionTimeout})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.CollectionIntervals)) {
		at, d, i := "registry.metrics.collection_intervals."+name, m.CollectionIntervals[name], index(name)
		p.DurationBetween(at, d, collector.MinInterval, collector.MaxInterval)
		if i < 0 {
			p.Addf(at, "is of a collector that enabled_metrics does not have")
			continue
		}
		out[i].Interval, out[i].Timeout = d, min(m.CollectionTimeout, d)
	}
	return out
}

// validate adds what else is wrong. The URL of Redis may come from elsewhere. given reports whether
// the document has a key.
func (s *section) validate(p *config.Problems, given func(path string) bool) {
	place := registry.Options{
		RedisURL: cmp.Or(s.Redis.URL, "redis://127.0.0.1"), KeyPrefix: s.Redis.KeyPrefix, Namespace: s.Namespace,
	}
	if bad, ok := errors.AsType[*freeslot.Error](place.WithDefaults().Validate()); ok {
		keys := map[string]string{
			"redis_url": "registry.redis.url", "key_prefix": "registry.redis.key_prefix", "namespace": "registry.namespace",
		}
		for _, e := range bad.Errors {
			p.Field(keys[e.Field], e)
		}
	}
	between := func(key string, d, low, high time.Duration) {
		if d != 0 || given("registry."+key) {
			p.DurationBetween("registry."+key, d, low, high)
		}
	}
	between(
		"heartbeat.heartbeat_interval", s.Heartbeat.HeartbeatInterval, redisregistry.MinHeartbeatInterval,
		redisregistry.MaxHeartbeatInterval,
	)
	between("heartbeat.metadata_interval", s.Heartbeat.MetadataInterval, redisregistry.MinHeartbeatInterval, 24*time.Hour)
	between("metrics.collection_timeout", s.Metrics.CollectionTimeout, time.Millisecond, time.Hour)
	between("timeout", s.Timeout, redisregistry.MinTimeout, redisregistry.MaxTimeout)
	if s.StopPause != nil && *s.StopPause < 0 {
		p.Addf("registry.stop_pause", "is %s, expected 0s or more", config.FormatDuration(*s.StopPause))
	}
	if len(s.Metrics.EnabledMetrics) == 0 && s.Metrics.CollectionTimeout > 0 {
		p.Addf("registry.metrics.collection_timeout", "has no effect without collectors, expected enabled_metrics beside it")
	}
	useless := func(key, instead string) {
		if given("registry." + key) {
			p.Addf("registry."+key, "has no effect here; %s", instead)
		}
	}
	useless(
		"cleanup.interval",
		"an operator sets it for each service: schedctl registry set SERVICE --every "+
			config.FormatDuration(s.Cleanup.Interval),
	)
	useless(
		"cleanup.global_timeout",
		"an operator sets it for each service: schedctl registry set SERVICE --limit "+
			config.FormatDuration(s.Cleanup.GlobalTimeout),
	)
	useless("redis.connection_timeout", "leave it out: each call to Redis has 2s")
}
