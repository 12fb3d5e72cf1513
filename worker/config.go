package worker

import (
	"cmp"
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
	"github.com/freeslot/freeslot/internal/node/collector"
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
	// MinProgressInterval keeps a fleet from spending Redis on progress.
	MinProgressInterval = 10 * time.Millisecond
	// MaxResultBytesLimit is the largest MaxResultBytes: results live in Redis' memory.
	MaxResultBytesLimit = 16 << 20
)

// Config describes a worker. One of RedisURL, RedisURLs and Gateway, Node.ID and
// Node.MaxConcurrency have no default.
type Config struct {
	// RedisURL is redis://[user:password@]host:port[/db], or rediss:// for TLS. It names one
	// server, or nodes of a Redis Cluster, the further ones as ?addr=host:port&addr=….
	RedisURL string
	// RedisURLs replaces RedisURL if the schedulers spread their cells over several standalone
	// servers. The order must be the schedulers'.
	RedisURLs []string
	// RedisAccess holds the worker's credentials for Redis, and tells how the servers prove who
	// they are. The zero value uses RedisURL alone.
	RedisAccess RedisAccess
	// Gateway takes the place of Redis: wss://host[:port] of replicas, several with commas between.
	// Besides it the node needs only a token. RedisAccess, Cells and KeyPrefix are then not used,
	// and the gateway sets HeartbeatLimit. ws:// is for loopback and proxies.
	Gateway string
	// Token proves to the gateway who this node is. TokenFile names a file that holds it instead,
	// which is read again at each connect.
	Token, TokenFile string
	// GatewayTLS holds certificates for wss://. The zero value trusts the system's.
	GatewayTLS GatewayTLS
	// GatewayInsecure is true if Gateway may be ws:// to another machine without a warning, because
	// something else keeps the way secret, such as a VPN.
	GatewayInsecure bool
	// Cells is the schedulers' number of cells. 0 means 1.
	Cells int
	// KeyPrefix must be the schedulers' prefix. Empty means "scheduler".
	KeyPrefix string
	// Node is the profile. Handle adds the services of its handlers.
	Node freeslot.Node
	// HeartbeatInterval must be at most half of the schedulers' heartbeat limit (8 s unless they
	// are configured otherwise). If it is longer, one late heartbeat costs the node its jobs. 0
	// means DefaultHeartbeatInterval.
	HeartbeatInterval time.Duration
	// MetadataInterval is the longest time between two heartbeats with the figures of Collectors. 0
	// means DefaultMetadataInterval, or HeartbeatInterval if that is more.
	MetadataInterval time.Duration
	// Thresholds are the changes of figures, by "type.field" such as "memory.usage", after which
	// the figures are sent at once, at most once a second. nil means DefaultThresholds. Start
	// refuses names of figures that no collector has.
	Thresholds map[string]Threshold
	// DisableImmediateUpdate makes such changes wait for the next heartbeat.
	DisableImmediateUpdate bool
	// Collectors collect the figures that heartbeats bring. nil means DefaultCollectors; empty, not
	// nil, is none. Worker.Collect adds further ones.
	Collectors []Collection
	// HeartbeatLimit is the schedulers' heartbeat limit. If no heartbeat has been answered for that
	// long, handlers of jobs with freeslot.LeaseLossCancel are stopped, so it must not be above the
	// schedulers' limit. 0 means 8 s, the schedulers' default, or twice HeartbeatInterval if that
	// is more.
	HeartbeatLimit time.Duration
	// ProgressInterval is the shortest time between two reports of one job's progress. 0 means
	// DefaultProgressInterval.
	ProgressInterval time.Duration
	// StopTimeout is how long Stop lets running handlers go on. 0 means DefaultStopTimeout. To
	// interrupt handlers at once, give Stop an ended context.
	StopTimeout time.Duration
	// InterruptGrace is how long Stop waits for handlers whose context it has cancelled. Then it
	// gives up the handlers that have not returned, and hands their jobs back. 0 means
	// DefaultInterruptGrace.
	InterruptGrace time.Duration
	// ExitUnreachable makes Start return an error if Redis or the gateway cannot be reached.
	// Otherwise Start tries again until it succeeds or its context ends.
	ExitUnreachable bool
	// MaxResultBytes is the largest result, as JSON. A larger one fails the job with
	// freeslot.JobErrorResultTooLarge. 0 means DefaultMaxResultBytes.
	MaxResultBytes int
	// Logger may be nil: then nothing is logged.
	Logger *zap.Logger
	// Registerer may be nil: then the metrics are not exported. Metrics carry the label "node", so
	// several workers can share a registerer if their nodes differ.
	Registerer prometheus.Registerer
	// TracerProvider may be nil: then nothing is traced.
	TracerProvider trace.TracerProvider
}

// GatewayTLS tells how gateways prove who they are, and how this node does if they ask.
type GatewayTLS struct {
	// CAFile holds the certificates (PEM) that may sign the gateways'; empty means the system's.
	// CertFile and KeyFile hold the node's own certificate. ServerName is the name in the gateways'
	// certificates; empty means the URL's host.
	CAFile, CertFile, KeyFile, ServerName string
}

// RedisAccess holds credentials and certificates for connections to Redis.
type RedisAccess struct {
	// Username is the user of Redis' ACL, and PasswordFile holds the password. They replace the
	// ones in the URL. The file is read at each new connection.
	Username, PasswordFile string
	// SentinelUsername and SentinelPasswordFile are the same for sentinels.
	SentinelUsername, SentinelPasswordFile string
	// CAFile holds the certificates (PEM) that may sign the servers'; empty means the system's.
	// CertFile and KeyFile hold the worker's own certificate, for servers that ask for one.
	// ServerName is the name in the servers' certificates; empty means the URL's host. All of them
	// apply to URLs that begin with rediss://.
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
	c.Cells = cmp.Or(c.Cells, 1)
	c.KeyPrefix = cmp.Or(c.KeyPrefix, cell.DefaultPrefix)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, DefaultHeartbeatInterval)
	c.MetadataInterval = cmp.Or(c.MetadataInterval, max(DefaultMetadataInterval, c.HeartbeatInterval))
	c.HeartbeatLimit = cmp.Or(c.HeartbeatLimit, max(cell.DefaultHeartbeatLimit, 2*c.HeartbeatInterval))
	c.ProgressInterval = cmp.Or(c.ProgressInterval, DefaultProgressInterval)
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)
	c.InterruptGrace = cmp.Or(c.InterruptGrace, DefaultInterruptGrace)
	c.MaxResultBytes = cmp.Or(c.MaxResultBytes, DefaultMaxResultBytes)
	if c.Thresholds == nil {
		c.Thresholds = DefaultThresholds()
	}
	if c.Collectors == nil {
		c.Collectors = DefaultCollectors()
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = noop.NewTracerProvider()
	}
	return c
}

// Validate reports every field that New would refuse, joined into one error. It expects the
// defaults to be applied.
func (c Config) Validate() error {
	var bad []error
	refuse := func(field, format string, args ...any) {
		bad = append(bad, fmt.Errorf("%s "+format, append([]any{field}, args...)...))
	}
	switch {
	case c.Gateway != "":
	case c.RedisURL == "" && len(c.RedisURLs) == 0:
		refuse("redis_url", "is empty, expected redis://host:port, or a gateway")
	case c.RedisURL != "" && len(c.RedisURLs) > 0:
		refuse("redis_urls", "is set beside redis_url, expected one of them")
	}
	bad = append(bad, c.checkGateway()...)
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
		refuse(
			"metadata_interval", "is %s, expected at least the heartbeat_interval of %s", c.MetadataInterval,
			c.HeartbeatInterval,
		)
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
		refuse(
			"heartbeat_limit", "is %s, expected at least the heartbeat_interval of %s", c.HeartbeatLimit, c.HeartbeatInterval,
		)
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

// checkThresholds refuses thresholds of figures that no collector has. Start calls it, because
// Collect adds collectors after New. The default thresholds stay even if their collectors are left
// out.
func (c *Config) checkThresholds() error {
	collectors := make([]collector.Collector, len(c.Collectors))
	for i := range c.Collectors {
		collectors[i] = c.Collectors[i].Collector
	}
	always := DefaultThresholds()
	for _, name := range slices.Sorted(maps.Keys(c.Thresholds)) {
		if _, ok := always[name]; ok {
			continue
		}
		if err := collector.CheckFigure(name, collectors); err != nil {
			return freeslot.Invalid("change_thresholds."+name, "%v", err)
		}
	}
	return nil
}
