package registry

import (
	"math/rand/v2"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/heartbeat"
	"github.com/freeslot/freeslot/internal/node/collector"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// Defaults of Options.
const (
	DefaultKeyPrefix        = "scheduler"
	DefaultMetadataInterval = time.Minute
	DefaultMetadataGap      = time.Second
	DefaultStopPause        = 5 * time.Second
)

// Options configures a Provider. The zero value of each field except RedisURL means its default.
type Options struct {
	// RedisURL is redis://[user:password@]host:port[/db], rediss:// for TLS, with &addr=host:port
	// for each further node of a cluster, or &master_set=name for sentinels.
	RedisURL string
	// Access holds credentials and certificates.
	Access redisclient.Access
	// KeyPrefix is the first part of all keys, default "scheduler". Namespace is the second part,
	// and separates registries that do not see each other; empty means none.
	KeyPrefix, Namespace string
	// Heartbeat decides what is sent, and when. HeartbeatInterval, default 10 s, applies to
	// instances without an interval of their own. MetadataInterval, default 60 s, is how often
	// everything known of an instance is sent again. MetadataGap, default 1 s, is the shortest time
	// between two reports that only changes of metrics cause. Jitter is not used. The keys of
	// Thresholds are metrics, as type.field.
	Heartbeat heartbeat.Policy
	// Collectors collect the metrics of this process, which the provider reports for each of its
	// instances.
	Collectors []collector.Entry
	// FlatMetrics also writes metrics as metadata_<type>_<field>, for readers that know the second
	// version of the registry.
	FlatMetrics bool
	// StopPause is the time between marking an instance as draining and its end, in which consumers
	// see the mark: default 5 s, negative for none.
	StopPause time.Duration
	// Logger may be nil. Registerer may be nil; two providers on one registerer panic.
	Logger     *zap.Logger
	Registerer prometheus.Registerer
}

// WithDefaults returns o with its defaults filled in.
func (o Options) WithDefaults() Options {
	if o.KeyPrefix == "" {
		o.KeyPrefix = DefaultKeyPrefix
	}
	or := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	or(&o.Heartbeat.HeartbeatInterval, DefaultHeartbeatInterval)
	or(&o.Heartbeat.MetadataInterval, DefaultMetadataInterval)
	or(&o.Heartbeat.MetadataGap, DefaultMetadataGap)
	or(&o.StopPause, DefaultStopPause)
	o.Heartbeat.SplitMetrics = true
	o.Heartbeat.Jitter = func(d time.Duration) time.Duration { return d - rand.N(d/10+1) }
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// Validate returns an error that names every bad field. Fill in the defaults first. It connects to
// nothing, and does not check collectors: NewProvider does that.
func (o Options) Validate() error {
	found := checkPlace(o.RedisURL, o.KeyPrefix, o.Namespace)
	if d := o.Heartbeat.HeartbeatInterval; d < MinHeartbeatInterval || d > MaxHeartbeatInterval {
		found.Addf("heartbeat_interval", "is %s, expected %s to %s", d, MinHeartbeatInterval, MaxHeartbeatInterval)
	}
	if err := o.Heartbeat.Validate(); err != nil {
		found.Addf("heartbeat", "%s", err)
	}
	return found.Err()
}

// checkPlace returns what is wrong with the place of a registry's keys.
func checkPlace(url, keyPrefix, namespace string) (found freeslot.FieldErrors) {
	if err := redisclient.CheckURL(url); err != nil {
		found.Addf("redis_url", "is not a Redis URL: %s", err)
	}
	if strings.ContainsAny(keyPrefix, "{}") || strings.ContainsFunc(keyPrefix, unicode.IsControl) {
		found.Addf("key_prefix", "is %q, expected no braces and no control characters", keyPrefix)
	}
	if namespace != "" {
		found.Add(freeslot.ValidateName("namespace", namespace))
	}
	return found
}
