package doctor

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/plural"
)

const (
	// silent is the id of the check for servers that do not answer.
	silent = "redis.silent"
	// leastBacklog is the least replication backlog, in bytes.
	leastBacklog = 64 << 20
	// leastPubSub is the least hard limit for what subscribers have not read, in bytes.
	leastPubSub = 8 << 20
)

// check is one thing that can be wrong with a server.
type check struct {
	id       string
	severity finding.Severity
	// text, next and docs are the finding's Text, Next and Docs.
	text, next, docs string
	// wrong returns what is wrong at a server, for people; "" if nothing is, or it is not known.
	wrong func(f *facts) string
}

var checks = []check{
	{
		silent, finding.Critical, "servers of Redis do not answer",
		"start them, or mend the network to them; redis.url and redis.urls name them", "docs/scheduler.md#what-is-wrong-now",
		func(f *facts) string {
			if f.err == nil {
				return ""
			}
			return f.err.Error()
		},
	},
	{
		"redis.role", finding.Critical, "the address of Redis leads to a replica of Redis, which refuses writes",
		"name the master, or the sentinels with master_set, in redis.url", "docs/scheduler.md#when-redis-refuses-writes",
		func(f *facts) string {
			return when(f.info["role"] == "slave" && !f.replica && !f.cluster(), "its master is "+f.info["master_host"])
		},
	},
	{
		"redis.saving", finding.Critical, "Redis could not save its data, so that a restart loses jobs",
		"look at its log and at the room on its disk", "docs/redis.md#appendonly", unsaved,
	},
	{
		"redis.evicted", finding.Warning, "Redis has deleted keys since its start because its memory was full",
		"jobs may be missing: submit them again; redis-cli CONFIG RESETSTAT ends this finding",
		"docs/redis.md#maxmemory-policy",
		func(f *facts) string {
			n := f.number("evicted_keys")
			return when(n > 0, plural.Of(int(n), "key", "keys"))
		},
	},
	{
		"redis.maxmemory", finding.Warning, "Redis has no maxmemory, so nothing refuses jobs before memory ends",
		"set maxmemory to at most 60 % of the machine", "docs/redis.md#maxmemory",
		func(f *facts) string { return when(f.info["maxmemory"] == "0", "maxmemory 0") },
	},
	{
		"redis.appendfsync", finding.Warning,
		"the append-only file is not written to disk each second, so a power loss loses more",
		"set appendfsync everysec (or always) and no-appendfsync-on-rewrite no", "docs/redis.md#appendfsync", fsync,
	},
	{
		"redis.backlog", finding.Warning,
		"the replication backlog is small, so a replica that was away for a moment copies everything",
		"set repl-backlog-size 256mb", "docs/redis.md#repl-backlog-size",
		func(f *facts) string {
			size := f.number("repl_backlog_size")
			return when(f.number("connected_slaves") > 0 && size > 0 && size < leastBacklog, mebibytes(size))
		},
	},
	{
		"redis.min_replicas", finding.Warning, "a master that is cut off goes on taking jobs, which it then drops",
		"set min-replicas-to-write 1", "docs/redis.md#min-replicas-to-write",
		func(f *facts) string {
			if !f.master() || f.cluster() || f.number("connected_slaves") < 2 {
				return ""
			}
			n, told := f.setting("min-replicas-to-write")
			return when(told && n == "0", "min-replicas-to-write 0")
		},
	},
	{
		"redis.link", finding.Warning,
		"replicas of Redis have no connection to their master: a failover to them would lose jobs",
		"look at their logs and at the network between them", "docs/redis.md#repl-backlog-size",
		func(f *facts) string {
			return when(
				f.info["role"] == "slave" && f.info["master_link_status"] == "down", "its master is "+f.info["master_host"],
			)
		},
	},
	{
		"redis.subscribers", finding.Warning, "the buffer of subscribers does not fit freeslot's events",
		"set client-output-buffer-limit pubsub 64mb 32mb 60", "docs/redis.md#client-output-buffer-limit", pubSub,
	},
	{
		"redis.idle", finding.Warning, "Redis closes idle connections, or keeps connections of machines that are gone",
		"set timeout 0 and tcp-keepalive 60", "docs/redis.md#timeout-and-tcp-keepalive", idle,
	},
	{
		"redis.coverage", finding.Warning, "one master that is down stops all cells of the cluster",
		"set cluster-require-full-coverage no on each member", "docs/redis.md#cluster-require-full-coverage",
		func(f *facts) string {
			if !f.cluster() {
				return ""
			}
			value, _ := f.setting("cluster-require-full-coverage")
			return when(value == "yes", "cluster-require-full-coverage yes")
		},
	},
	{
		"redis.hugepages", finding.Warning,
		"the kernel gives Redis huge pages, which makes calls slow while its file is rewritten",
		"set disable-thp yes and restart Redis", "docs/redis.md#transparent-hugepages",
		func(f *facts) string { return when(f.hugepages, "THP_enabled 1") },
	},
	{
		"redis.latency", finding.Warning, "a bare call to Redis is slow, and a job takes three calls",
		"look for a long way to Redis, a busy core, or slow calls", "docs/redis.md#the-time-of-a-call",
		func(f *facts) string {
			return when(f.took > f.latency, f.took.Round(10*time.Microsecond).String()+" from here")
		},
	},
	{
		"redis.clock", finding.Warning, "the clocks of Redis and of this machine differ",
		"let NTP set the clocks of both", "docs/redis.md#clocks",
		func(f *facts) string {
			off, where := f.ahead, "ahead"
			if off < 0 {
				off, where = -off, "behind"
			}
			return when(off > f.clock, fmt.Sprintf("%s %s", off.Round(time.Millisecond), where))
		},
	},
	{
		"redis.slow", finding.Warning, "Redis has had slow calls within the last hour, during which everything else waited",
		"redis-cli SLOWLOG GET shows them; give Redis a core of its own, and no KEYS or large deletions by hand",
		"docs/redis.md#slow-calls",
		func(f *facts) string {
			if len(f.slow) == 0 {
				return ""
			}
			last := f.slow[0]
			return fmt.Sprintf("%s, the last %s of %s", plural.Of(len(f.slow), "call", "calls"), last.took, last.command)
		},
	},
}

func when(wrong bool, detail string) string {
	if !wrong {
		return ""
	}
	return detail
}

func mebibytes(n int64) string { return strconv.FormatFloat(float64(n)/(1<<20), 'g', 3, 64) + " MiB" }

// unsaved returns what the server could not write last.
func unsaved(f *facts) string {
	var failed []string
	for _, field := range []string{"rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"} {
		if status := cmp.Or(f.info[field], "ok"); status != "ok" {
			failed = append(failed, field+" "+status)
		}
	}
	return strings.Join(failed, ", ")
}

func fsync(f *facts) string {
	if f.info["aof_enabled"] != "1" {
		return "" // a finding of its own
	}
	policy, _ := f.setting("appendfsync")
	lax, _ := f.setting("no-appendfsync-on-rewrite")
	switch {
	case policy == "no":
		return "appendfsync no"
	case policy == "everysec" && lax == "yes":
		return "no-appendfsync-on-rewrite yes"
	}
	return ""
}

// pubSub reads a line such as "normal 0 0 0 slave 256 64 60 pubsub 33554432 8388608 60".
func pubSub(f *facts) string {
	limits, _ := f.setting("client-output-buffer-limit")
	_, limit, found := strings.Cut(limits, "pubsub ")
	if !found {
		return ""
	}
	hard, _, _ := strings.Cut(limit, " ")
	switch n, err := strconv.ParseInt(hard, 10, 64); {
	case err != nil:
		return ""
	case n == 0:
		return "no limit: a stuck subscriber fills the memory"
	case n < leastPubSub:
		return mebibytes(n) + ": a burst of events cuts subscribers off"
	}
	return ""
}

func idle(f *facts) string {
	timeout, told := f.setting("timeout")
	if told && timeout != "0" {
		return "timeout " + timeout
	}
	keepalive, _ := f.setting("tcp-keepalive")
	return when(keepalive == "0", "tcp-keepalive 0")
}
