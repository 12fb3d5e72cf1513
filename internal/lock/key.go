package lock

import "github.com/freeslot/freeslot/internal/script"

// tags is the number of hash tags over which the locks of a cluster are spread. It must never
// change: two processes that disagree would both take the same lock.
const tags = 64

// keys names the keys and channels of the locks with one tag:
//
//	lock:held:<lock>     hash with TTL: who holds it    lock:queue:<lock>   zset of tickets: who waits
//	lock:alive           zset: processes with waiters   lock:token          the counter of tokens
//	lock:audit           stream: what operators did     lock:wake:<process> channel: grants for a process
//	lock:listed          zset: locks to list          lock:release:<lock>  channel: releases, for outsiders, without the tag
type keys struct{ layout script.Layout }

func (k keys) held(lock string) string    { return k.layout.Key("held", lock) }
func (k keys) queue(lock string) string   { return k.layout.Key("queue", lock) }
func (k keys) alive() string              { return k.layout.Key("alive", "") }
func (k keys) token() string              { return k.layout.Key("token", "") }
func (k keys) listed() string             { return k.layout.Key("listed", "") }
func (k keys) audit() string              { return k.layout.Key("audit", "") }
func (k keys) wake(process string) string { return k.layout.Key("wake", process) }

// layouts returns the layout of each tag: one on a single server, 64 on a cluster.
func layouts(prefix string, cluster bool) []script.Layout {
	n := 1
	if cluster {
		n = tags
	}
	return script.Layouts(prefix, n, cluster)
}
