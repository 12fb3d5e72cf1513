package pool

import "github.com/freeslot/freeslot/internal/script"

// access lists what a replica needs in Redis for the configuration of pools.
var access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleReplica: {Commands: []string{
		"del", "get", "hdel", "hget", "hkeys", "hlen", "hmget", "hset", "info", "publish", "set", "strlen", "time", "type",
	}},
}}
