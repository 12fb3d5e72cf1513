package presence

import "github.com/freeslot/freeslot/internal/script"

// Access states what a replica needs in Redis to know the other replicas, and a doctor to know all.
var Access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleReplica: {Commands: []string{
		"del", "hdel", "hgetall", "hset", "pexpire", "time", "type", "zadd", "zrange", "zrem", "zremrangebyscore",
	}},
	script.RoleDoctor: {Commands: []string{"hgetall", "zrange"}, Names: func(l script.Layout, _ string) script.Names {
		k := keysOf(l)
		return script.Names{Reads: []string{k.replicas, k.figures, k.status}}
	}},
}}
