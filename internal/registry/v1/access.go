package v1

import "github.com/freeslot/freeslot/internal/script"

// Access lists the commands that replicas call on the first version's keys. `schedctl acl` does not
// grant the keys themselves: docs/registry.md says what to add.
var Access = script.Access{Roles: map[script.Role]script.Needs{
	script.RoleReplica: {Commands: []string{
		"del", "hget", "hgetall", "hset", "publish", "role", "sadd", "scan", "srem", "sscan", "time", "zadd", "zrem", "zscan",
	}},
}}
