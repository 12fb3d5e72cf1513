package config

import (
	"time"

	"github.com/freeslot/freeslot/internal/plural"
)

// LocklessCache is the section of the same name in earlier designs of the scheduler. A key of it
// works like the key that replaced it. A key that has no effect here, or another meaning, adds to
// [Replica.Warnings]. Nil means absent.
type LocklessCache struct {
	// With `false` nodes are chosen from the lock-based copy of the fleet, which the cache then
	// keeps current (docs/migration.md). `true` is the default.
	Enabled *bool `koanf:"enabled"`
	// Works as `redis.url`.
	RedisURL *string `koanf:"redis_url" secret:"true"`
	// No effect, and the replica warns: `redis.connections` has the number of connections.
	RedisPoolSize *int `koanf:"redis_pool_size"`
	// No effect, and the replica warns: a node stays in the cache until it falls silent, which
	// `heartbeat_limit` bounds.
	CacheTTLMS *int `koanf:"cache_ttl_ms"`
	// Works as `cache.version_check_timeout`, in milliseconds.
	VersionCheckTimeoutMS *int `koanf:"version_check_timeout_ms"`
	// Works as `cache.pubsub`.
	EnablePubSubInvalidation *bool `koanf:"enable_pubsub_invalidation"`
	// No effect, and the replica warns: the names of channels begin with `redis.key_prefix`.
	PubSubChannels []string `koanf:"pubsub_channels"`
	// Works as `cache.batch_refresh_size`.
	BatchRefreshSize *int `koanf:"batch_refresh_size"`
	// Works as `cache.batch_refresh_interval`, in milliseconds.
	BatchRefreshIntervalMS *int `koanf:"batch_refresh_interval_ms"`
	// With `true` the lock-based copy is kept current, but nodes are not chosen from it
	// (docs/migration.md).
	EnableLegacyWrite *bool `koanf:"enable_legacy_write"`
	// With `true` the lock-based copy is kept current and compared with the cache once a minute
	// (docs/migration.md). It copies no nodes, and the replica warns about that: use `schedctl
	// nodes import`.
	EnableDataSync *bool `koanf:"enable_data_sync"`
}

func (l *LocklessCache) resolve(r *Replica, isSet func(string) bool, p *Problems) {
	const at = "lockless_cache."
	follow(at+"redis_url", l.RedisURL, "redis.url", &r.Redis.URL, isSet, p)
	follow(at+"enable_pubsub_invalidation", l.EnablePubSubInvalidation, "cache.pubsub", &r.Cache.PubSub, isSet, p)
	follow(at+"batch_refresh_size", l.BatchRefreshSize, "cache.batch_refresh_size", &r.Cache.BatchRefreshSize, isSet, p)
	follow(
		at+"version_check_timeout_ms", milliseconds(l.VersionCheckTimeoutMS), "cache.version_check_timeout",
		&r.Cache.VersionCheckTimeout, isSet, p,
	)
	follow(
		at+"batch_refresh_interval_ms", milliseconds(l.BatchRefreshIntervalMS), "cache.batch_refresh_interval",
		&r.Cache.BatchRefreshInterval, isSet, p,
	)

	if l.RedisURL != nil && len(r.Redis.URLs) > 0 {
		p.Addf(at+"redis_url", "is set beside redis.urls, expected one of them")
	}
	r.Locked = l.locked()
	warn := func(key, format string, args ...any) { r.Warnings.Addf(at+key, format, args...) }
	if l.RedisPoolSize != nil {
		warn("redis_pool_size", "has no effect: all commands share %s to each server, "+
			"which redis.connections sets", plural.Of(r.Redis.Connections, "pipelined connection", "pipelined connections"))
	}
	if l.CacheTTLMS != nil {
		warn("cache_ttl_ms", "has no effect: a node stays in the cache until it falls silent for %s, "+
			"which heartbeat_limit sets", FormatDuration(r.HeartbeatLimit))
	}
	if l.PubSubChannels != nil {
		warn("pubsub_channels", "has no effect: the names of channels begin with %q, which redis.key_prefix sets",
			r.Redis.KeyPrefix)
	}
	if r.Locked.Verify {
		warn("enable_data_sync", "compares the lock-based picture with the cache once a minute, and copies no nodes: "+
			"schedctl nodes import does that")
	}
}

// Locked configures the lock-based copy of the fleet beside the cache. The zero value has none.
type Locked struct {
	// Enabled chooses nodes from it, not from the cache.
	Enabled bool
	// Mirror keeps it current. The others need Mirror and imply it.
	Mirror bool
	// Verify compares it with the cache once a minute.
	Verify bool
}

func (l *LocklessCache) locked() Locked {
	k := Locked{
		Enabled: l.Enabled != nil && !*l.Enabled,
		Verify:  l.EnableDataSync != nil && *l.EnableDataSync,
	}
	k.Mirror = k.Enabled || k.Verify || l.EnableLegacyWrite != nil && *l.EnableLegacyWrite
	return k
}

// follow lets an old name set the new key. It records a problem if the new key has another value.
func follow[T comparable](oldPath string, value *T, newPath string, dst *T, isSet func(string) bool, p *Problems) {
	switch {
	case value == nil:
	case isSet(newPath) && *dst != *value:
		p.Addf(oldPath, "contradicts %s, which is its new name: set only that", newPath)
	default:
		*dst = *value
	}
}

func milliseconds(n *int) *time.Duration {
	if n == nil {
		return nil
	}
	d := time.Duration(*n) * time.Millisecond
	return &d
}
