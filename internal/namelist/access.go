package namelist

import "github.com/freeslot/freeslot/internal/script"

// Access lists what replicas and readers need on the control server.
var Access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleReplica: {
		Commands: []string{
			"del", "hdel", "hexists", "hget", "hgetall", "hincrby", "hkeys", "hlen", "hmget", "hset", "hstrlen", "hvals", "info",
			"persist", "pexpire", "time", "unlink", "xadd", "xdel", "xrange", "zadd", "zremrangebyrank", "zscore",
		},
		Publishes: true,
	},
	script.RoleListReader: {
		Scripts:  []string{"delta", "look", "report"},
		Commands: []string{"hdel", "hexists", "hgetall", "hmget", "hset", "info", "pexpire", "time", "xrange"},
		Names:    readerNames,
	},
}}

// readerNames lets a reader write only reports. The name of a list is also the name of a chain. A
// reader sees the names and revisions of all lists. On a cluster, package events uses the channel's
// name as if it were a key.
func readerNames(l script.Layout, list string) script.Names {
	k := keys{l}
	return script.Names{
		Keys: []string{k.clients(list), k.clients(ChainMark(list))},
		Reads: []string{
			k.index(), k.servers(), k.record(list), k.versions(list), k.edits(list), k.change(list),
			k.chain(list), k.change(ChainMark(list)),
		},
		Channels: []string{k.change(list), k.change(ChainMark(list))},
	}
}
