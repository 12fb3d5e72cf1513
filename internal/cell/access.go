package cell

import (
	"fmt"
	"maps"
	"slices"

	"github.com/freeslot/freeslot/internal/script"
)

// Role is what a process is to the cells, and so what it needs in Redis.
type Role string

// The roles.
const (
	// RoleAgent speaks for a node. It calls scripts by their hashes alone.
	RoleAgent Role = "agent"
	// RoleReplica is a scheduler.
	RoleReplica Role = "replica"
	// RoleOperator imports nodes, and looks at what is there.
	RoleOperator Role = "operator"
)

// Roles are all of them.
var Roles = []Role{RoleAgent, RoleReplica, RoleOperator}

// AnyNode stands for every node in AccessOf.
const AnyNode = "*"

// called are the scripts that a role calls; nil is all.
var called = map[Role][]string{
	RoleAgent:    {"register", "heartbeat", "deregister", "complete", "progress"},
	RoleOperator: {"cells", "nodes", "import", "changes", "identity", "memory"},
}

// calls are the scripts that a role calls; features have scripts of their own, which replicas call.
func calls(role Role, features []script.Set) (out []*script.Script) {
	for name, s := range scripts {
		if names := called[role]; names == nil || slices.Contains(names, name) {
			out = append(out, s)
		}
	}
	if role == RoleReplica {
		for _, set := range features {
			out = slices.AppendSeq(out, maps.Values(set))
		}
	}
	return out
}

// connecting is what the client library says on new connections, to sentinels' masters and to
// members of a cluster.
var connecting = []string{"ping", "select", "role", "cluster|slots", "cluster|shards", "readonly", "asking"}

// plain are the commands that a role calls besides scripts.
var plain = map[Role][]string{
	RoleAgent: {"info", "get", "hmget", "xread"},
	RoleReplica: {
		"info", "wait", "cluster|info", "script|exists", "script|load", "eval", "evalsha", "client|tracking", "subscribe", "ssubscribe", "unsubscribe", "sunsubscribe", "punsubscribe", "discard",
		"del", "exists", "get", "set", "pexpire", "pttl",
		"hget", "hgetall", "hkeys", "hmget", "xadd", "xread", "xtrim",
		"scard", "zcard", "zcount", "zlexcount", "zrange", "zrangebyscore", "zrank", "zrevrangebyscore", "zscore",
	},
	RoleOperator: {"info", "cluster|info", "script|exists", "script|load", "eval", "evalsha", "set", "get"},
}

// AccessOf is what a role needs in the cells of these layouts, which are all cells of a system, or for
// an agent the one where its node lives. node is of an agent: its id, or AnyNode. features are the scripts of the
// features that a replica has.
func AccessOf(role Role, node string, features []script.Set, layouts ...Layout) (script.Access, error) {
	if !slices.Contains(Roles, role) {
		return script.Access{}, fmt.Errorf("role is %q, expected one of %v", role, Roles)
	}
	var a script.Access
	a.Commands = slices.Concat(connecting, plain[role])
	for _, l := range layouts {
		for _, s := range calls(role, features) {
			a.Commands = append(a.Commands, s.Commands(l.Sharded)...)
			if role == RoleAgent {
				a.Scripts = append(a.Scripts, s.Hash(l.Sharded))
			}
		}
		if role == RoleAgent {
			a.Keys = append(a.Keys, l.agentKeys(node)...)
			a.Reads = append(a.Reads, l.Cells(), l.Schema(), l.ServesVersion())
			a.Channels = append(a.Channels, l.NodeEvents())
			continue
		}
		a.Keys, a.Channels = append(a.Keys, l.Prefix+":*"), append(a.Channels, l.Prefix+":*")
	}
	if role == RoleOperator {
		a.Categories = []string{"read", "-dangerous"}
	}
	for _, list := range []*[]string{&a.Scripts, &a.Commands, &a.Keys, &a.Reads, &a.Channels} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return a, nil
}

// agentKeys are the keys that an agent and its scripts touch: those of its node, and what the jobs that
// end, begin or go back to the queues may lead to.
func (l Layout) agentKeys(node string) []string {
	const every = "*"
	return []string{
		l.Node(node), l.Load(node), l.Metrics(node), l.Slots(node), l.Dispatch(node), l.Serves(node),
		l.Online(), l.PoolMembers(every), l.Revisions(), l.Version(), l.Drained(),
		l.Job(every), l.key("replies", every), l.Finished(), l.Due(),
		l.Waiting(), l.WaitingVersion(), l.Line(every), l.Fair(every),
		l.Gates(), l.Gate(every), l.Parked(), l.ParkedAt(every),
	}
}
