package version

import (
	"embed"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var files embed.FS

var scripts = script.MustLoad(files)

// Access lists what replicas and readers need on list servers.
var Access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleReplica: {
		Commands: []string{
			"del", "get", "getrange", "hget", "hgetall", "hlen", "hmget", "hset", "info", "memory|usage", "object|encoding",
			"scan", "set", "type", "unlink",
		},
	},
	script.RoleListReader: {
		Commands: []string{"get", "hgetall", "hmget"},
		Names: func(l script.Layout, list string) script.Names {
			return script.Names{Reads: []string{lists.DataKeys(l.Prefix, list)}}
		},
	},
}}
