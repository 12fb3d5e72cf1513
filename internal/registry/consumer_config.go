package registry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// Defaults and bounds of ConsumerOptions.
const (
	DefaultTimeout = 30 * time.Second
	MinTimeout     = 200 * time.Millisecond
	MaxTimeout     = time.Hour
)

// A consumer looks every T/10, within these bounds.
const (
	minLook = time.Second
	maxLook = 5 * time.Second
)

// ConsumerOptions says how a Consumer reaches Redis and judges instances. The zero value of each
// field except RedisURL means its default.
type ConsumerOptions struct {
	// RedisURL is redis://[user:password@]host:port[/db], rediss:// for TLS, with &addr=host:port
	// for each further node of a cluster, or &master_set=name for sentinels.
	RedisURL string
	// Access holds credentials and certificates.
	Access redisclient.Access
	// KeyPrefix is the first part of all keys, default "scheduler". Namespace separates systems
	// with the same prefix; empty means none. Providers and consumers must agree on both.
	KeyPrefix, Namespace string
	// Timeout is the time without a heartbeat after which an instance is late: 200 ms to 1 h. The
	// default, 30 s, is three intervals of heartbeats. For each service it is raised to twice the
	// service's longest interval.
	Timeout time.Duration
	// Figures keeps the metrics of instances fresh, which costs many messages. Without it, Metrics
	// are those sent with the last change.
	Figures bool
	// SnapshotDir is a folder for the last lists, from which a process can start while Redis is
	// away. Empty means none. Several processes may share one. Start makes it, and fails if no file
	// can be made in it.
	SnapshotDir string
	// Logger may be nil. Registerer may be nil; two consumers on one registerer panic.
	Logger     *zap.Logger
	Registerer prometheus.Registerer

	// look is the time between looks, for tests; 0 means T/10 within minLook and maxLook.
	look time.Duration
}

// WithDefaults returns o with its defaults filled in.
func (o ConsumerOptions) WithDefaults() ConsumerOptions {
	if o.KeyPrefix == "" {
		o.KeyPrefix = DefaultKeyPrefix
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// Validate returns an error that names every bad field. Fill in the defaults first. It connects to
// nothing.
func (o ConsumerOptions) Validate() error {
	found := checkPlace(o.RedisURL, o.KeyPrefix, o.Namespace)
	if o.Timeout < MinTimeout || o.Timeout > MaxTimeout {
		found.Addf("timeout", "is %s, expected %s to %s", o.Timeout, MinTimeout, MaxTimeout)
	}
	return found.Err()
}

// lookInterval returns the time between looks.
func (o ConsumerOptions) lookInterval() time.Duration {
	if o.look > 0 {
		return o.look
	}
	return min(max(o.Timeout/10, minLook), maxLook)
}
