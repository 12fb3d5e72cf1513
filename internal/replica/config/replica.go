package config

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/selection"
)

// DefaultListen is the address on which a replica serves HTTP and WebSocket unless configured
// otherwise.
const DefaultListen = "127.0.0.1:7480"

// DefaultTenant owns all jobs if no token is configured.
const DefaultTenant = "default"

// Replica is the configuration of one scheduler process.
type Replica struct {
	// `host:port` of HTTP and WebSocket. Anything but loopback needs `tokens` or
	// `tokens_file`, and `tls` or `behind_proxy`. Port 0 takes any free one.
	Listen string `koanf:"listen"`
	// Certificates of that listener. Without them it speaks plain HTTP.
	TLS ListenTLS `koanf:"tls"`
	// A proxy in front ends TLS, and other machines reach `listen` only through it. Without `tls`
	// and without this, a replica that listens beyond loopback logs `config.insecure`; a later
	// release refuses to start (`--strict` refuses now).
	BehindProxy bool `koanf:"behind_proxy"`
	// `host:port` of a listener for monitoring alone: `/metrics`, `/healthz` and `/readyz` in plain
	// HTTP, without a token. Unset: `/metrics` is at `listen`.
	MetricsListen string `koanf:"metrics_listen"`
	// Addresses and networks (`10.0.0.0/8`) of proxies whose `X-Forwarded-For`, or PROXY protocol,
	// names the sender, at `listen` and `gateway.listen`. The bounds by address then hold for the
	// sender. Name only proxies that set one of the two themselves.
	TrustedProxies []string `koanf:"trusted_proxies"`
	// The name of this process among the replicas. The default is the host's name with a random
	// suffix. No two replicas may share a name, so leave it unset in a shared file.
	ReplicaID string `koanf:"replica_id"`
	// The URL by which clients reach this replica, such as `http://10.0.0.5:7480`. With it the
	// replica is an instance of the service `freeslot-scheduler`, and in `GET /v1/replicas`. Unset:
	// in neither.
	Advertise string `koanf:"advertise"`
	// Where the shared state is.
	Redis Redis `koanf:"redis"`
	// The node cache of this replica.
	Cache Cache `koanf:"cache"`
	// What the agents are configured with. It is only compared with `heartbeat_limit`.
	HeartbeatInterval time.Duration `koanf:"heartbeat_interval"`
	// The silence after which a node is taken out and its jobs go to their next attempts. At least
	// twice `heartbeat_interval`, and the same in all replicas: `/readyz` and the log name replicas
	// that differ.
	HeartbeatLimit time.Duration `koanf:"heartbeat_limit"`
	// How long the record of a finished job can be read, 1s to 720h.
	Retention time.Duration `koanf:"retention"`
	// How many bytes of Redis' memory the records of finished jobs may take. Each cell has an equal
	// share of it. Beyond it the oldest records go first, however young they are. 0 is no limit,
	// otherwise at least 1 MiB (1048576) a cell. Leave room for the jobs that finish in a minute: a
	// result that goes before its client has read it is lost. All replicas should have the same;
	// the smallest value counts.
	RetentionBytes int `koanf:"retention_bytes"`
	// How long the record of a dead job can be read, 1s to 720h, so that Monday still shows what died
	// on Saturday. It is at least `retention`. With `retention_bytes` dead jobs take at most half of
	// that.
	DeadRetention time.Duration `koanf:"dead_retention"`
	// How many dead jobs each cell keeps, 1 to 1000000: beyond that the oldest go first. All replicas
	// should have the same; the smallest value counts.
	DeadLimit int `koanf:"dead_limit"`
	// How long after its submission an idempotency key names its job, 1s to 720h. A key is kept at
	// least until its job has ended. All replicas should have the same.
	IdempotencyRetention time.Duration `koanf:"idempotency_retention"`
	// How many jobs that fit the same nodes may wait in one cell, 1 to 10000000. Further ones are
	// refused as `overloaded`. All replicas should have the same.
	WaitingLimit int `koanf:"waiting_limit"`
	// With several cells: how long a cell must have had no node that fits before its waiting jobs
	// go to a cell that has one, 1s to 1h. With `0s` this replica begins no moves, but follows the
	// moves of other replicas.
	MoveGrace time.Duration `koanf:"move_grace"`
	// Which servers must have a job before it counts as accepted, and its end before clients get
	// it. `local` is Redis' master, `replicated` adds `acknowledge_replicas` of its replicas. All
	// schedulers should have the same. docs/design/failure.md has the promises.
	Acknowledge string `koanf:"acknowledge"`
	// With `acknowledge: replicated`, how many of Redis' replicas must have it, 1 to 16, for each
	// master.
	AcknowledgeReplicas int `koanf:"acknowledge_replicas"`
	// How long one call waits for Redis' replicas, 10ms to 3s. A submit is tried again until its
	// time is up (3 s), and is then refused as `unavailable`.
	AcknowledgeTimeout time.Duration `koanf:"acknowledge_timeout"`
	// What one replica accepts.
	Limits Limits `koanf:"limits"`
	// Who may call. Without any token only loopback is served, and every caller is an admin of the
	// tenant `default`. docs/security.md has more.
	Tokens []Token `koanf:"tokens"`
	// A file with further tokens, hashed, with names and expiries (docs/security.md). It is read
	// again when it changes.
	TokensFile string `koanf:"tokens_file"`
	// How callers are known, and what their roles mean.
	Auth Auth `koanf:"auth"`
	// The record of who changed what (docs/security.md).
	Audit Audit `koanf:"audit"`
	// From when on something is wrong, for `schedctl status` and `GET /v1/findings`.
	Findings Findings `koanf:"findings"`
	// The page for operators at `/console/` (docs/console.md).
	Console Console `koanf:"console"`
	// Tenants that differ from the others, by name: `{acme: {weight: 3}}`.
	Tenants map[string]Tenant `koanf:"tenants"`
	// What holds for each tenant that `tenants` does not name, with the same keys. Each such tenant
	// has limits and a rate of its own.
	TenantDefaults Tenant `koanf:"tenant_defaults"`
	// WebSocket sessions of clients.
	Session Session `koanf:"session"`
	// Agents that reach Redis through this replica (docs/gateway.md).
	Gateway Gateway `koanf:"gateway"`
	// Web origins (`https://app.example.com`), in addition to the replica's own, whose pages may
	// call from a browser.
	AllowedOrigins []string `koanf:"allowed_origins"`
	// Groups of nodes by what they offer, in order of preference. A pool without any rule has the
	// nodes that name it in their profile. They are in force until `schedctl config apply` puts
	// another configuration in force on all replicas (docs/pools.md).
	Pools selection.Pools `koanf:"pools"`
	// What starts and stops nodes.
	Autoscale Autoscale `koanf:"autoscale"`
	// Locks of applications (package `lock`, `schedctl lock run`), which operators see and revoke
	// through this replica.
	Locks Locks `koanf:"locks"`
	// Services of applications (package `registry`, `schedctl registry`), which this replica cleans
	// up, checks and shows.
	Registry Registry `koanf:"registry"`
	// Lists of ids, and where they are kept.
	Lists Lists `koanf:"lists"`
	// What is logged to standard error.
	Log Log `koanf:"log"`
	// Where OpenTelemetry spans go.
	Tracing Tracing `koanf:"tracing"`
	// How long an orderly stop may take before the rest is cut off. Sessions get half of it for
	// their answers, HTTP requests three quarters.
	DrainTimeout time.Duration `koanf:"drain_timeout"`
	// The names that earlier designs of the scheduler gave to some of the keys. If a key has no
	// effect here, or another meaning, the log names it (`config.replaced`) and the key that
	// replaced it.
	LocklessCache LocklessCache `koanf:"lockless_cache"`
	// Locked is resolved from LocklessCache.
	Locked Locked
	// Warnings names the keys of LocklessCache whose effect is not what an earlier design says.
	Warnings Problems
	// Insecure names what Validate let pass although a later release refuses it.
	Insecure Problems
	// ReadTokens returns Tokens as they are now, as [TokensReader] does; nil: only the files that they
	// name are read again.
	ReadTokens func() ([]Token, Problems, error)
}

// Selection returns the configuration by which nodes are chosen while there is none in Redis.
func (r *Replica) Selection() *selection.Config {
	return &selection.Config{Enabled: len(r.Pools) > 0, Pools: r.Pools}
}

// Redis holds the address of the shared state.
type Redis struct {
	// One server: `redis://[user:password@]host:port[/db]`, `rediss://` for TLS, `unix:///path`.
	// Or any nodes of a Redis Cluster, the further ones as `?addr=host:port&addr=host:port`. Or
	// sentinels, with `&master_set=name`.
	URL string `koanf:"url" secret:"true"`
	// In place of `redis.url`, several standalone servers: cell `i` lives on the server `i` modulo
	// their number. Neither their number nor their order can change later. A server that is down
	// takes only its own nodes out.
	URLs []string `koanf:"urls" secret:"true"`
	// The user of Redis' ACL, in place of one in the URL. `schedctl acl` makes one
	// (docs/security.md).
	Username string `koanf:"username"`
	// A file with the password, in place of one in the URL. It is read at each new connection.
	PasswordFile string `koanf:"password_file"`
	// The user of the sentinels, which have users of their own.
	SentinelUsername string `koanf:"sentinel_username"`
	// A file with that user's password.
	SentinelPasswordFile string `koanf:"sentinel_password_file"`
	// For URLs that begin with `rediss://`.
	TLS RedisTLS `koanf:"tls"`
	// How many cells there are, 1 to 64: the parts into which nodes and jobs are divided, each in
	// one hash slot. The first start fixes the number, and later starts with another one are
	// refused. Agents need the same. On a cluster set several for each master that it may ever
	// have.
	Cells int `koanf:"cells"`
	// The first part of every key and channel. It separates several systems on one Redis. Agents
	// need the same.
	KeyPrefix string `koanf:"key_prefix"`
	// Pipelined connections for commands to each server: 1, 2, 4 or 8. One is the fastest unless
	// payloads are large.
	Connections int `koanf:"connections"`
}

// Cache tunes the node cache.
type Cache struct {
	// How many nodes one call of a comparison with Redis reads, 1 to 1000.
	BatchRefreshSize int `koanf:"batch_refresh_size"`
	// How often the cache compares its revision with Redis', 10ms to 1m.
	BatchRefreshInterval time.Duration `koanf:"batch_refresh_interval"`
	// How long a checked read (`GET /v1/nodes/{id}?checked=true`) asks Redis before it serves the
	// cached state, 1ms to 10s.
	VersionCheckTimeout time.Duration `koanf:"version_check_timeout"`
	// With `false` the replica does not subscribe to node events, and follows changes by
	// comparison alone.
	PubSub bool `koanf:"pubsub"`
}

// Limits bound what one replica accepts.
type Limits struct {
	// The largest payload of a job, up to 16 MiB.
	MaxPayloadBytes int `koanf:"max_payload_bytes"`
	// The largest number of jobs in one WebSocket frame, up to 10000.
	MaxBatch int `koanf:"max_batch"`
	// The largest number of WebSocket sessions at a time. Further ones are refused.
	MaxSessions int `koanf:"max_sessions"`
	// The largest number of jobs of one session without a result. Further ones are refused as
	// `overloaded`.
	MaxOutstandingPerSession int `koanf:"max_outstanding_per_session"`
	// How many messages may wait for a slow client before it is cut off. At least three for each
	// job of a full batch.
	SessionQueue int `koanf:"session_queue"`
	// The same in bytes. At least twice `limits.max_payload_bytes`.
	SessionQueueBytes int `koanf:"session_queue_bytes"`
	// The largest number of HTTP submits that wait for their result at a time. Further ones are
	// refused as `overloaded`.
	MaxWaits int `koanf:"max_waits"`
	// The largest number of submits that wait for the next call to Redis. Further ones wait for
	// room until they time out.
	SubmitQueue int `koanf:"submit_queue"`
}

// Audit tunes the record of changes.
type Audit struct {
	// With `true` a change is refused as `unavailable` if Redis cannot record it. With `false` it is
	// made, and only the log has it.
	Required bool `koanf:"required"`
	// About how many changes are kept, 100 to 1000000, and as many by clients and tenant-operators.
	// 20000 take about 8 MB in the first cell.
	Entries int `koanf:"entries"`
}

// Findings holds the thresholds of findings.
type Findings struct {
	// How long the oldest job of a queue may have waited, 1s to 720h.
	OldestWait time.Duration `koanf:"oldest_wait"`
	// How long before its end a certificate or a token is a finding, 1h to 8760h.
	Expiry time.Duration `koanf:"expiry"`
	// From which share of its maxmemory on a server of Redis is a finding, up to 1; 0 for never. From
	// 0.8 on submits are refused.
	RedisMemory float64 `koanf:"redis_memory"`
	// From which share of its lease on a lock that was not renewed is a finding, more than 0.5 and up
	// to 1; 0 for never. Holders renew at half of the lease at the latest.
	LockUnrenewed float64 `koanf:"lock_unrenewed"`
	// For how long a schedule that left out runs is a finding, 1m to 720h; 0 for never.
	Missed time.Duration `koanf:"missed"`
	// For how long a dead job is a finding, 1m to 720h. `dead_retention` says how long it is kept.
	DeadJobs time.Duration `koanf:"dead_jobs"`
	// How often a node falls silent within an hour to be a finding of its own, 2 to 10.
	Flapping int `koanf:"flapping"`
	// How long a replica may follow an older configuration of pools than another one, 10s to 24h.
	ConfigBehind time.Duration `koanf:"config_behind"`
	// How long replicas may run different builds, as they do during an upgrade, 1m to 720h.
	Upgrade time.Duration `koanf:"upgrade"`
	// How long a run of a list's source may be due without a replica that begins it, 1m to 720h.
	SourceLate time.Duration `koanf:"source_late"`
	// How long a replica of Redis may not have told its master how far it is, 2s to 1h. It does so
	// each second.
	RedisLag time.Duration `koanf:"redis_lag"`
}

// Token lets a caller in.
type Token struct {
	// The secret itself. Set either this or `token_file`.
	Token string `koanf:"token" secret:"true"`
	// A file that holds the secret; white space around it does not count. It is read again when it
	// changes.
	TokenFile string `koanf:"token_file"`
	// The tenant that owns the caller's jobs.
	Tenant string `koanf:"tenant"`
	// `viewer`, `client`, `tenant-operator`, `operator` or `admin`. docs/security.md has the table of
	// what each may do.
	Role identity.Role `koanf:"role"`
}

// Auth tells what the roles of callers mean.
type Auth struct {
	// Whether an operator may also do what only an admin may. It ends as soon as this replica has
	// read a token of an admin, and then stays off until a restart.
	OperatorsAreAdmins bool `koanf:"operators_are_admins"`
	// Tokens that an OpenID provider has signed.
	OIDC OIDC `koanf:"oidc"`
	// Whether `/metrics` asks for a token, of a role that sees all tenants: `viewer`, `operator` or
	// `admin`.
	Metrics bool `koanf:"metrics"`
}

// Tenant holds the settings of one tenant.
type Tenant struct {
	// The tenant's share of the slots while jobs of several tenants and the same priority wait for
	// the same nodes, 1 to 1000; 1 unless set. The
	// configuration of the replica that takes a job counts.
	Weight *int `koanf:"weight"`
	// How many jobs of the tenant run at a time, at least the number of cells. Further ones wait
	// although slots are free. Each cell lets its share of the limit run. 0 is no limit.
	MaxRunning int `koanf:"max_running"`
	// How many jobs of the tenant wait for a slot, after a failure or for a time, at least the
	// number of cells. Further ones are refused as `overloaded`. Each cell has its share of the
	// limit. A job that comes back after a failure is never refused. 0 is no limit.
	MaxWaiting int `koanf:"max_waiting"`
	// How many jobs a second the tenant may submit, at all replicas together, 0.001 to 1000000.
	// Further ones are refused as `rate_limited` with `retry_after_ms`. 0 is no limit. A replica
	// loses what it has taken and not used within a second, up to a tenth of the rate. Jobs
	// that an operator submits again do not count. All replicas should have the same.
	SubmitRate float64 `koanf:"submit_rate"`
	// How many jobs the tenant may submit at once after a pause, 1 to 10000000. 0 is as many as
	// `submit_rate` allows in a second, and at least 1.
	SubmitBurst int `koanf:"submit_burst"`
	// The highest priority of the tenant's jobs, 0 to 9; 9 unless set. A job of a higher one is
	// refused as `invalid_argument`.
	MaxPriority *int `koanf:"max_priority"`
	// How many schedules the tenant has, 1 to 10000; 100 unless set. Further ones are refused as
	// `overloaded`. Runs of schedules count for `submit_rate`: a run that it does not allow yet is
	// late, and not lost.
	MaxSchedules int `koanf:"max_schedules"`
	// How many different requirements and services may have waiting jobs because a job of the tenant
	// came first, 1 to 1024; 64 unless set. A job that would make one more is refused as `overloaded`,
	// and one for later waits. While there is one tenant alone, by `tokens` and `tenants` and without
	// `tokens_file` and `auth.oidc`, nothing is refused for this. Where there are several, each also
	// has at most a quarter of the jobs for later.
	MaxKinds int `koanf:"max_kinds"`
	// How many bytes the tenant's schedules take together, mostly their payloads, up to 1 GiB;
	// 16 MiB unless set.
	MaxScheduleBytes int64 `koanf:"max_schedule_bytes"`
	// A chain of rules that decides about each job of the tenant before it is placed.
	Admission Admission `koanf:"admission"`
}

// Admission says which chain decides about the jobs of a tenant.
type Admission struct {
	// The name of the chain; empty is none. The lists that it asks should be held whole (`--whole`),
	// because a submit does not wait for Redis: for other lists, an id that may be in them is unknown.
	Chain string `koanf:"chain"`
	// What a decision does. `observe`, also if nothing is set: it is counted and recorded in the job,
	// and changes nothing. `enforce`: a job with the outcome `deny` is refused as `not_admitted`, and
	// a variant whose value has `pool` or `preferred_pool` sets these of the job.
	Mode string `koanf:"mode"`
	// What the chain decides about: `tenant`, also if nothing is set; `affinity_key`; or `label:NAME`,
	// the value of that label in the job's requirement.
	Subject string `koanf:"subject"`
	// What `enforce` does with a job whose outcome is unknown, also because the chain does not exist
	// or the replica has not loaded it: `admit`, also if nothing is set, or `refuse`.
	Unknown string `koanf:"unknown"`
}

// The values of Admission.
const (
	AdmissionObserve   = "observe"
	AdmissionEnforce   = "enforce"
	SubjectTenant      = "tenant"
	SubjectAffinityKey = "affinity_key"
	SubjectLabel       = "label:" // a prefix of the name
	UnknownAdmit       = "admit"
	UnknownRefuse      = "refuse"
)

// The values of Replica.Acknowledge.
const (
	// AcknowledgeLocal: Redis' master.
	AcknowledgeLocal = "local"
	// AcknowledgeReplicated: Redis' master and AcknowledgeReplicas of its replicas.
	AcknowledgeReplicated = "replicated"
)

// Tenant returns what is configured for a tenant. A zero field means the field's default.
func (r *Replica) Tenant(name string) Tenant {
	if t, named := r.Tenants[name]; named {
		return t
	}
	return r.TenantDefaults
}

// SeveralTenants reports whether more than one tenant may submit jobs. A file of tokens
// can name others later, and so can an issuer.
func (r *Replica) SeveralTenants() bool {
	if r.TokensFile != "" || r.Auth.OIDC.On() {
		return true
	}
	names := make(map[string]bool)
	for name := range r.Tenants {
		names[name] = true
	}
	for i := range r.Tokens {
		names[r.Tokens[i].Tenant] = true
	}
	return len(names) > 1
}

// DefaultMaxKinds is how many kinds of waiting jobs a tenant may make unless configured otherwise.
const DefaultMaxKinds = 64

// TenantWeight returns the weight of a tenant, 1 unless configured otherwise.
func (r *Replica) TenantWeight(name string) int {
	if w := r.Tenant(name).Weight; w != nil {
		return *w
	}
	return 1
}

// Log decides what is logged, and in which format.
type Log struct {
	// `debug`, `info`, `warn` or `error`. A scheduler logs an outage once for each cell and again
	// each minute (`redis.cell_lost`), and its end (`redis.cell_back`). Failures of single calls it
	// logs three times in ten seconds. An agent logs the end of each job with `debug`.
	Level string `koanf:"level"`
	// `json` or `console`.
	Format string `koanf:"format"`
}

// Locks tells which locks operators see.
type Locks struct {
	// The first part of the keys of locks, as in `lock.Options`. They are on the first of
	// `redis.urls`.
	KeyPrefix string `koanf:"key_prefix"`
}

// Registry tells what replicas do for the service registry. Its keys are on the first of
// `redis.urls`, below `redis.key_prefix`.
type Registry struct {
	// The part of the keys between `redis.key_prefix` and `registry`, as in `registry.Options`.
	// Services of different namespaces do not see each other.
	Namespace string `koanf:"namespace"`
	// Checks that replicas make of instances from outside.
	Checks RegistryChecks `koanf:"checks"`
	// The first version of the registry, beside which this one can run.
	V1 RegistryV1 `koanf:"v1"`
}

// Lists tells what replicas do for name lists. Their records and edits are on the first of
// `redis.urls`, below `redis.key_prefix`. So are the ids of lists that name no other server.
type Lists struct {
	// The folder of uploads and builds, which belongs to this replica alone; with it they outlive a
	// restart. It needs about three times the size of an upload. Empty: a folder for temporary
	// files, which is made when an upload or a build first needs it, and removed at the end.
	Dir string `koanf:"dir"`
	// Further servers for the ids, by name. All replicas must have the same.
	Servers map[string]ListServer `koanf:"servers"`
	// Where the ids of lists can come from, by name; `schedctl lists source set LIST NAME` gives a
	// list a source. Replicas without a source do not run it.
	Sources map[string]ListSource `koanf:"sources"`
	// Which changes wait until another admin approves them (docs/namelist.md). It is off while no
	// tokens are configured. All replicas should have the same.
	Approval ListApproval `koanf:"approval"`
}

// ListSource is where the ids of lists can come from.
type ListSource struct {
	// `http` gets a file, `postgres` runs a query, `redis` reads a key of another Redis, `file` reads
	// a file of this replica.
	Kind string `koanf:"kind"`
	// Of `http` the address of the file; of `postgres` the server, such as
	// `postgres://reader@db:5432/crm?sslmode=verify-full`; of `redis` the server, written like
	// `redis.url`.
	URL string `koanf:"url" secret:"true"`
	// A file that holds the server's password, or for `http` a bearer token. It is read for each run.
	PasswordFile string `koanf:"password_file"`
	// Authorities in PEM that may have signed the server's certificate, in place of the system's.
	CAFile string `koanf:"ca_file"`
	// Of `postgres`: a statement that reads. Its first column is the id; the second one, if there is
	// one, is the expiry: a timestamptz, or a number as in imports.
	Query string `koanf:"query"`
	// Of `redis`: the key of a set, a hash or a zset. The fields of a hash are its ids.
	Key string `koanf:"key"`
	// Of `redis`: whether the values of the hash, or the scores of the zset, are expiries. A score of
	// 0 is never.
	Expiry bool `koanf:"expiry"`
	// Of `file`: its absolute path.
	Path string `koanf:"path"`
	// Of `http` and `file`: `csv` or `txt`, also compressed by gzip. Empty is `csv`.
	Format string `koanf:"format"`
	// How long reading may take, 1s to 24h. 0s is 30m.
	Timeout time.Duration `koanf:"timeout"`
	// How many lines are read at most. 0 is 100000000.
	MaxRows int64 `koanf:"max_rows"`
	// How many bytes are read at most, up to 64 GiB. 0 is 16 GiB.
	MaxBytes int64 `koanf:"max_bytes"`
}

// WithDefaults returns the source with its defaults filled in.
func (s ListSource) WithDefaults() ListSource {
	s.Format = cmp.Or(s.Format, "csv")
	s.Timeout = cmp.Or(s.Timeout, 30*time.Minute)
	s.MaxRows = cmp.Or(s.MaxRows, 100_000_000)
	s.MaxBytes = cmp.Or(s.MaxBytes, 16<<30)
	return s
}

// ListApproval tells which changes of lists wait for approval.
type ListApproval struct {
	// Whether new lists wait. Lists that tenant-operators apply for always do.
	Creation bool `koanf:"creation"`
	// Whether deletions wait. Those of lists that serve too many ids for `over_ids` or `over_percent`
	// wait without it.
	Deletion bool `koanf:"deletion"`
	// Whether changes of chains wait.
	Chains bool `koanf:"chains"`
	// Edits and switches that change more ids than this wait, together with what was changed without
	// approval in the last 24 hours. 0: however many.
	OverIDs int64 `koanf:"over_ids"`
	// The same for a share of the serving version's ids, above 0 to 100. 0: however many.
	OverPercent float64 `koanf:"over_percent"`
	// Names of deny lists, with `*` for any text: their urgent edits do not wait, and are shown
	// among the requests.
	DenyLists []string `koanf:"deny_lists"`
}

// ListServer is a server that holds the ids of lists.
type ListServer struct {
	// The address, written like `redis.url`. A URL without user and password uses `redis`' user and
	// password.
	URL string `koanf:"url" secret:"true"`
	// How many bytes lists may take there. 0: as many as leave 30 % of maxmemory.
	MaxBytes int64 `koanf:"max_bytes"`
}

// RegistryV1 tells how replicas deal with the registry's first version.
type RegistryV1 struct {
	// Whether instances of the first version are copied into this one. Its keys must be on the
	// first of `redis.urls`, and the replica's user of Redis needs rights to them.
	Enabled bool `koanf:"enabled"`
	// The first part of the first version's keys. Empty, as by default there: keys begin with
	// `services:`.
	KeyPrefix string `koanf:"key_prefix"`
	// Whether instances of this version are written into the first version's keys, for its
	// consumers.
	WriteBack bool `koanf:"write_back"`
}

// RegistryChecks bounds where checks may connect.
type RegistryChecks struct {
	// Addresses that may be checked, such as `10.0.0.0/8`, after the resolution of names. Name the
	// networks of your instances: everyone who may register can have replicas connect there. Empty: no
	// checks are made.
	Networks []string `koanf:"networks"`
}

// Prefixes returns the networks, which must be valid.
func (c RegistryChecks) Prefixes() (out []netip.Prefix) {
	for _, n := range c.Networks {
		out = append(out, netip.MustParsePrefix(n))
	}
	return out
}

// Tracing decides where spans go.
type Tracing struct {
	// The URL of an OTLP/HTTP collector, such as `http://127.0.0.1:4318`. Tracing is off without
	// one.
	OTLPEndpoint string `koanf:"otlp_endpoint"`
	// The share of the traces begun here that is kept, 0 to 1. Traces begun by a caller keep the
	// caller's decision.
	SampleRatio float64 `koanf:"sample_ratio"`
}

// DefaultReplica returns the default configuration of a replica. ReplicaID differs in each call.
func DefaultReplica() Replica {
	return Replica{
		Listen:    DefaultListen,
		ReplicaID: newReplicaID(),
		Redis:     Redis{URL: "redis://127.0.0.1:6379", Cells: 1, KeyPrefix: defaultKeyPrefix, Connections: 1},
		Cache: Cache{
			BatchRefreshSize: 100, BatchRefreshInterval: time.Second, VersionCheckTimeout: 50 * time.Millisecond, PubSub: true,
		},
		HeartbeatInterval:    3 * time.Second,
		HeartbeatLimit:       8 * time.Second,
		Retention:            time.Hour,
		DeadRetention:        72 * time.Hour,
		DeadLimit:            10_000,
		IdempotencyRetention: 24 * time.Hour,
		WaitingLimit:         100_000,
		MoveGrace:            10 * time.Second,
		Acknowledge:          AcknowledgeLocal,
		AcknowledgeReplicas:  1,
		AcknowledgeTimeout:   time.Second,
		Locks:                Locks{KeyPrefix: "lock"},
		Auth:                 Auth{OperatorsAreAdmins: true, OIDC: defaultOIDC()},
		Audit:                Audit{Entries: audit.DefaultEntries},
		Findings: Findings{
			OldestWait: 5 * time.Minute, Expiry: 14 * 24 * time.Hour, RedisMemory: 0.7, LockUnrenewed: 0.75,
			Missed: 24 * time.Hour, DeadJobs: time.Hour, Flapping: 3, ConfigBehind: time.Minute, Upgrade: time.Hour,
			SourceLate: 5 * time.Minute, RedisLag: 5 * time.Second,
		},
		Autoscale: Autoscale{Exec: AutoscaleExec{
			MinNodes: 1, PassEnv: []string{"PATH", "HOME"}, Cooldown: 2 * time.Minute, Timeout: time.Minute,
		}},
		Console: Console{Enabled: true, MaxViewers: 64, Payloads: true},
		Gateway: Gateway{MaxAgents: DefaultMaxAgents, PingInterval: defaultPingInterval},
		Session: Session{PingInterval: defaultPingInterval},
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

// newReplicaID returns the host's name with a random suffix. It is readable, and different at each
// start, so that a replica never takes over the replies of a dead one.
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
