package worker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// Defaults of Config.
const (
	DefaultHeartbeatInterval = 3 * time.Second
	DefaultMetadataInterval  = time.Minute
	DefaultStopTimeout       = 30 * time.Second
	DefaultInterruptGrace    = 5 * time.Second
	DefaultMaxResultBytes    = 1 << 20
	DefaultProgressInterval  = 100 * time.Millisecond
)

// Bounds of Config.
const (
	// MinHeartbeatInterval keeps a fleet from spending Redis on heartbeats.
	MinHeartbeatInterval = 100 * time.Millisecond
	// MinProgressInterval does so for progress.
	MinProgressInterval = 10 * time.Millisecond
	// MaxResultBytesLimit is the largest MaxResultBytes: results live in Redis' memory.
	MaxResultBytesLimit = 16 << 20
)

// Config describes a worker. RedisURL or RedisURLs, Node.ID and Node.MaxConcurrency
// have no default.
type Config struct {
	// RedisURL is redis://[user:password@]host:port[/db], or rediss:// for TLS: one
	// server, or nodes of a Redis Cluster, the further ones as ?addr=host:port&addr=….
	RedisURL string
	// RedisURLs are the standalone servers over which the schedulers spread their
	// cells, in the same order; instead of RedisURL.
	RedisURLs []string
	// RedisAccess is who the worker is to Redis, and how the servers prove who they are. The zero value is: by
	// what RedisURL says alone.
	RedisAccess RedisAccess
	// Cells is how many cells the schedulers have. 0 means 1.
	Cells int
	// KeyPrefix must be the schedulers'. Empty means "scheduler".
	KeyPrefix string
	// Node is the profile. Handle adds the services of its handlers.
	Node freeslot.Node
	// HeartbeatInterval must not be above half of the schedulers' heartbeat limit (8 s
	// unless they are configured otherwise): one late heartbeat would cost the node
	// its jobs. 0 means DefaultHeartbeatInterval.
	HeartbeatInterval time.Duration
	// MetadataInterval is how often a heartbeat brings the figures of Collectors at least. 0 means
	// DefaultMetadataInterval, or HeartbeatInterval if that is more.
	MetadataInterval time.Duration
	// Thresholds are the changes of figures, by "type.field" such as "memory.usage", with which
	// the figures are told at once, at most once a second. nil means DefaultThresholds.
	Thresholds map[string]Threshold
	// DisableImmediateUpdate makes such changes wait for the next heartbeat.
	DisableImmediateUpdate bool
	// Collectors are what figures the node tells. nil means DefaultCollectors; empty, not nil,
	// tells none. Worker.Collect adds further ones.
	Collectors []Collection
	// HeartbeatLimit is the schedulers' heartbeat limit. Handlers of jobs with
	// freeslot.LeaseLossCancel are stopped when no heartbeat has been answered for as long,
	// so it must not be above theirs. 0 means 8 s, which is their default, or twice
	// HeartbeatInterval if that is more.
	HeartbeatLimit time.Duration
	// ProgressInterval is the shortest time between two reports of one job's progress. 0
	// means DefaultProgressInterval.
	ProgressInterval time.Duration
	// StopTimeout is how long Stop lets running handlers go on. 0 means
	// DefaultStopTimeout; to interrupt them at once, give Stop an ended context.
	StopTimeout time.Duration
	// InterruptGrace is how long Stop waits for handlers whose context it has
	// cancelled; those that have not returned then are abandoned, and their jobs
	// handed back. 0 means DefaultInterruptGrace.
	InterruptGrace time.Duration
	// MaxResultBytes is the largest result, as JSON. A larger one fails the job
	// with freeslot.JobErrorResultTooLarge. 0 means DefaultMaxResultBytes.
	MaxResultBytes int
	// Logger nil logs nothing.
	Logger *zap.Logger
	// Registerer nil keeps metrics to the worker. Metrics carry the label "node",
	// so several workers can share a registerer as long as their nodes differ.
	Registerer prometheus.Registerer
	// TracerProvider nil traces nothing.
	TracerProvider trace.TracerProvider
}

// RedisAccess is how a worker connects to Redis, besides where.
type RedisAccess struct {
	// Username is the user of Redis' ACL, and PasswordFile holds the password; in place of those in the URL. The file
	// is read at each new connection.
	Username, PasswordFile string
	// SentinelUsername and SentinelPasswordFile are likewise for sentinels.
	SentinelUsername, SentinelPasswordFile string
	// CAFile has the certificates (PEM) that vouch for the servers, where the system's do not; CertFile and KeyFile
	// are the worker's own certificate, for servers that want one; ServerName is the name in the servers' certificates,
	// where it is not the host of the URL. They are for URLs that begin with rediss://.
	CAFile, CertFile, KeyFile, ServerName string
}

func (a RedisAccess) internal() redisclient.Access {
	return redisclient.Access{
		Username: a.Username, PasswordFile: a.PasswordFile,
		SentinelUsername: a.SentinelUsername, SentinelPasswordFile: a.SentinelPasswordFile,
		TLS: redisclient.TLS{CAFile: a.CAFile, CertFile: a.CertFile, KeyFile: a.KeyFile, ServerName: a.ServerName},
	}
}

// WithDefaults returns a copy in which zero values are replaced by the defaults.
func (c Config) WithDefaults() Config {
	if c.Cells == 0 {
		c.Cells = 1
	}
	if c.KeyPrefix == "" {
		c.KeyPrefix = cell.DefaultPrefix
	}
	if c.HeartbeatInterval == 0 {
		c.HeartbeatInterval = DefaultHeartbeatInterval
	}
	if c.MetadataInterval == 0 {
		c.MetadataInterval = max(DefaultMetadataInterval, c.HeartbeatInterval)
	}
	if c.Thresholds == nil {
		c.Thresholds = DefaultThresholds()
	}
	if c.Collectors == nil {
		c.Collectors = DefaultCollectors()
	}
	if c.HeartbeatLimit == 0 {
		c.HeartbeatLimit = max(cell.DefaultHeartbeatLimit, 2*c.HeartbeatInterval)
	}
	if c.ProgressInterval == 0 {
		c.ProgressInterval = DefaultProgressInterval
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = DefaultStopTimeout
	}
	if c.InterruptGrace == 0 {
		c.InterruptGrace = DefaultInterruptGrace
	}
	if c.MaxResultBytes == 0 {
		c.MaxResultBytes = DefaultMaxResultBytes
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = noop.NewTracerProvider()
	}
	return c
}

// Validate reports every field that New would refuse, joined into one error.
// It expects the defaults to be applied.
func (c Config) Validate() error {
	var bad []error
	refuse := func(field, format string, args ...any) {
		bad = append(bad, fmt.Errorf("%s "+format, append([]any{field}, args...)...))
	}
	switch {
	case c.RedisURL == "" && len(c.RedisURLs) == 0:
		refuse("redis_url", "is empty, expected redis://host:port")
	case c.RedisURL != "" && len(c.RedisURLs) > 0:
		refuse("redis_urls", "is set beside redis_url, expected one of them")
	}
	if c.Cells < 1 || c.Cells > cell.MaxCells {
		refuse("cells", "is %d, expected 1 to %d", c.Cells, cell.MaxCells)
	} else if len(c.RedisURLs) > c.Cells {
		refuse("redis_urls", "names %d servers, expected at most one for each of the %d cells", len(c.RedisURLs), c.Cells)
	}
	if err := freeslot.ValidateName("key_prefix", c.KeyPrefix); err != nil {
		bad = append(bad, err)
	}
	if err := c.Node.Validate("node"); err != nil {
		bad = append(bad, err)
	}
	if c.HeartbeatInterval < MinHeartbeatInterval {
		refuse("heartbeat_interval", "is %s, expected at least %s", c.HeartbeatInterval, MinHeartbeatInterval)
	}
	if c.MetadataInterval < c.HeartbeatInterval {
		refuse("metadata_interval", "is %s, expected at least the heartbeat_interval of %s", c.MetadataInterval, c.HeartbeatInterval)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Thresholds)) {
		if err := c.Thresholds[name].Validate(); err != nil {
			bad = append(bad, fmt.Errorf("change_thresholds.%s %w", name, err))
		}
	}
	if err := checkCollectors(c.Collectors); err != nil {
		bad = append(bad, err)
	}
	if c.HeartbeatLimit < c.HeartbeatInterval {
		refuse("heartbeat_limit", "is %s, expected at least the heartbeat_interval of %s", c.HeartbeatLimit, c.HeartbeatInterval)
	}
	if c.ProgressInterval < MinProgressInterval {
		refuse("progress_interval", "is %s, expected at least %s", c.ProgressInterval, MinProgressInterval)
	}
	if c.StopTimeout < 0 {
		refuse("stop_timeout", "is %s, expected a positive duration", c.StopTimeout)
	}
	if c.InterruptGrace < 0 {
		refuse("interrupt_grace", "is %s, expected a positive duration", c.InterruptGrace)
	}
	if c.MaxResultBytes < 0 || c.MaxResultBytes > MaxResultBytesLimit {
		refuse("max_result_bytes", "is %d, expected 1 to %d", c.MaxResultBytes, MaxResultBytesLimit)
	}
	return errors.Join(bad...)
}
