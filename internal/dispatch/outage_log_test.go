package dispatch

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

var errAway = errors.New("connection refused")

// While Redis is away, renew and mendSets log it once. Calls that fail are logged a few
// times: three for the cell's submits, three for everything else.
func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	server := redistest.New(t)
	rep := newRig(t, server.Target).unstarted("r1", func(c *replicaConfig) { c.log = zap.New(core) })
	c := rep.byCell[0]
	if err := c.openReplies(deadline(t)); err != nil {
		t.Fatal(err)
	}
	keeper, due := newReplyKeeper(c, newReplyReader(c)), newDueJobs(c)
	server.Kill()
	for range 5 {
		keeper.renew()
		due.mendSets()
	}
	for range 20 {
		logFailure(c.sampled, "submit", errAway)
		_ = rep.coded("read job", errAway)
	}
	server.Restart()
	waittest.Until(t, "the stream", keeper.renew)
	waittest.Until(t, "the sets", func() bool { due.mendSets(); return logs.FilterMessage("sets.mended_again").Len() > 0 })
	for event, want := range map[string]int{"sets.mend_failed": 1, "replies.keep_failed": 1, "redis.call_failed": 6, "replies.kept_again": 1, "replies.reopened": 1} {
		if found := logs.FilterMessage(event).All(); len(found) != want {
			t.Errorf("%d lines of %s, expected %d: %v", len(found), event, want, found)
		}
	}
	if back := logs.FilterMessage("replies.kept_again").All(); len(back) == 1 && back[0].ContextMap()["away"].(time.Duration) <= 0 {
		t.Errorf(`%+v; want len(back) != 1 or back[0].ContextMap()["away"].(time.Duration) > 0`, back[0])
	}
}

// A read of the reply stream does not wait for ever for a server that answers no call: another
// server may have replaced it.
func TestReadEndsWithItsServer(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	server := redistest.New(t)
	r := newRig(t, server.Target)
	a := r.agent(node("n1", 1))
	rep := r.replica("r1", func(c *replicaConfig) {
		c.log = zap.New(core)
		c.dispatch.ReplyBlock = time.Hour
	})
	sink := newRecorder(t)
	id := rep.mustPlace(job(), sink)
	server.Pause()
	waittest.Until(t, "the read ends", func() bool { return logs.FilterMessage("replies.read_failed").Len() > 0 })
	server.Resume()
	a.complete(id, `"done"`)
	if got := sink.result(id); string(got.Result) != `"done"` {
		t.Errorf("%+v; want string(got.Result) == `\"done\"`", got)
	}
}

// While Redis is away, followConfig logs it once, and not at each try.
func TestConfigOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.DebugLevel)
	server := redistest.New(t)
	newRig(t, server.Target).replica("r1", func(c *replicaConfig) {
		c.log, c.dispatch.SweepInterval = zap.New(core), 10*time.Millisecond
	})
	server.Kill()
	defer server.Restart() // so that the replica stops at once
	tries := func() *observer.ObservedLogs { return logs.FilterMessage("config.not_followed") }
	waittest.Until(t, "four tries", func() bool { return tries().Len() >= 4 })
	if n := tries().FilterLevelExact(zap.WarnLevel).Len(); n != 1 {
		t.Errorf("%d lines", n)
	}
}
