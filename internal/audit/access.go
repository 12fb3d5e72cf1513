package audit

import "github.com/freeslot/freeslot/internal/script"

// Access states what a replica needs in Redis for the audit, and who imports nodes, which is a
// change that no replica makes. No other role gets any of its keys but an operator's, which reads
// all keys under the prefix.
var Access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleReplica: {Commands: []string{
		"hdel", "hgetall", "hlen", "hrandfield", "hset", "time", "xadd", "xrevrange",
	}},
	script.RoleImporter: {
		Scripts:  []string{"begin", "end"},
		Commands: []string{"hdel", "hlen", "hrandfield", "hset", "time", "xadd"},
	},
}}
