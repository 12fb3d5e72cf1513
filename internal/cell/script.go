package cell

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

//go:embed script
var sources embed.FS

// publishCall is how scripts begin to publish a node event. On a cluster
// SPUBLISH takes its place: the channel is in the slot of the script's keys.
const publishCall = "'PUBLISH', channel, "

var includeLine = regexp.MustCompile(`(?m)^ *-- include (\S+)$`)

// scripts holds one compiled script an operation.
type scripts struct {
	register, heartbeat, deregister, submit, complete, cancel, attach, changes, nodes, identity, memory, cells            *rueidis.Lua
	progress, retain                                                                                                      *rueidis.Lua
	configPause, follow, drop                                                                                             *rueidis.Lua
	move, moves, moveIn, moveAck, moveNote                                                                                *rueidis.Lua
	presence, configRead, configApply, enqueue, take, reap, due, serves, drain, gates, rate, cronDue, cronWrite, cronList *rueidis.Lua
}

// scriptsOf are the scripts, put together once for all cells of a process; sharded is how
// they publish node events.
func scriptsOf(sharded bool) scripts {
	if sharded {
		return shardedScripts()
	}
	return plainScripts()
}

var (
	plainScripts   = sync.OnceValue(func() scripts { return loadScripts(false) })
	shardedScripts = sync.OnceValue(func() scripts { return loadScripts(true) })
)

func loadScripts(sharded bool) scripts {
	load := func(name string) *rueidis.Lua {
		text := source(name)
		if sharded {
			text = strings.Replace(text, publishCall, "'S"+publishCall[1:], 1)
		}
		return rueidis.NewLuaScript(text)
	}
	return scripts{
		register:   load("register"),
		heartbeat:  load("heartbeat"),
		deregister: load("deregister"),
		submit:     load("submit"),
		complete:   load("complete"),
		cancel:     load("cancel"),
		attach:     load("attach"),
		// Read-only, but not called so: the embedded server takes TIME for a write.
		changes:  load("changes"),
		nodes:    load("nodes"),
		identity: load("identity"),
		memory:   load("memory"),
		cells:    load("cells"),
		presence: load("presence"),
		progress: load("progress"),
		retain:   load("retain"),
		enqueue:  load("enqueue"),
		take:     load("take"),
		reap:     load("reap"),
		due:      load("due"),
		serves:   load("serves"),
		rate:     load("rate"),
		drain:    load("drain"),
		move:     load("move"),
		moves:    load("moves"),
		moveIn:   load("move_in"),
		moveAck:  load("move_ack"),
		moveNote: load("move_note"),
		gates:    load("gates"),

		cronDue:   load("cron_due"),
		cronWrite: load("cron_write"),
		cronList:  load("cron_list"),

		configRead:  load("config_read"),
		configApply: load("config_apply"),
		configPause: load("config_pause"),
		follow:      load("follow"),
		drop:        load("drop"),
	}
}

// source is the text of one script with the library parts it includes. A script
// that is missing from the binary is a broken build.
func source(name string) string {
	return include(name + ".lua")
}

// include is one file with those it includes, and theirs.
func include(path string) string {
	return includeLine.ReplaceAllStringFunc(mustRead(path), func(line string) string {
		return include(includeLine.FindStringSubmatch(line)[1])
	})
}

func mustRead(path string) string {
	text, err := sources.ReadFile("script/" + path)
	if err != nil {
		panic(fmt.Sprintf("cell: embedded script: %v", err))
	}
	return string(text)
}
