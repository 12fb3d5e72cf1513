package cell

import "github.com/freeslot/freeslot/internal/script"

// Access lists what each role needs in Redis for jobs, nodes, slots and queues.
var Access = script.Access{Scripts: scripts, Roles: map[script.Role]script.Needs{
	script.RoleAgent: {
		Scripts: []string{"register", "heartbeat", "deregister", "complete", "progress"},
		Commands: []string{
			"del", "exists", "get", "hdel", "hexists", "hget", "hgetall", "hincrby", "hlen", "hmget", "hset", "hsetnx", "incr",
			"mget",
			"pexpire", "sadd", "scard", "set", "sismember", "srem", "time", "xadd", "xlen", "xread", "xtrim", "zadd",
			"zcard", "zcount", "zrange", "zrem", "zremrangebyrank", "zscore",
		},
		Publishes: true,
		Names:     agentNames,
	},
	script.RoleReplica: {
		Commands: []string{
			"cluster|info", "del", "exists", "get", "hdel", "hexists", "hget", "hgetall", "hincrby", "hkeys", "hlen",
			"hmget", "hrandfield", "hset", "hsetnx", "hstrlen", "incr", "info", "mget", "persist", "pexpire", "pttl",
			"sadd", "scard", "set", "sismember", "smembers", "srandmember", "srem", "time", "unlink", "xadd", "xlen", "xread",
			"xtrim", "zadd", "zcard", "zcount", "zrandmember", "zrange", "zrangebyscore", "zrank", "zrem",
			"zremrangebyrank", "zremrangebyscore", "zrevrangebyscore", "zscore",
		},
		Publishes: true,
	},
	script.RoleDoctor: {
		Commands: []string{"cluster|info", "info", "mget", "zrange"},
		Names: func(layout script.Layout, _ string) script.Names {
			l := Layout(layout)
			return script.Names{Reads: []string{l.Revisions(), l.Metrics("*")}}
		},
	},
	script.RoleImporter: {
		Scripts: []string{"cells", "nodes", "import", "changes", "identity", "memory"},
		Commands: []string{
			"cluster|info", "del", "exists", "get", "hdel", "hexists", "hget", "hgetall", "hincrby", "hlen", "hmget", "hset",
			"hsetnx",
			"incr", "info", "mget", "pexpire", "sadd", "scard", "set", "sismember", "srem", "time", "xadd", "zadd",
			"zcard", "zcount", "zrange", "zrangebyscore", "zrem", "zremrangebyrank", "zscore",
		},
		Publishes: true,
	},
}}

// agentNames returns the names that an agent and its scripts touch: the keys of its node, and the
// keys of jobs that end, begin or return to the queues.
func agentNames(layout script.Layout, node string) script.Names {
	const every = "*"
	l := Layout(layout)
	return script.Names{
		Keys: []string{
			l.Node(node), l.Load(node), l.Metrics(node), l.Slots(node), l.Dispatch(node), l.Serves(node),
			l.Online(), l.PoolMembers(every), l.Revisions(), l.Heartbeats(), l.Version(), l.Drained(),
			l.Job(every), l.key("idem", every), l.Replies(every), l.Finished(), l.EndedInfo(), l.key("ended", every), l.Due(),
			l.Waiting(), l.WaitingVersion(), l.Queue(every), l.Fair(every),
			l.Limits(), l.Counted(every), l.FullLimits(), l.LimitedBy(every),
		},
		Reads:    []string{l.Cells(), l.Schema(), l.ServesVersion()},
		Channels: []string{l.NodeEvents()},
	}
}
