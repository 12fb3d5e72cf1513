package console

import "github.com/freeslot/freeslot/internal/script"

// Access states what a replica needs in Redis for sessions. No other role may write the keys.
var Access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleReplica: {Commands: []string{"lindex", "lpush", "lrange", "ltrim", "time"}},
}}
