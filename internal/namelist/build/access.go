package build

import (
	"embed"

	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var files embed.FS

var scripts = script.MustLoad(files)

// Access is what replicas need on list servers.
var Access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleReplica: {
		Commands: []string{
			"del", "get", "getrange", "hget", "hgetall", "hlen", "hmget", "hset", "info", "memory|usage", "object|encoding", "scan", "set", "type", "unlink",
		},
	},
}}
