package embed

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/registry/centre"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// Config describes a replica. The zero value describes the replica that `scheduler serve` runs
// without a configuration: with the Redis of this machine, for the jobs of tenant "default".
type Config struct {
	// Tenant owns all jobs that are submitted here. Empty means "default".
	Tenant string
	// RedisURL is redis://[user:password@]host:port[/db], or rediss:// for TLS. It names one
	// server, or nodes of a Redis Cluster, the further ones as ?addr=host:port&addr=…, or
	// sentinels, with &master_set=name. Empty means redis://127.0.0.1:6379.
	RedisURL string
	// RedisURLs replaces RedisURL if the cells are spread over several standalone servers. All
	// replicas and nodes must list them in the same order.
	RedisURLs []string
	// RedisAccess holds the credentials, and tells how the servers prove who they are. The zero
	// value uses the URL alone.
	RedisAccess RedisAccess
	// Cells is the number of cells. All replicas and nodes must have the same. 0 means 1.
	Cells int
	// KeyPrefix is the first part of all keys. All replicas and nodes must have the same. Empty
	// means "scheduler".
	KeyPrefix string
	// HeartbeatInterval is how often nodes heartbeat. HeartbeatLimit is the silence after which
	// replicas take a node out, at least twice the interval. All replicas must have the same
	// values: Start refuses values that differ from a running replica's. 0 means 3 s, and 8 s.
	HeartbeatInterval, HeartbeatLimit time.Duration
	// MaxOutstanding is the number of jobs that may have no result yet. Further ones are refused as
	// overloaded. 0 means 10,000.
	MaxOutstanding int
	// DrainTimeout bounds Stop. Jobs get half of it for their results. 0 means 15 s.
	DrainTimeout time.Duration
	// ConfigFile is the configuration of the fleet's schedulers
	// (docs/reference/scheduler-config.md), for the settings that all replicas must share:
	// retention, limits of tenants, pools and more. The fields of this struct take precedence over
	// it. Its settings for listeners and logs are ignored. Empty means the defaults.
	ConfigFile string
	// Probes adds kinds of checks for the service registry, by the name that registrations have in
	// Check.Kind. All replicas share the checks, and a replica that does not know a kind leaves its
	// instances unchecked, so give the probes to all replicas. Probes may connect where
	// registry.checks.networks of ConfigFile allows.
	Probes map[string]Probe
	// ReplicaID names the replica in logs and in Redis. No two running replicas may have the same.
	// Empty means the host's name with a random suffix.
	ReplicaID string
	// Logger may be nil: then nothing is logged.
	Logger *zap.Logger
	// Registerer gets the metrics while the replica runs; nil exports none. Replicas that share one
	// need a label each: prometheus.WrapRegistererWith.
	Registerer prometheus.Registerer
}

// Probe checks an instance of the service registry once, and returns the reason if it is not well.
// address is the instance's host:port, and path comes from the registration. A probe opens
// connections only by dial, which keeps to the allowed networks, and returns soon after ctx has
// ended.
type Probe = centre.Probe

// RedisAccess holds credentials and certificates for connections to Redis.
type RedisAccess struct {
	// Username is the user of Redis' ACL, and PasswordFile holds the password. They replace the
	// ones in the URL. The file is read at each new connection.
	Username, PasswordFile string
	// SentinelUsername and SentinelPasswordFile are the same for sentinels.
	SentinelUsername, SentinelPasswordFile string
	// CAFile holds the certificates (PEM) that may sign the servers'; empty means the system's.
	// CertFile and KeyFile hold the process' own certificate, for servers that ask for one.
	// ServerName is the name in the servers' certificates; empty means the URL's host. All of them
	// apply to URLs that begin with rediss://.
	CAFile, CertFile, KeyFile, ServerName string
}

// load returns the configuration of the replica. The error is a *freeslot.Error.
func (c *Config) load() (config.Replica, error) {
	var settings []config.Flag
	set := func(name, path, value string) {
		if value != "" && value != "0" && value != "0s" {
			settings = append(settings, config.Flag{Name: name, Path: path, Value: value})
		}
	}
	set("redis_url", "redis.url", c.RedisURL)
	set("redis_urls", "redis.urls", strings.Join(c.RedisURLs, ","))
	a := &c.RedisAccess
	set("redis_access.username", "redis.username", a.Username)
	set("redis_access.password_file", "redis.password_file", a.PasswordFile)
	set("redis_access.sentinel_username", "redis.sentinel_username", a.SentinelUsername)
	set("redis_access.sentinel_password_file", "redis.sentinel_password_file", a.SentinelPasswordFile)
	set("redis_access.ca_file", "redis.tls.ca_file", a.CAFile)
	set("redis_access.cert_file", "redis.tls.cert_file", a.CertFile)
	set("redis_access.key_file", "redis.tls.key_file", a.KeyFile)
	set("redis_access.server_name", "redis.tls.server_name", a.ServerName)
	set("cells", "redis.cells", strconv.Itoa(c.Cells))
	set("key_prefix", "redis.key_prefix", c.KeyPrefix)
	set("heartbeat_interval", "heartbeat_interval", c.HeartbeatInterval.String())
	set("heartbeat_limit", "heartbeat_limit", c.HeartbeatLimit.String())
	set("drain_timeout", "drain_timeout", c.DrainTimeout.String())
	set("replica_id", "replica_id", c.ReplicaID)

	var bad freeslot.FieldErrors
	cfg, err := config.LoadReplica(config.Options{File: c.ConfigFile, Environ: []string{}, Flags: settings})
	if problems, ok := errors.AsType[config.Problems](err); ok {
		for _, p := range problems {
			bad.Addf(fieldOf(&p, settings), "%s", p.Message)
		}
	} else {
		bad.Add(err)
	}
	if c.Tenant != "" {
		bad.Add(freeslot.ValidateName("tenant", c.Tenant))
	}
	if c.MaxOutstanding < 0 {
		bad.Addf("max_outstanding", "is %d, expected a positive number, or 0 for the default", c.MaxOutstanding)
	}
	for _, kind := range slices.Sorted(maps.Keys(c.Probes)) {
		field := fmt.Sprintf("probes[%q]", kind)
		bad.Add(freeslot.ValidateName(field, kind))
		switch {
		case slices.Contains(centre.Kinds, kind):
			bad.Addf(field, "is a kind that every replica has, expected another name")
		case c.Probes[kind] == nil:
			bad.Addf(field, "is nil, expected a function")
		}
	}
	if c.MaxOutstanding > 0 {
		cfg.Limits.MaxOutstandingPerSession = c.MaxOutstanding
	}
	// These settings are for a scheduler: clients cannot reach this replica.
	cfg.Advertise, cfg.Tokens, cfg.Tracing.OTLPEndpoint = "", nil, ""
	return cfg, bad.Err()
}

// fieldOf returns the field of Config that a problem is about, or the key in the file.
func fieldOf(p *config.Problem, settings []config.Flag) string {
	for _, s := range settings {
		if s.Name == p.Source {
			return s.Name
		}
	}
	if p.Source != "" {
		return p.Path + " (" + p.Source + ")"
	}
	return p.Path
}
