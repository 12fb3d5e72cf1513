package doctor

import "github.com/freeslot/freeslot/internal/script"

// Access states what a doctor needs in Redis to look at its servers. CONFIG GET shows passwords of
// the server, so only the doctor's role has it. A replica that is asked to look does without.
var Access = script.Access{Roles: map[script.Role]script.Needs{
	script.RoleDoctor: {Commands: []string{"config|get", "info", "ping", "slowlog|get", "time"}},
}}
