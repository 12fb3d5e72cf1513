package acl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/internal/script"
)

// base holds what the connections of a role need, whatever its features do.
var base = map[script.Role][]string{
	script.RoleAgent: slices.Concat(connecting, []string{"info"}),
	script.RoleReplica: slices.Concat(
		connecting, loading, reading, confirming, hearing, []string{"client|tracking", "exists"},
	),
	script.RoleOperator: connecting,
	script.RoleImporter: slices.Concat(connecting, loading, confirming, hearing), // the role also takes locks
	script.RoleLock:     slices.Concat(connecting, loading, confirming, hearing),
	script.RoleRegistry: slices.Concat(connecting, loading, hearing),

	script.RoleListReader: slices.Concat(connecting, loading, reading, hearing, []string{"exists"}),
	script.RoleDoctor:     connecting,
}

var (
	// connecting lists what the client library calls on new connections, to sentinels' masters and
	// to members of a cluster.
	connecting = []string{"ping", "select", "role", "cluster|slots", "cluster|shards", "readonly", "asking"}
	// loading lists what package script calls in addition to scripts.
	loading = []string{"info", "script|exists", "script|load", "eval", "evalsha"}
	// reading lists what package script calls for scripts that change nothing.
	reading = []string{"eval_ro", "evalsha_ro"}
	// confirming lists what package script calls to wait for Redis' replicas.
	confirming = []string{"wait", "set", "pexpire"}
	// hearing lists what package events calls.
	hearing = []string{"subscribe", "ssubscribe", "unsubscribe", "sunsubscribe", "punsubscribe", "discard"}
)

// Rights tells what a user of Redis may do.
type Rights struct {
	// Scripts are hashes of scripts; empty if the user may load and call any.
	Scripts []string
	// Commands are names of commands, lower case, with a subcommand behind "|".
	Commands []string
	// Categories are categories of commands, without the "@". Those without a "-" in front are
	// added first, then the others are taken away.
	Categories []string
	// Keys and Channels are patterns. Reads are patterns of keys that are only read.
	Keys, Reads, Channels []string
}

// Of merges the features' needs for a role in the cells of these layouts: all cells of a system or,
// for an agent, the one where its node lives. of is passed to script.Needs.Names.
func Of(role script.Role, of string, layouts []script.Layout, features ...script.Access) (Rights, error) {
	commands, known := base[role]
	if !known {
		return Rights{}, fmt.Errorf("role is %q, expected one of %v", role, script.Roles)
	}
	r := Rights{Commands: slices.Clone(commands)}
	for _, l := range layouts {
		for _, f := range features {
			r.add(role, of, l, f)
		}
		switch role {
		case script.RoleAgent, script.RoleRegistry, script.RoleListReader, script.RoleDoctor: // the features name theirs
		case script.RoleOperator:
			r.Reads = append(r.Reads, l.Prefix+":*")
		default:
			r.Keys, r.Channels = append(r.Keys, l.Prefix+":*"), append(r.Channels, l.Prefix+":*")
		}
	}
	if role == script.RoleOperator {
		r.Categories = []string{"read", "-dangerous"}
	}
	return r.With(Rights{}), nil
}

// With returns these rights and others, each once and in order. Both belong to one role.
func (r Rights) With(other Rights) Rights {
	both := func(a, b []string) []string {
		all := slices.Concat(a, b)
		slices.Sort(all)
		return slices.Compact(all)
	}
	return Rights{
		Scripts: both(r.Scripts, other.Scripts), Commands: both(r.Commands, other.Commands), Categories: r.Categories,
		Keys: both(r.Keys, other.Keys), Reads: both(r.Reads, other.Reads), Channels: both(r.Channels, other.Channels),
	}
}

func (r *Rights) add(role script.Role, of string, l script.Layout, f script.Access) {
	needs := f.Roles[role]
	r.Commands = append(r.Commands, needs.Commands...)
	switch {
	case needs.Publishes && l.Sharded:
		r.Commands = append(r.Commands, "spublish")
	case needs.Publishes:
		r.Commands = append(r.Commands, "publish")
	}
	if role == script.RoleAgent {
		for _, name := range needs.Scripts {
			r.Scripts = append(r.Scripts, f.Scripts[name].Hash(l.Sharded))
		}
	}
	if needs.Names != nil {
		names := needs.Names(l, of)
		r.Keys, r.Reads, r.Channels = append(r.Keys, names.Keys...), append(r.Reads, names.Reads...), append(
			r.Channels, names.Channels...,
		)
	}
}

// Rules returns the rules of Redis' ACL for a user that may do this and nothing else.
func (r Rights) Rules() []string {
	return append([]string{"resetkeys", "resetchannels", "-@all"}, r.Additions()...)
}

// Additions returns the part of Rules that gives something.
func (r Rights) Additions() []string {
	var rules []string
	for _, c := range r.Categories {
		if name, minus := strings.CutPrefix(c, "-"); minus {
			rules = append(rules, "-@"+name)
		} else {
			rules = append(rules, "+@"+name)
		}
	}
	for _, part := range []struct {
		sign  string
		names []string
	}{{"+", r.Commands}, {"+evalsha|", r.Scripts}, {"~", r.Keys}, {"%R~", r.Reads}, {"&", r.Channels}} {
		for _, name := range part.names {
			rules = append(rules, part.sign+name)
		}
	}
	return rules
}
