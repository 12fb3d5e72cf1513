package schedule

import "github.com/freeslot/freeslot/internal/script"

// access lists what a replica needs in Redis for schedules.
var access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleReplica: {Commands: []string{
		"del", "hdel", "hget", "hset", "hstrlen", "time", "zadd", "zrangebylex", "zrangebyscore", "zrem",
	}},
}}
