package registry

import "github.com/freeslot/freeslot/internal/script"

// Access lists what providers and consumers need in Redis, and what replicas need, which also check
// and clean up. A provider may clean up its own services. It may not set overrides or verdicts, or
// write documents.
var Access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleRegistry: {
		Scripts: []string{"register", "heartbeat", "deregister", "cleanup", "look", "changes", "load"},
		Commands: []string{
			"del", "exists", "hdel", "hexists", "hget", "hgetall", "hincrby", "hmget", "hset", "info", "persist", "pexpire",
			"sadd", "srem", "ssubscribe", "subscribe", "sunsubscribe", "time", "unsubscribe", "zadd", "zcard", "zcount",
			"zmscore", "zpopmin", "zrange", "zrangebyscore", "zrem", "zrevrangebyscore", "zscan", "zscore",
		},
		Publishes: true,
		Names:     names,
	},
	script.RoleReplica: {
		Commands: []string{
			"del", "exists", "hdel", "hexists", "hget", "hgetall", "hincrby", "hkeys", "hlen", "hmget", "hset", "hstrlen",
			"info", "persist",
			"pexpire", "sadd", "srem", "sscan", "ssubscribe", "subscribe", "sunsubscribe", "time", "unsubscribe", "zadd",
			"zcard",
			"zcount", "zmscore", "zpopmin", "zrange", "zrangebyscore", "zrem", "zrevrangebyscore", "zscan", "zscore",
		},
		Publishes: true,
	},
}}

// names keeps a provider away from the other keys of a scheduler with the same prefix.
func names(l script.Layout, _ string) script.Names {
	return script.Names{
		Keys: []string{
			l.Prefix + ":registry:service*", l.Prefix + ":registry:changes*", l.Prefix + ":registry:overrides*",
			l.Prefix + ":registry:checked*", l.Prefix + ":registry:doubts*",
		},
		Reads: []string{l.Prefix + ":registry:config*"},
		Channels: []string{
			l.Prefix + ":service_change:*", l.Prefix + ":service_metrics:*", l.Prefix + ":registry:config_change:*",
		},
	}
}
