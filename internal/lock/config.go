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

// Recovery says what the watchdog does about a lock whose holder is stalled, or has held it for too
// long. Failed renewals and connections end no hold before its lease, less the margin, is over. A
// lock that Redis no longer has is always lost, and is never silently taken again: others could
// change what it guards meanwhile.
type Recovery string

const (
	// RecoverCancel is the default: the context ends, but the lock stays taken until its lease is
	// over, so that the holder can wind down before the next one begins.
	RecoverCancel Recovery = "cancel"
	// RecoverRelease ends the context and gives the lock back at once.
	RecoverRelease Recovery = "release"
	// RecoverAlarm only raises the alarm.
	RecoverAlarm Recovery = "alarm"
)

// Config describes one lock. The zero value of each field except Key means its default.
type Config struct {
	// Key names the lock: 1 to 512 bytes of UTF-8 without control characters.
	Key string
	// Lease is how long the lock lasts after its last renewal: 500 ms to 24 h, default 30 s.
	Lease time.Duration
	// Renewal is the time between renewals, default Lease/3, at most Lease/2.
	Renewal time.Duration
	// WatchdogPeriod is the time between checks, default 5 s, at least 100 ms.
	WatchdogPeriod time.Duration
	// Fair serves the waiters of all processes in the order in which Redis queued them. By default,
	// a newcomer may take a lock that it finds free, and the waiters of one process may pass the
	// lock among themselves for 2 ms. All users of a key should agree: beside unfair waiters, even
	// of the same process, fair waiters still get the lock one at a time, but out of order.
	Fair bool
	// MaxHold ends the context of a holder after that time; 0 means never. Without it, the lock of
	// a goroutine that hangs is renewed as long as the process lives.
	MaxHold time.Duration
	// AtLeast keeps the lock taken for that long after its grant, even if it is unlocked sooner.
	// Thus a short task that several machines start at the same time runs on only one of them. At
	// most Lease; 0 means not at all.
	AtLeast time.Duration
	// BeatTimeout is the longest time between calls of Held.Beat; 0 means that none is needed.
	BeatTimeout time.Duration
	// Recovery says what the watchdog does; the zero value means RecoverCancel.
	Recovery Recovery
	// AlertThreshold is the number of failed checks in a row that raises the alarm, default 3.
	AlertThreshold int
	// Margin is the time by which a holder's context ends before its lease, because clocks run at
	// different speeds: default Lease/100, at least 10 ms, at most Lease/4.
	Margin time.Duration
}

// WithDefaults returns c with its defaults filled in.
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

// Validate returns an error that names every bad field. Fill in the defaults first.
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

// checkKey returns what is wrong with the name of a lock, or "".
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

// Options says how a Manager reaches Redis. The zero value of each field except RedisURL means its
// default.
type Options struct {
	// RedisURL is redis://[user:password@]host:port[/db], rediss:// for TLS, with &addr=host:port
	// for each further node of a cluster, or &master_set=name for sentinels.
	RedisURL string
	// Access holds Username, PasswordFile and TLS, as for workers. The password file is read at
	// each connection.
	Access redisclient.Access
	// KeyPrefix is the first part of all keys, default "lock". All processes must use the same.
	KeyPrefix string
	// Holder is the name under which operators see this process, default host:pid. At most 128
	// bytes without control characters.
	Holder string
	// Liveness is how long a silent process that waits counts as alive: 200 ms to 1 min, default 1
	// s. All processes must use the same.
	Liveness time.Duration
	// Replicas is the number of Redis replicas that must confirm a grant or a renewal before it
	// counts; default 0. If fewer have confirmed a grant within ReplicationTimeout (default 1 s),
	// the call is repeated as long as its caller waits, and then the lock is given back.
	Replicas           int
	ReplicationTimeout time.Duration
	// OnAlarm is called when a check has failed AlertThreshold times in a row, and again when it
	// succeeds. A goroutine of the manager calls it, so it must not block. nil means that only the
	// log and the metric tell of it.
	OnAlarm func(Alarm)
	// Logger may be nil. Registerer may be nil; two managers on one registerer panic.
	Logger     *zap.Logger
	Registerer prometheus.Registerer

	// callTimeout bounds one call of Redis, and Unlock; 0 means the constant callTimeout. Tests on
	// a busy machine need a longer one.
	callTimeout time.Duration
}

// WithDefaults returns o with its defaults filled in.
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

// Validate returns an error that names every bad field. Fill in the defaults first. It connects to
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
