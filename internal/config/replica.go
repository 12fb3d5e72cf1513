package config

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

// DefaultListen is where a replica serves HTTP and WebSocket unless configured.
const DefaultListen = "127.0.0.1:7480"

// DefaultTenant is whose jobs they are when no token is configured.
const DefaultTenant = "default"

// Replica is the configuration of one scheduler process.
type Replica struct {
	// Listen is host:port of the HTTP and WebSocket listener.
	Listen string `koanf:"listen"`
	// ReplicaID names this process among the replicas; no two may share it.
	ReplicaID string `koanf:"replica_id"`
	Redis     Redis  `koanf:"redis"`
	Cache     Cache  `koanf:"cache"`
	// HeartbeatInterval is what the agents are configured with; it is only
	// compared with HeartbeatLimit.
	HeartbeatInterval time.Duration `koanf:"heartbeat_interval"`
	// HeartbeatLimit is the silence after which a node gets no more jobs.
	HeartbeatLimit time.Duration `koanf:"heartbeat_limit"`
	// Retention is how long the record of a finished job is kept.
	Retention time.Duration `koanf:"retention"`
	// RetentionBytes is how many bytes the records of finished jobs may take, all cells
	// together. 0 is no limit.
	RetentionBytes int `koanf:"retention_bytes"`
	// IdempotencyRetention is how long an idempotency key names its job.
	IdempotencyRetention time.Duration `koanf:"idempotency_retention"`
	// WaitingLimit is how many jobs of one class may wait in a cell.
	WaitingLimit int `koanf:"waiting_limit"`
	// MoveGrace is how long a cell must have been without a node that fits before the jobs that
	// wait for one go to another cell; 0 is never.
	MoveGrace time.Duration `koanf:"move_grace"`
	// Acknowledge is whose having a job makes it accepted: AcknowledgeLocal or AcknowledgeReplicated.
	Acknowledge string `koanf:"acknowledge"`
	// AcknowledgeReplicas is how many of Redis' replicas must have it at AcknowledgeReplicated,
	// and AcknowledgeTimeout how long one call waits for them.
	AcknowledgeReplicas int           `koanf:"acknowledge_replicas"`
	AcknowledgeTimeout  time.Duration `koanf:"acknowledge_timeout"`
	Limits              Limits        `koanf:"limits"`
	// Tokens are the callers that are let in. Without any only loopback is
	// served, and every caller is an operator of tenant DefaultTenant.
	Tokens []Token `koanf:"tokens"`
	// Tenants are those that differ from the others, by name.
	Tenants map[string]Tenant `koanf:"tenants"`
	// AllowedOrigins are the web origins, besides the replica's own, whose pages
	// may call it from a browser.
	AllowedOrigins []string `koanf:"allowed_origins"`
	// Pools are ordered by preference.
	Pools   selection.Pools `koanf:"pools"`
	Log     Log             `koanf:"log"`
	Tracing Tracing         `koanf:"tracing"`
	// DrainTimeout bounds an orderly stop.
	DrainTimeout time.Duration `koanf:"drain_timeout"`
	// LocklessCache has the names that earlier designs gave to some keys.
	LocklessCache LocklessCache `koanf:"lockless_cache"`
	// Locked is resolved from LocklessCache.
	Locked Locked
}

// Redis says where the shared state is.
type Redis struct {
	// URL is one server, sentinels or a cluster; empty when URLs are set.
	URL string `koanf:"url" secret:"true"`
	// URLs are several standalone servers: cell i lives on URLs[i mod len(URLs)].
	URLs []string `koanf:"urls" secret:"true"`
	// Username and PasswordFile are the user to connect as, in place of one in the URL; see [redisclient.Access],
	// as for the three that follow.
	Username             string   `koanf:"username"`
	PasswordFile         string   `koanf:"password_file"`
	SentinelUsername     string   `koanf:"sentinel_username"`
	SentinelPasswordFile string   `koanf:"sentinel_password_file"`
	TLS                  RedisTLS `koanf:"tls"`
	// Cells is how many cells there are; it is fixed by the first start.
	Cells     int    `koanf:"cells"`
	KeyPrefix string `koanf:"key_prefix"`
	// Connections is how many pipelined connections to each server: 1, 2, 4 or 8.
	Connections int `koanf:"connections"`
}

// Cache tunes the node cache.
type Cache struct {
	BatchRefreshSize     int           `koanf:"batch_refresh_size"`
	BatchRefreshInterval time.Duration `koanf:"batch_refresh_interval"`
	// VersionCheckTimeout bounds a checked read; after it the cached value is served.
	VersionCheckTimeout time.Duration `koanf:"version_check_timeout"`
	// PubSub is false to follow changes by periodic refresh alone.
	PubSub bool `koanf:"pubsub"`
}

// Limits bound what one replica accepts.
type Limits struct {
	MaxPayloadBytes int `koanf:"max_payload_bytes"`
	MaxBatch        int `koanf:"max_batch"`
	MaxSessions     int `koanf:"max_sessions"`
	// MaxOutstandingPerSession is how many jobs of one session may be without a result.
	MaxOutstandingPerSession int `koanf:"max_outstanding_per_session"`
	// SessionQueue and SessionQueueBytes bound what may wait for a slow client
	// before it is cut off.
	SessionQueue      int `koanf:"session_queue"`
	SessionQueueBytes int `koanf:"session_queue_bytes"`
	// MaxWaits is how many HTTP submits may wait for their result at a time.
	MaxWaits int `koanf:"max_waits"`
	// SubmitQueue is how many submits may wait for the next call to Redis.
	SubmitQueue int `koanf:"submit_queue"`
}

// Role is what a token allows.
type Role string

// The roles.
const (
	// RoleClient: submit, and see and cancel the jobs of its own tenant.
	RoleClient Role = "client"
	// RoleOperator: besides, see and cancel the jobs of every tenant, and see the nodes.
	RoleOperator Role = "operator"
)

// Token lets a caller in.
type Token struct {
	// Token is the secret itself; TokenFile is a file that holds it. Exactly one is set.
	Token     string `koanf:"token" secret:"true"`
	TokenFile string `koanf:"token_file"`
	Tenant    string `koanf:"tenant"`
	// Role is RoleClient unless configured.
	Role Role `koanf:"role"`
}

// Tenant is how the jobs of one tenant are treated.
type Tenant struct {
	// Weight is the tenant's share of the slots while jobs of several tenants wait for
	// the same nodes; nil means 1.
	Weight *int `koanf:"weight"`
	// MaxRunning is how many jobs of the tenant may run at a time, and MaxWaiting how many may wait. 0 is
	// no limit.
	MaxRunning int `koanf:"max_running"`
	MaxWaiting int `koanf:"max_waiting"`
	// SubmitRate is how many jobs a second the tenant may submit, at all replicas together. 0 is
	// no limit. SubmitBurst is how many at once after a pause; 0 means what SubmitRate says,
	// and 1 at least.
	SubmitRate  float64 `koanf:"submit_rate"`
	SubmitBurst int     `koanf:"submit_burst"`
}

// The values of Replica.Acknowledge.
const (
	// AcknowledgeLocal: Redis' master.
	AcknowledgeLocal = "local"
	// AcknowledgeReplicated: as many of its replicas besides as AcknowledgeReplicas says.
	AcknowledgeReplicated = "replicated"
)

// TenantWeight is the weight of a tenant, 1 unless configured.
func (r *Replica) TenantWeight(name string) int {
	if w := r.Tenants[name].Weight; w != nil {
		return *w
	}
	return 1
}

// Log says what is logged and how.
type Log struct {
	// Level is debug, info, warn or error.
	Level string `koanf:"level"`
	// Format is json or console.
	Format string `koanf:"format"`
}

// Tracing says where spans go.
type Tracing struct {
	// OTLPEndpoint is the URL of an OTLP/HTTP collector; empty turns tracing off.
	OTLPEndpoint string `koanf:"otlp_endpoint"`
	// SampleRatio is the share of traces begun here that is kept, 0 to 1. Traces
	// begun by the caller keep the caller's decision.
	SampleRatio float64 `koanf:"sample_ratio"`
}

// DefaultReplica is the configuration of a replica that nobody configured.
// ReplicaID differs in each call.
func DefaultReplica() Replica {
	return Replica{
		Listen:               DefaultListen,
		ReplicaID:            newReplicaID(),
		Redis:                Redis{URL: "redis://127.0.0.1:6379", Cells: 1, KeyPrefix: defaultKeyPrefix, Connections: 1},
		Cache:                Cache{BatchRefreshSize: 100, BatchRefreshInterval: time.Second, VersionCheckTimeout: 50 * time.Millisecond, PubSub: true},
		HeartbeatInterval:    3 * time.Second,
		HeartbeatLimit:       8 * time.Second,
		Retention:            time.Hour,
		IdempotencyRetention: 24 * time.Hour,
		WaitingLimit:         100_000,
		MoveGrace:            10 * time.Second,
		Acknowledge:          AcknowledgeLocal,
		AcknowledgeReplicas:  1,
		AcknowledgeTimeout:   time.Second,
		Limits: Limits{
			MaxPayloadBytes:          freeslot.DefaultMaxPayloadBytes,
			MaxBatch:                 1000,
			MaxSessions:              10_000,
			MaxOutstandingPerSession: 10_000,
			SessionQueue:             16 << 10,
			SessionQueueBytes:        16 << 20,
			MaxWaits:                 10_000,
			SubmitQueue:              4096,
		},
		Log:          Log{Level: "info", Format: "json"},
		Tracing:      Tracing{SampleRatio: 0.1},
		DrainTimeout: 15 * time.Second,
	}
}

// LoadReplica reads the configuration of a replica. The error is [Problems].
func LoadReplica(opts Options) (Replica, error) {
	return Load(DefaultReplica(), opts)
}

// newReplicaID is the host's name with a random suffix: readable, and fresh at
// each start, so that a replica never takes over the replies of a dead one.
func newReplicaID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "replica"
	}
	host = strings.TrimLeft(strings.Map(func(r rune) rune {
		if freeslot.ValidateName("", "x"+string(r)) != nil {
			return '-'
		}
		return r
	}, host), "-._")
	if host == "" {
		host = "replica"
	}
	var suffix [3]byte
	rand.Read(suffix[:])
	return host[:min(len(host), freeslot.MaxNameLength-7)] + "-" + hex.EncodeToString(suffix[:])
}
