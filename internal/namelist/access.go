package namelist

import "github.com/freeslot/freeslot/internal/script"

// Access is what replicas need in Redis for the control of lists.
var Access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleReplica: {
		Commands: []string{
			"hdel", "hexists", "hget", "hgetall", "hkeys", "hlen", "hmget", "hset", "hvals", "info", "pexpire", "time", "unlink",
			"xadd", "xdel", "xrange", "zadd", "zremrangebyrank", "zscore",
		},
		Publishes: true,
	},
}}
