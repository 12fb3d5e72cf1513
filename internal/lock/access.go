package lock

import "github.com/freeslot/freeslot/internal/script"

var holding = script.Needs{
	Scripts: []string{"acquire", "note", "release", "renew"},
	Commands: []string{
		"del", "exists", "get", "hmget", "hset", "pexpire", "pttl", "publish", "set", "time",
		"zadd", "zcard", "zrange", "zrem", "zremrangebyscore", "zscore",
	},
	Publishes: true,
}

// Access lists what a process that takes locks needs in Redis. Importers need it, too, because they
// import nodes under a lock.
var Access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleLock: holding, script.RoleImporter: holding,
}}

// AdminAccess lists what an Admin, which runs in a replica, needs in Redis.
var AdminAccess = script.Access{
	Scripts: script.Set{"state": scripts["state"], "revoke": scripts["revoke"]},
	Roles: map[script.Role]script.Needs{script.RoleReplica: {Commands: []string{
		"del", "exists", "hmget", "hset", "info", "pexpire", "pttl", "time", "xadd", "xrevrange", "zcard",
		"zrange", "zscore",
	}}},
}
