package autoscale

import "github.com/freeslot/freeslot/internal/script"

// Access states what a replica needs in Redis to run the command.
var Access = script.Access{Roles: map[script.Role]script.Needs{
	script.RoleReplica: {Commands: []string{"get", "set"}},
}}
