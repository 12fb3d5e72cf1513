package presence

import "github.com/freeslot/freeslot/internal/script"

// Access states what a replica needs in Redis to know the other replicas.
var Access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleReplica: {Commands: []string{
		"del", "hdel", "hgetall", "hset", "pexpire", "time", "type", "zadd", "zrange", "zrem", "zremrangebyscore",
	}},
}}
