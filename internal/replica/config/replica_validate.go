package config

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/loopback"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/tokenfile"
)

// The bounds of the configured values.
const (
	maxConnections  = 8
	maxPayloadBytes = 16 << 20
	maxBatch        = 10_000
	maxCount        = 1_000_000
	maxQueueBytes   = 1 << 30
	maxTokenLength  = 512
	maxWaiting      = 10_000_000
	maxWeight       = 1000
	maxTenantLimit  = 10_000_000
	maxReplicas     = 16
	// Each cell has a share of retention_bytes, which must hold the records of at least a moment.
	minRetentionBytes = 1 << 20
	maxDeadLimit      = 1_000_000
	maxRetentionBytes = 1 << (bits.UintSize - 18) // more than any memory
	// messagesPerJob is the number of messages that a session sends about one job: accepted,
	// assigned, result.
	messagesPerJob = 3
)

// Resolve reads token files and follows the names of the lockless_cache section.
func (r *Replica) Resolve(isSet func(path string) bool, p *Problems) {
	r.LocklessCache.resolve(r, isSet, p)
	ResolveRedis(&r.Redis.URL, r.Redis.URLs, isSet, p)
	for i := range r.Tokens {
		t := &r.Tokens[i]
		if t.Role == "" {
			t.Role = identity.Client
		}
		at := element("tokens", i)
		switch {
		case t.Token == "" && t.TokenFile == "":
			p.Addf(at+".token", "is missing, expected token or token_file")
		case t.Token != "" && t.TokenFile != "":
			p.Addf(at+".token_file", "is set beside token, expected one of them")
		case t.TokenFile != "":
			t.Token = readToken(at+".token_file", t.TokenFile, p)
		}
	}
}

// readToken reads a secret and drops the white space around it.
func readToken(path, name string, p *Problems) string {
	data, err := ReadFile(name)
	token := strings.TrimSpace(string(data))
	if err == nil && token == "" {
		err = fmt.Errorf("is %q, which is empty, expected a file that holds the token", name)
	}
	p.Add(path, err)
	return token
}

func (r *Registry) validate(p *Problems) {
	if r.Namespace != "" {
		p.Name("registry.namespace", r.Namespace)
	}
	if strings.ContainsAny(r.V1.KeyPrefix, "{}") || strings.ContainsFunc(r.V1.KeyPrefix, unicode.IsControl) {
		p.Addf("registry.v1.key_prefix", "is %q, expected no braces and no control characters", r.V1.KeyPrefix)
	}
	if r.V1.WriteBack && !r.V1.Enabled {
		p.Addf("registry.v1.write_back", "is on, and registry.v1.enabled is off")
	}
	for i, n := range r.Checks.Networks {
		if _, err := netip.ParsePrefix(n); err != nil {
			p.Addf(fmt.Sprintf("registry.checks.networks[%d]", i), "is %q, expected a network such as 10.0.0.0/8", n)
		}
	}
}

func (l *Lists) validate(p *Problems) {
	if info, err := os.Stat(l.Dir); l.Dir != "" && err == nil && !info.IsDir() {
		p.Addf("lists.dir", "is %q, which is no folder", l.Dir)
	}
	if a := &l.Approval; a.OverIDs < 0 {
		p.Addf("lists.approval.over_ids", "is %d, expected 0 for however many, or more", a.OverIDs)
	}
	if a := &l.Approval; !(a.OverPercent >= 0 && a.OverPercent <= 100) {
		p.Addf("lists.approval.over_percent", "is %v, expected 0 to 100", a.OverPercent)
	}
	for i, pattern := range l.Approval.DenyLists {
		if !tokenfile.NamePattern(pattern) {
			at := fmt.Sprintf("lists.approval.deny_lists[%d]", i)
			p.Addf(at, "is %q, expected the name of a list, with * for any text", pattern)
		}
	}
	for name, s := range l.Sources {
		p.Name(join("lists.sources", name), name)
		s.validate(join("lists.sources", name), p)
	}
	for name, s := range l.Servers {
		at := join("lists.servers", name)
		p.Name(at, name)
		if s.URL == "" {
			p.Addf(join(at, "url"), "is missing, expected "+redisURLForm)
		} else {
			validateRedisURL(join(at, "url"), s.URL, p)
		}
		if s.MaxBytes < 0 {
			p.Addf(join(at, "max_bytes"), "is %d, expected 0 for as much as leaves 30 %% of maxmemory, or more", s.MaxBytes)
		}
	}
}

// kindKeys holds the keys of a source that belong to its kind, with whether it needs them.
var kindKeys = map[string]map[string]bool{
	"http":     {"url": true, "password_file": false, "ca_file": false, "format": false},
	"postgres": {"url": true, "password_file": false, "ca_file": false, "query": true},
	"redis":    {"url": true, "password_file": false, "ca_file": false, "key": true, "expiry": false},
	"file":     {"path": true, "format": false},
}

func (s *ListSource) validate(at string, p *Problems) {
	keys, ok := kindKeys[s.Kind]
	if !ok {
		p.OneOf(join(at, "kind"), s.Kind, "http", "postgres", "redis", "file")
		return
	}
	expiry := ""
	if s.Expiry {
		expiry = "true"
	}
	for name, value := range map[string]string{
		"url": s.URL, "password_file": s.PasswordFile, "ca_file": s.CAFile, "query": s.Query, "key": s.Key, "expiry": expiry,
		"path": s.Path, "format": s.Format,
	} {
		needed, known := keys[name]
		switch {
		case value != "" && !known:
			p.Addf(join(at, name), "does not belong to a source of kind %s", s.Kind)
		case value == "" && needed:
			p.Addf(join(at, name), "is missing for a source of kind %s", s.Kind)
		}
	}
	s.validateAddress(at, p)
	full := s.WithDefaults()
	p.OneOf(join(at, "format"), full.Format, "csv", "txt")
	p.DurationBetween(join(at, "timeout"), full.Timeout, time.Second, 24*time.Hour)
	if full.MaxRows < 1 {
		p.Addf(join(at, "max_rows"), "is %d, expected 1 or more, or 0 for 100000000", s.MaxRows)
	}
	if full.MaxBytes < 1 || full.MaxBytes > 64<<30 {
		p.Addf(join(at, "max_bytes"), "is %d, expected 1 to %d (64 GiB), or 0 for 16 GiB", s.MaxBytes, int64(64)<<30)
	}
}

func (s *ListSource) validateAddress(at string, p *Problems) {
	if s.Path != "" && !filepath.IsAbs(s.Path) {
		p.Addf(join(at, "path"), "is %q, expected an absolute path", s.Path)
	}
	if s.URL == "" {
		return
	}
	schemes := map[string][]string{"http": {"http", "https"}, "postgres": {"postgres", "postgresql"}}[s.Kind]
	if s.Kind == "redis" {
		validateRedisURL(join(at, "url"), s.URL, p)
		return
	}
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme):
		p.Addf(join(at, "url"), "is no address that begins with %s://", schemes[0])
	case s.Kind == "postgres" && s.CAFile != "" && !strings.HasPrefix(u.Query().Get("sslmode"), "verify-"):
		p.Addf(join(at, "url"), "has a ca_file and no sslmode=verify-full, so no certificate would be checked")
	case s.Kind == "http" && u.User != nil:
		p.Addf(join(at, "url"), "has a user, expected a bearer token in password_file")
	case s.Kind == "http" && s.PasswordFile != "" && u.Scheme != "https" && !loopback.Is(u.Hostname()):
		p.Addf(join(at, "url"), "would carry the token of password_file in the clear, expected https")
	}
}

// Validate records every value and every combination that cannot be used.
func (r *Replica) Validate(p *Problems) {
	r.Insecure = nil
	r.validateListen(p)
	p.Name("replica_id", r.ReplicaID)
	if _, _, err := r.Advertised(); err != nil {
		p.Addf("advertise", "is %q, expected a URL with a port such as http://10.0.0.5:7480", r.Advertise)
	} else if r.TLS.CertFile != "" && strings.HasPrefix(r.Advertise, "http:") {
		p.Addf("advertise", "is %q, and tls is set, expected a URL that begins with https://", r.Advertise)
	}
	r.Redis.validate(p)
	p.Name("locks.key_prefix", r.Locks.KeyPrefix)
	r.Registry.validate(p)
	r.Lists.validate(p)
	r.Cache.validate(p)
	r.validateTimes(p)
	p.Between("waiting_limit", r.WaitingLimit, 1, maxWaiting)
	p.OneOf("acknowledge", r.Acknowledge, AcknowledgeLocal, AcknowledgeReplicated)
	p.Between("acknowledge_replicas", r.AcknowledgeReplicas, 1, maxReplicas)
	// A submit is tried for 3 s.
	p.DurationBetween("acknowledge_timeout", r.AcknowledgeTimeout, 10*time.Millisecond, 3*time.Second)
	r.Limits.validate(p)
	r.validateTokens(p)
	r.Auth.OIDC.validate(p)
	p.DurationBetween("session.ping_interval", r.Session.PingInterval, minPingInterval, maxPingInterval)
	r.Gateway.validate(r, p)
	for i, text := range r.TrustedProxies {
		if _, err := network(text); err != nil {
			p.Addf(element("trusted_proxies", i), "is %.64q, expected an address or a network, such as 10.0.0.0/8", text)
		}
	}
	r.validateTenants(p)
	for i, origin := range r.AllowedOrigins {
		validateOrigin(element("allowed_origins", i), origin, p)
	}
	r.validatePools(p)
	r.Log.Validate(p)
	r.Tracing.Validate(p)
}

// Advertised returns host and port of Advertise; both are zero without one.
func (r *Replica) Advertised() (host string, port int, err error) {
	if r.Advertise == "" {
		return "", 0, nil
	}
	u, err := url.Parse(r.Advertise)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(u.Port())
	if err != nil || port < 1 || port > 65535 || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", 0, errors.New("no URL of a replica")
	}
	return u.Hostname(), port, nil
}

func (c *Redis) validate(p *Problems) {
	ValidateRedis(c.URL, c.URLs, c.Cells, p)
	ValidateRedisAccess(c.Access(), c.URL, c.URLs, p)
	p.Name("redis.key_prefix", c.KeyPrefix)
	if c.Connections < 1 || c.Connections > maxConnections || bits.OnesCount(uint(c.Connections)) != 1 {
		p.Addf("redis.connections", "is %d, expected 1, 2, 4 or 8", c.Connections)
	}
}

func (c *Cache) validate(p *Problems) {
	p.Between("cache.batch_refresh_size", c.BatchRefreshSize, 1, 1000)
	p.DurationBetween("cache.batch_refresh_interval", c.BatchRefreshInterval, 10*time.Millisecond, time.Minute)
	p.DurationBetween("cache.version_check_timeout", c.VersionCheckTimeout, time.Millisecond, 10*time.Second)
}

func (r *Replica) validateTimes(p *Problems) {
	p.DurationBetween("heartbeat_interval", r.HeartbeatInterval, 100*time.Millisecond, 10*time.Minute)
	p.DurationBetween("heartbeat_limit", r.HeartbeatLimit, 200*time.Millisecond, time.Hour)
	if r.HeartbeatLimit < 2*r.HeartbeatInterval && !p.Has("heartbeat_limit") && !p.Has("heartbeat_interval") {
		p.Addf("heartbeat_limit",
			"is %s, expected at least twice heartbeat_interval (%s): one late heartbeat would cost a healthy node its jobs",
			FormatDuration(r.HeartbeatLimit), FormatDuration(r.HeartbeatInterval))
	}
	p.DurationBetween("retention", r.Retention, time.Second, 30*24*time.Hour)
	if least := minRetentionBytes * max(r.Redis.Cells, 1); r.RetentionBytes != 0 && !p.Has("retention_bytes") &&
		!p.Has("redis.cells") &&
		(r.RetentionBytes < least || r.RetentionBytes > maxRetentionBytes) {
		p.Addf(
			"retention_bytes", "is %d, expected 0 for no limit, or %d (1 MiB for each of the %d cells) to %d", r.RetentionBytes,
			least, max(r.Redis.Cells, 1), maxRetentionBytes,
		)
	}
	p.DurationBetween("dead_retention", r.DeadRetention, time.Second, 30*24*time.Hour)
	p.Between("dead_limit", r.DeadLimit, 1, maxDeadLimit)
	p.DurationBetween("idempotency_retention", r.IdempotencyRetention, time.Second, 30*24*time.Hour)
	if r.MoveGrace != 0 && (r.MoveGrace < time.Second || r.MoveGrace > time.Hour) {
		p.Addf("move_grace", "is %s, expected 1s to 1h, or 0s to begin no moves", FormatDuration(r.MoveGrace))
	}
	p.Between("audit.entries", r.Audit.Entries, 100, 1_000_000)
	r.Console.validate(p)
	r.Findings.validate(p)
	r.Autoscale.Exec.validate(p)
	p.DurationBetween("drain_timeout", r.DrainTimeout, 100*time.Millisecond, time.Hour)
}

func (f *Findings) validate(p *Problems) {
	const month = 30 * 24 * time.Hour
	p.DurationBetween("findings.oldest_wait", f.OldestWait, time.Second, month)
	p.DurationBetween("findings.expiry", f.Expiry, time.Hour, 365*24*time.Hour)
	if m := f.RedisMemory; m < 0 || m > 1 {
		p.Addf("findings.redis_memory", "is %v, expected 0 to 1", m)
	}
	if share := f.LockUnrenewed; share != 0 && (share <= 0.5 || share > 1) {
		p.Addf("findings.lock_unrenewed", "is %v, expected 0, or more than 0.5 and up to 1", share)
	}
	if f.Missed != 0 && (f.Missed < time.Minute || f.Missed > month) {
		p.Addf("findings.missed", "is %s, expected 1m to 720h, or 0s for never", FormatDuration(f.Missed))
	}
	p.DurationBetween("findings.dead_jobs", f.DeadJobs, time.Minute, month)
	p.Between("findings.flapping", f.Flapping, 2, 10)
	p.DurationBetween("findings.config_behind", f.ConfigBehind, 10*time.Second, 24*time.Hour)
	p.DurationBetween("findings.upgrade", f.Upgrade, time.Minute, month)
	p.DurationBetween("findings.source_late", f.SourceLate, time.Minute, month)
	p.DurationBetween("findings.redis_lag", f.RedisLag, 2*time.Second, time.Hour)
}

func (l *Limits) validate(p *Problems) {
	p.Between("limits.max_payload_bytes", l.MaxPayloadBytes, 1, maxPayloadBytes)
	p.Between("limits.max_batch", l.MaxBatch, 1, maxBatch)
	p.Between("limits.max_sessions", l.MaxSessions, 1, maxCount)
	p.Between("limits.max_outstanding_per_session", l.MaxOutstandingPerSession, 1, maxCount)
	p.Between("limits.session_queue", l.SessionQueue, 1, maxCount)
	p.Between("limits.session_queue_bytes", l.SessionQueueBytes, 1<<10, maxQueueBytes)
	p.Between("limits.max_waits", l.MaxWaits, 1, maxCount)
	p.Between("limits.submit_queue", l.SubmitQueue, 1, maxCount)
	if p.Has("limits") {
		return
	}
	if need := messagesPerJob * l.MaxBatch; l.SessionQueue < need {
		p.Addf("limits.session_queue",
			"is %d, expected at least %d: %d messages for each job of a batch of limits.max_batch (%d)",
			l.SessionQueue, need, messagesPerJob, l.MaxBatch)
	}
	if l.SessionQueueBytes < 2*l.MaxPayloadBytes {
		p.Addf("limits.session_queue_bytes",
			"is %d, expected at least twice limits.max_payload_bytes (%d): one large result would cut its client off",
			l.SessionQueueBytes, l.MaxPayloadBytes)
	}
	if l.MaxBatch > l.MaxOutstandingPerSession {
		p.Addf("limits.max_batch",
			"is %d, expected at most limits.max_outstanding_per_session (%d): no session could ever submit a full batch",
			l.MaxBatch, l.MaxOutstandingPerSession)
	}
}

func (r *Replica) validateTokens(p *Problems) {
	if r.TokensFile != "" {
		_, err := ReadFile(r.TokensFile)
		p.Add("tokens_file", err)
	}
	seen := make(map[string]int, len(r.Tokens))
	for i, t := range r.Tokens {
		at := element("tokens", i)
		if t.Token != "" && !usableToken(t.Token) {
			p.Addf(
				at+".token", "cannot be sent in a header, expected at most %d letters, digits and punctuation, without spaces",
				maxTokenLength,
			)
		}
		if first, ok := seen[t.Token]; ok && t.Token != "" {
			p.Addf(at+".token", "is also the token of tokens[%d], expected each token once", first)
		} else {
			seen[t.Token] = i
		}
		p.Name(at+".tenant", t.Tenant)
		p.OneOf(at+".role", string(t.Role), identity.RoleNames()...)
	}
}

func (r *Replica) validateTenants(p *Problems) {
	for name, t := range r.Tenants {
		at := join("tenants", name)
		p.Name(at, name)
		r.validateTenant(at, &t, p)
	}
	r.validateTenant("tenant_defaults", &r.TenantDefaults, p)
}

func (r *Replica) validateTenant(at string, t *Tenant, p *Problems) {
	if t.Weight != nil && !p.Has(join(at, "weight")) {
		p.Between(join(at, "weight"), *t.Weight, 1, maxWeight)
	}
	r.validateLimit(join(at, "max_running"), t.MaxRunning, p)
	r.validateLimit(join(at, "max_waiting"), t.MaxWaiting, p)
	t.validateRate(at, p)
	if t.MaxPriority != nil && !p.Has(join(at, "max_priority")) {
		p.Between(join(at, "max_priority"), *t.MaxPriority, 0, freeslot.MaxPriority)
	}
	if t.MaxSchedules != 0 {
		p.Between(join(at, "max_schedules"), t.MaxSchedules, 1, 10_000)
	}
	if t.MaxKinds != 0 {
		p.Between(join(at, "max_kinds"), t.MaxKinds, 1, 1024)
	}
	t.Admission.validate(join(at, "admission"), p)
	if t.MaxScheduleBytes < 0 || t.MaxScheduleBytes > 1<<30 {
		p.Addf(join(at, "max_schedule_bytes"), "is %d, expected up to %d, or 0 for the default", t.MaxScheduleBytes, 1<<30)
	}
}

func (a *Admission) validate(at string, p *Problems) {
	if a.Chain == "" {
		for field, value := range map[string]string{"mode": a.Mode, "subject": a.Subject, "unknown": a.Unknown} {
			if value != "" {
				p.Addf(join(at, field), "is %q without a chain, expected both or neither", value)
			}
		}
		return
	}
	if p.Coded(join(at, "chain"), freeslot.ValidateName(join(at, "chain"), a.Chain)); strings.Contains(a.Chain, "_") {
		p.Addf(join(at, "chain"), "is %q, expected the name of a chain, which has no _", a.Chain)
	}
	p.OneOf(join(at, "mode"), cmp.Or(a.Mode, AdmissionObserve), AdmissionObserve, AdmissionEnforce)
	p.OneOf(join(at, "unknown"), cmp.Or(a.Unknown, UnknownAdmit), UnknownAdmit, UnknownRefuse)
	if label, ok := strings.CutPrefix(a.Subject, SubjectLabel); ok {
		p.Name(join(at, "subject"), label)
	} else {
		p.OneOf(join(at, "subject"), cmp.Or(a.Subject, SubjectTenant), SubjectTenant, SubjectAffinityKey, "label:NAME")
	}
}

// validateLimit checks a limit. Each cell's share must be at least one job.
func (r *Replica) validateLimit(at string, limit int, p *Problems) {
	switch {
	case limit == 0 || p.Has(at) || p.Has("redis.cells"):
	case limit < r.Redis.Cells && r.Redis.Cells > 1:
		p.Addf(at, "is %d, expected 0 for no limit, or at least %d, the number of cells", limit, r.Redis.Cells)
	default:
		p.Between(at, limit, 0, maxTenantLimit)
	}
}

func usableToken(s string) bool {
	return len(s) <= maxTokenLength && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func validateOrigin(path, origin string, p *Problems) {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != origin {
		p.Addf(path, "is %q, expected an origin such as https://app.example.com, without a path", origin)
	}
}

func (r *Replica) validatePools(p *Problems) {
	if len(r.Pools) > selection.MaxConfiguredPools {
		p.Addf("pools", "has %d entries, expected at most %d", len(r.Pools), selection.MaxConfiguredPools)
		return
	}
	for i := range r.Pools {
		// One pool at a time, for the first bad field of each.
		if found := r.Pools[i : i+1].Validate("pools"); len(found) > 0 {
			p.Field(element("pools", i)+strings.TrimPrefix(found[0].Field, "pools[0]"), found[0])
		}
	}
	p.Once("pools", "id", len(r.Pools), func(i int) string { return r.Pools[i].ID })
}

// Validate records what is wrong in the section log.
func (l *Log) Validate(p *Problems) {
	p.OneOf("log.level", l.Level, "debug", "info", "warn", "error")
	p.OneOf("log.format", l.Format, "json", "console")
}

// Validate records what is wrong in the section tracing.
func (t *Tracing) Validate(p *Problems) {
	if t.OTLPEndpoint != "" {
		u, err := url.Parse(t.OTLPEndpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			p.Addf("tracing.otlp_endpoint", "is %q, expected a URL such as http://127.0.0.1:4318", t.OTLPEndpoint)
		}
	}
	if t.SampleRatio < 0 || t.SampleRatio > 1 {
		p.Addf("tracing.sample_ratio", "is %v, expected 0 to 1", t.SampleRatio)
	}
}
