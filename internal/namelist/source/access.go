package source

import (
	"embed"

	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var files embed.FS

var scripts = script.MustLoad(files)

// Access lists what replicas need on the control server.
var Access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleReplica: {
		Commands: []string{
			"del", "get", "hexists", "mget", "set", "time", "zadd", "zcard", "zrange", "zrangebyscore", "zrem",
		},
	},
}}
