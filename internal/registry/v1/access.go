package v1

import "github.com/freeslot/freeslot/internal/script"

// Access is what replicas call on the first version's keys. The keys themselves are not among what
// `schedctl acl` grants: docs/registry.md says what to add.
var Access = script.Access{Roles: map[script.Role]script.Needs{
	script.RoleReplica: {Commands: []string{
		"del", "hget", "hgetall", "hset", "publish", "role", "sadd", "scan", "srem", "sscan", "time", "zadd", "zrem", "zscan",
	}},
}}
