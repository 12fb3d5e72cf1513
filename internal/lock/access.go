package lock

import (
	"slices"

	"github.com/freeslot/freeslot/internal/script"
)

// connecting is what the client library says on new connections, to sentinels' masters and to members of a cluster.
var connecting = []string{"ping", "select", "role", "cluster|slots", "cluster|shards", "readonly", "asking", "info"}

// Access is what a process that takes locks needs in Redis.
func Access(prefix string, cluster bool) script.Access {
	return access(prefix, cluster, []string{"acquire", "release", "renew"},
		"subscribe", "ssubscribe", "unsubscribe", "sunsubscribe", "punsubscribe", "discard", "wait", "set")
}

// AdminAccess is what an Admin needs.
func AdminAccess(prefix string, cluster bool) script.Access {
	return access(prefix, cluster, []string{"state", "revoke"}, "scan", "xrevrange")
}

func access(prefix string, cluster bool, names []string, commands ...string) script.Access {
	a := script.Access{
		Commands: slices.Concat(connecting, commands, []string{"eval", "evalsha", "script|exists", "script|load"}),
		Keys:     []string{prefix + ":*"}, Channels: []string{prefix + ":*"},
	}
	for _, name := range names {
		a.Commands = append(a.Commands, scripts[name].Commands(cluster)...)
	}
	slices.Sort(a.Commands)
	a.Commands = slices.Compact(a.Commands)
	return a
}
