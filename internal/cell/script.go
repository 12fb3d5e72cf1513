package cell

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts so; nothing is protected by it
	"embed"
	"encoding/hex"
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

// constantLine is a whole number with a name. The number is put wherever the name stands: to Lua the name is a variable
// like others, which costs each call to look for and to keep for every function that uses it.
var constantLine = regexp.MustCompile(`(?m)^local ([A-Z][A-Z_]+) = (\d+)(?: *--.*)?\n`)

// script is one operation's source, with what it includes, and the hash by which Redis knows it.
type script struct{ name, text, sha string }

func newScript(name, text string) *script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &script{name: name, text: text, sha: hex.EncodeToString(sum[:])}
}

// call runs what Redis has under the script's hash.
func (s *script) call(ctx context.Context, on rueidis.Client, keys, args []string) rueidis.RedisResult {
	return on.Do(ctx, on.B().Evalsha().Sha1(s.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
}

// send runs the script's source, which Redis then has.
func (s *script) send(ctx context.Context, on rueidis.Client, keys, args []string) rueidis.RedisResult {
	return on.Do(ctx, on.B().Eval().Script(s.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
}

// scripts holds one script an operation.
type scripts struct {
	all []*script // of this release, in no order

	register, heartbeat, deregister, submit, complete, cancel, attach, changes, nodes, identity, memory, cells            *script
	progress, retain                                                                                                      *script
	configPause, follow, drop                                                                                             *script
	move, moves, moveIn, moveAck, moveNote                                                                                *script
	presence, configRead, configApply, enqueue, take, reap, due, serves, drain, gates, rate, cronDue, cronWrite, cronList *script
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
	var all []*script
	load := func(name string) *script {
		text := source(name)
		if sharded {
			text = strings.Replace(text, publishCall, "'S"+publishCall[1:], 1)
		}
		all = append(all, newScript(name, text))
		return all[len(all)-1]
	}
	out := scripts{
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
	out.all = all
	return out
}

// ScriptNames are the names of the operations by the hash under which Redis has their scripts, for who reads Redis' own
// accounts. The caller owns the map.
func ScriptNames() map[string]string {
	names := make(map[string]string)
	for _, of := range []scripts{plainScripts(), shardedScripts()} {
		for _, s := range of.all {
			names[s.sha] = s.name
		}
	}
	return names
}

// source is the text of one script with the library parts it includes. A script
// that is missing from the binary is a broken build.
func source(name string) string {
	return literal(include(name + ".lua"))
}

// literal is a script without names for its constants.
func literal(text string) string {
	for _, constant := range constantLine.FindAllStringSubmatch(text, -1) {
		line, name, value := constant[0], constant[1], constant[2]
		text = strings.Replace(text, line, "", 1)
		text = regexp.MustCompile(`\b`+name+`\b`).ReplaceAllLiteralString(text, value)
	}
	return text
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
