package bulk

import "github.com/freeslot/freeslot/internal/script"

// access lists what a replica needs in Redis for operations on many jobs or nodes.
var access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleReplica: {Commands: []string{"del", "hdel", "hget", "hgetall", "hset", "time"}},
}}
