package cell

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
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

// Access is all that a role needs in Redis.
type Access struct {
	// Scripts are the hashes of the scripts that the role calls; empty where it may load and call any.
	Scripts []string
	// Commands are the names of commands, lower case, with a subcommand behind "|". Those that scripts
	// call are among them, because Redis asks whether their caller may call them.
	Commands []string
	// Categories are of commands, without the "@": added first, then those with a "-" in front are taken
	// away.
	Categories []string
	// Keys and Channels are patterns. Reads are of keys that are only read.
	Keys, Reads, Channels []string
}

// AnyNode stands for every node in AccessOf.
const AnyNode = "*"

// calls are the scripts that a role calls.
func (s *scripts) calls(role Role) []*script {
	switch role {
	case RoleAgent:
		return []*script{s.register, s.heartbeat, s.deregister, s.complete, s.progress}
	case RoleOperator:
		return []*script{s.cells, s.nodes, s.register, s.changes, s.identity, s.memory}
	default:
		return s.all
	}
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
// an agent the one where its node lives. node is of an agent: its id, or AnyNode.
func AccessOf(role Role, node string, layouts ...Layout) (Access, error) {
	if !slices.Contains(Roles, role) {
		return Access{}, fmt.Errorf("role is %q, expected one of %v", role, Roles)
	}
	var a Access
	a.Commands = slices.Concat(connecting, plain[role])
	for _, l := range layouts {
		s := scriptsOf(l.Sharded)
		for _, script := range s.calls(role) {
			a.Commands = append(a.Commands, script.commands()...)
			if role == RoleAgent {
				a.Scripts = append(a.Scripts, script.sha)
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

var (
	luaComment = regexp.MustCompile(`(?m)--.*$`)
	// commandCall is a call of redis.call or redis.pcall, of one of the names that scripts give them, or of
	// lib/sure.lua, up to the end of the command's name, which may be one of several.
	commandCall = regexp.MustCompile(`\b(?:redis\.p?call\(|call\(|try\(|sure\(|pcall\(redis\.p?call, )([^,()]*)`)
	commandName = regexp.MustCompile(`'([A-Z]+)'`)
)

// commands are those that the script can call, lower case.
func (s *script) commands() []string {
	var found []string
	for _, call := range commandCall.FindAllStringSubmatch(luaComment.ReplaceAllString(s.text, ""), -1) {
		for _, name := range commandName.FindAllStringSubmatch(call[1], -1) {
			found = append(found, strings.ToLower(name[1]))
		}
	}
	return found
}

// Rules are what Redis' ACL takes for a user that may do what a says and nothing else.
func (a Access) Rules() []string {
	return append([]string{"resetkeys", "resetchannels", "-@all"}, a.Additions()...)
}

// Additions are those of Rules that give something.
func (a Access) Additions() []string {
	var rules []string
	for _, c := range a.Categories {
		if name, minus := strings.CutPrefix(c, "-"); minus {
			rules = append(rules, "-@"+name)
		} else {
			rules = append(rules, "+@"+name)
		}
	}
	for _, c := range a.Commands {
		rules = append(rules, "+"+c)
	}
	for _, sha := range a.Scripts {
		rules = append(rules, "+evalsha|"+sha)
	}
	for _, k := range a.Keys {
		rules = append(rules, "~"+k)
	}
	for _, k := range a.Reads {
		rules = append(rules, "%R~"+k)
	}
	for _, c := range a.Channels {
		rules = append(rules, "&"+c)
	}
	return rules
}

// Sources are the texts of all scripts, by which a test can do what replicas do.
func Sources() []string {
	var out []string
	for _, sharded := range []bool{false, true} {
		s := scriptsOf(sharded)
		for _, script := range s.all {
			out = append(out, script.text)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
