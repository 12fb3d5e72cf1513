package history

import "github.com/freeslot/freeslot/internal/script"

// Access states what a replica needs in Redis to keep the history.
var Access = script.Access{Roles: map[script.Role]script.Needs{
	script.RoleReplica: {Commands: []string{"xadd", "xrange"}},
}}
