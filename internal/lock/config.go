package lock

import (
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/script"
)

// Defaults and bounds of Config and Options.
const (
	DefaultLease          = 30 * time.Second
	MinLease              = 500 * time.Millisecond
	MaxLease              = 24 * time.Hour
	DefaultWatchdogPeriod = 5 * time.Second
	DefaultAlertThreshold = 3
	DefaultLiveness       = time.Second
	DefaultKeyPrefix      = "lock"
	MinMargin             = 10 * time.Millisecond
	MaxKeyBytes           = 512
)

// Recovery is what the watchdog does about a lock whose holder is stalled, or has held it for too
// long. Renewals and connections that fail end no hold before its lease less the margin is over. A
// lock that Redis no longer has is lost in any case, and is never taken again without a word: what
// it guards was open meanwhile.
type Recovery string

const (
	// RecoverCancel is the default: the context ends, and the lock stays until its lease is over,
	// so that the holder can wind down before another one begins.
	RecoverCancel Recovery = "cancel"
	// RecoverRelease ends the context and gives the lock back at once.
	RecoverRelease Recovery = "release"
	// RecoverAlarm only raises the alarm.
	RecoverAlarm Recovery = "alarm"
)

// Config is how one lock behaves (the seed's LockConfig). The zero value of each field but Key is
// its default.
type Config struct {
	// Key names the lock: 1 to 512 bytes of UTF-8 without control characters.
	Key string
	// Lease is how long the lock outlives the last renewal: 500 ms to 24 h, default 30 s.
	Lease time.Duration
	// Renewal is the time from one renewal to the next, default Lease/3, at most Lease/2.
	Renewal time.Duration
	// WatchdogPeriod is the time from one check to the next, default 5 s, at least 100 ms.
	WatchdogPeriod time.Duration
	// Fair serves waiters of all processes in the order in which Redis queued them. By default a
	// newcomer may take a lock that it finds free, and waiters of one process may pass it among
	// themselves for 2 ms. All who take one key should agree: beside unfair ones, also in the same
	// process, fair waiters still get the lock one at a time, but lose their order.
	Fair bool
	// MaxHold ends the context of a holder after that time; 0 means never. Without it, the lock of a
	// goroutine that hangs is renewed as long as the process lives.
	MaxHold time.Duration
	// AtLeast is for how long the lock stays taken, counted from its grant, also when it is
	// unlocked sooner: then a short task that several machines start at once runs on one of them.
	// At most Lease; 0 is not at all.
	AtLeast time.Duration
	// BeatTimeout demands a Held.Beat within that time; 0 means none.
	BeatTimeout time.Duration
	// Recovery is what the watchdog does; the zero value is RecoverCancel.
	Recovery Recovery
	// AlertThreshold is after how many failed checks in a row the alarm is raised, default 3.
	AlertThreshold int
	// Margin is by how much a holder's context ends before its lease, for clocks that run at
	// different speeds: default Lease/100, at least 10 ms, at most Lease/4.
	Margin time.Duration
}

// WithDefaults is c with its defaults filled in.
func (c Config) WithDefaults() Config {
	or := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	or(&c.Lease, DefaultLease)
	or(&c.Renewal, c.Lease/3)
	or(&c.WatchdogPeriod, DefaultWatchdogPeriod)
	or(&c.Margin, max(c.Lease/100, MinMargin))
	if c.AlertThreshold == 0 {
		c.AlertThreshold = DefaultAlertThreshold
	}
	if c.Recovery == "" {
		c.Recovery = RecoverCancel
	}
	return c
}

// Validate names every field that cannot be used. It wants defaults filled in.
func (c Config) Validate() error {
	var found freeslot.FieldErrors
	between := func(field string, d, least, most time.Duration) {
		if d < least || d > most {
			found.Addf(field, "is %s, expected %s to %s", d, least, most)
		}
	}
	if err := checkKey(c.Key); err != "" {
		found.Addf("Key", "%s", err)
	}
	between("Lease", c.Lease, MinLease, MaxLease)
	if c.Lease >= MinLease && c.Lease <= MaxLease {
		between("Renewal", c.Renewal, time.Millisecond, c.Lease/2)
		between("Margin", c.Margin, MinMargin, c.Lease/4)
	}
	between("WatchdogPeriod", c.WatchdogPeriod, 100*time.Millisecond, MaxLease)
	if c.MaxHold < 0 {
		found.Addf("MaxHold", "is %s, expected 0 for never, or more", c.MaxHold)
	}
	if c.BeatTimeout < 0 {
		found.Addf("BeatTimeout", "is %s, expected 0 for none, or more", c.BeatTimeout)
	}
	if c.AtLeast < 0 || c.AtLeast > max(c.Lease, MinLease) {
		found.Addf("AtLeast", "is %s, expected 0 to the lease of %s", c.AtLeast, c.Lease)
	}
	switch c.Recovery {
	case RecoverCancel, RecoverRelease, RecoverAlarm:
	default:
		found.Addf("Recovery", "is %q, expected %s, %s or %s", c.Recovery, RecoverCancel, RecoverRelease, RecoverAlarm)
	}
	if c.AlertThreshold < 1 {
		found.Addf("AlertThreshold", "is %d, expected 1 or more", c.AlertThreshold)
	}
	return found.Err()
}

// checkKey says what is wrong with the name of a lock, "" if nothing is.
func checkKey(key string) string {
	switch {
	case key == "":
		return "is empty, expected the name of the lock"
	case len(key) > MaxKeyBytes:
		return fmt.Sprintf("has %d bytes, expected at most %d", len(key), MaxKeyBytes)
	case !utf8.ValidString(key):
		return "is no UTF-8"
	case strings.ContainsFunc(key, unicode.IsControl):
		return "has a control character"
	}
	return ""
}

// Options is how a Manager reaches Redis. The zero value of each field but RedisURL is its default.
type Options struct {
	// RedisURL is redis://[user:password@]host:port[/db], rediss:// for TLS, with &addr=host:port
	// for each further node of a cluster, or &master_set=name for sentinels.
	RedisURL string
	// Username, PasswordFile and TLS are as in the access of workers; the password file is read at
	// each connection.
	Access redisclient.Access
	// KeyPrefix is the first part of all keys, default "lock". All processes must agree on it.
	KeyPrefix string
	// Holder is how operators see this process, default host:pid. At most 128 bytes without control
	// characters.
	Holder string
	// Liveness is for how long a silent process counts as alive while it waits: 200 ms to 1 min,
	// default 1 s. All processes must agree on it.
	Liveness time.Duration
	// Replicas is how many of Redis' replicas must have a grant or a renewal before it counts; 0,
	// the default, is none. A grant that fewer have confirmed within ReplicationTimeout, default 1
	// s, is asked about again as long as its caller waits, and then given back.
	Replicas           int
	ReplicationTimeout time.Duration
	// OnAlarm is called by a goroutine of the manager when a check has failed AlertThreshold times
	// in a row, and once more when it succeeds again. It must not block. nil means only the log and
	// the metric.
	OnAlarm func(Alarm)
	// Logger may be nil. Registerer may be nil; two managers on one registerer panic.
	Logger     *zap.Logger
	Registerer prometheus.Registerer

	// callTimeout bounds one call of Redis, and Unlock; default callTimeout. A test on a busy machine
	// needs a longer one.
	callTimeout time.Duration
}

// WithDefaults is o with its defaults filled in.
func (o Options) WithDefaults() Options {
	if o.KeyPrefix == "" {
		o.KeyPrefix = DefaultKeyPrefix
	}
	if o.Holder == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		o.Holder = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if o.Liveness == 0 {
		o.Liveness = DefaultLiveness
	}
	if o.callTimeout == 0 {
		o.callTimeout = callTimeout
	}
	if o.ReplicationTimeout == 0 {
		o.ReplicationTimeout = script.DefaultReplicationTimeout
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// Validate names every field that cannot be used. It wants defaults filled in, and connects to
// nothing.
func (o Options) Validate() error {
	var found freeslot.FieldErrors
	if err := redisclient.CheckURL(o.RedisURL); err != nil {
		found.Addf("RedisURL", "is not a Redis URL: %s", err)
	}
	if o.Liveness < 200*time.Millisecond || o.Liveness > time.Minute {
		found.Addf("Liveness", "is %s, expected 200ms to 1m", o.Liveness)
	}
	if len(o.Holder) > 128 || !utf8.ValidString(o.Holder) || strings.ContainsFunc(o.Holder, unicode.IsControl) {
		found.Addf("Holder", "is %q, expected at most 128 bytes of UTF-8 without control characters", o.Holder)
	}
	if strings.ContainsAny(o.KeyPrefix, "{}") || strings.ContainsFunc(o.KeyPrefix, unicode.IsControl) {
		found.Addf("KeyPrefix", "is %q, expected no braces and no control characters", o.KeyPrefix)
	}
	if o.Replicas < 0 || o.Replicas > script.MaxReplicas {
		found.Addf("Replicas", "is %d, expected 0 to %d", o.Replicas, script.MaxReplicas)
	}
	if o.ReplicationTimeout < time.Millisecond || o.ReplicationTimeout > time.Minute {
		found.Addf("ReplicationTimeout", "is %s, expected 1ms to 1m", o.ReplicationTimeout)
	}
	return found.Err()
}
