package lock

import (
	"slices"

	"github.com/freeslot/freeslot/internal/script"
)

// connecting is what the client library says on new connections, to sentinels' masters and to members of a cluster.
var connecting = []string{"ping", "select", "role", "cluster|slots", "cluster|shards", "readonly", "asking"}

// calling are the commands that a Manager calls besides those of its scripts: to check the server, to run the scripts, to
// hear of grants, and to wait for Redis' replicas.
var calling = []string{
	"info", "eval", "evalsha",
	"subscribe", "ssubscribe", "unsubscribe", "sunsubscribe", "punsubscribe", "discard",
	"wait", "pexpire", "set",
}

// Access is what a process needs in Redis that uses locks under a key prefix: the role lock.
func Access(prefix string) script.Access {
	a := script.Access{
		Commands: slices.Concat(connecting, calling),
		Keys:     []string{prefix + ":*"},
		Channels: []string{prefix + ":*"},
	}
	for _, name := range []string{"acquire", "release", "renew"} {
		a.Commands = append(a.Commands, scripts[name].Commands(false)...)
		a.Commands = append(a.Commands, scripts[name].Commands(true)...)
	}
	slices.Sort(a.Commands)
	a.Commands = slices.Compact(a.Commands)
	return a
}
