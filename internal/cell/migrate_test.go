package cell

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// halfway is a cell whose hash slot is halfway from one master to another.
type halfway struct {
	*rig
	cluster  *redistest.ReplicaCluster
	slot     uint16
	to       *redisserver.Server
	masters  []rueidis.Client // of the two
	epoch    Epoch            // of n1
	told     string           // a job of n1 whose replica listens
	untold   string           // a job of n1 whose replica is gone
	finished string           // a job that ended before
	first    string           // jobs that wait, in this order: the only ones of their class unless more is said
	second   string
	other    Epoch // of n2
	coming   *Move // of a job of another cell
}

// behind has n1 be connected by a gateway.
func (h *halfway) behind(gateway string) {
	h.t.Helper()
	must(h.t, h.OpenGateway(h.ctx(), gateway))
	h.silence("n1") // it lived as a direct agent
	_, err := h.HeartbeatLinked(h.ctx(), Heartbeat{Node: "n1", Epoch: h.epoch, Resources: []byte("{}")}, h.link(gateway, "s1", 1))
	must(h.t, err)
}

// named fails unless the next heartbeat brings the attempt, and says whether it is to stop. That holds
// whether it was delivered or not.
func (h *halfway) named(a Attempt, cancelled bool) {
	h.t.Helper()
	hb, err := h.HeartbeatLinked(h.ctx(), Heartbeat{Node: "n1", Epoch: h.epoch, Resources: []byte("{}")}, h.link("g1", "s1", 1))
	if err != nil || !slices.Contains(hb.Start, a) || slices.Contains(hb.Cancel, a) != cancelled {
		h.t.Errorf("the agent is told %+v, %v", hb, err)
	}
}

// moves has two jobs move, of which one has gone, and makes a third one that is to come: as first is.
func (h *halfway) moves() {
	h.t.Helper()
	h.cfg.Cells = 10 // or else an id of the tenth is nobody's
	tts := func(s *Submission) { s.Job.Service = "tts" }
	gone := h.waits("r1", tts)
	h.waits("r1", tts)
	if _, err := h.BeginMoves(h.ctx(), ClassOf(&freeslot.Job{Service: "tts"}).ID, Target{Cell: 9, Slots: 9}, 0, 10); err != nil {
		h.t.Fatal(err)
	}
	must(h.t, h.noteMoves(h.ctx(), []moveNote{isThere(&Move{Job: gone, Cell: 9, Hop: 1})}))
	h.coming = &Move{Job: "9-" + strings.TrimPrefix(NewJobID(0), "0-"), Cell: h.Index(), Hop: 1}
	for field, value := range h.hash(h.l.Job(h.first)) {
		h.coming.fields = append(h.coming.fields, field, value)
	}
}

// idle ends the jobs of n1. The heartbeat tells everyone so.
func (h *halfway) idle(beat func(context.Context) error) {
	h.t.Helper()
	h.end("n1", h.epoch, h.told)
	h.end("n1", h.epoch, h.untold)
	must(h.t, beat(h.ctx()))
}

// queue has jobs wait, and makes every key that a script takes for granted on a cell that has
// been busy: those that are nowhere cannot be told from those that have moved.
func (h *halfway) queue(jobs int) {
	h.t.Helper()
	must(h.t, h.ConfigSeen(h.ctx(), 1))
	h.take("n1")
	h.take("n2")
	h.first = h.waits("r1", timeout(time.Hour.Milliseconds()), slots(2))
	if jobs > 1 {
		h.second = h.waits("r1", slots(2))
	}
}

// newHalfway makes a cell of two nodes with jobs, on the cluster that all cases share.
func newHalfway(t *testing.T, cluster *redistest.ReplicaCluster, tag string) *halfway {
	t.Helper()
	layout := Layout{Prefix: cluster.Prefix(t), Tag: tag, Sharded: true}
	client := cluster.Client(t)
	c, err := New(Config{Layout: layout, CallTimeout: patience, HeartbeatLimit: time.Hour}, client, zaptest.NewLogger(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	number, _ := layout.Slot()
	h := &halfway{rig: &rig{Cell: c, t: t, redis: cluster.Target, raw: client, l: layout, migrates: true}, cluster: cluster, slot: uint16(number)}
	h.to = cluster.Owner(uint16((number + script.HashSlots/3) % script.HashSlots))
	for _, addr := range []string{cluster.Owner(h.slot).Addr(), h.to.Addr()} {
		h.masters = append(h.masters, redistest.At("node", false, addr).Client(t))
	}
	h.epoch = h.rig.register(richNode("n1"))
	other := h.rig.register(richNode("n2"))
	if err := h.OpenReplies(h.ctx(), "r1"); err != nil {
		t.Fatal(err)
	}
	h.finished = h.place("r1", 1, "n2")
	h.end("n2", other, h.finished)
	h.other = other
	h.place("r1", 1, "n2")
	h.told, h.untold = h.place("r1", 1, "n1"), h.place("gone", 1, "n1")
	for node, epoch := range map[string]Epoch{"n1": h.epoch, "n2": other} { // their figures
		if _, err := h.Heartbeat(h.ctx(), Heartbeat{Node: node, Epoch: epoch, Resources: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// submission is that of a job that is there already.
func (h *halfway) submission(job string) Submission {
	s := submission("r1")
	s.JobID, s.Job.Slots = job, 2
	return s
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// dumpFooter is the version and checksum that end a DUMP.
const dumpFooter = 10

// state is every key of the slot, on both masters. The values are the sorted bytes of
// their DUMP, because Redis may change the order of a large hash's fields at any time.
func (h *halfway) state() map[string]string {
	h.t.Helper()
	out := make(map[string]string)
	for i, node := range h.masters {
		list := node.B().Arbitrary("CLUSTER", "GETKEYSINSLOT", strconv.Itoa(int(h.slot)), "1000").Build()
		keys, err := node.Do(h.ctx(), list).AsStrSlice()
		if err != nil {
			h.t.Fatal(err)
		}
		for _, key := range keys {
			answers := node.DoMulti(h.ctx(), node.B().Asking().Build(), node.B().Dump().Key(key).Build())
			text, err := answers[1].ToString()
			if err != nil {
				h.t.Fatalf("%s: %v; want no error", key, err)
			}
			value := []byte(text[:len(text)-dumpFooter])
			slices.Sort(value)
			out[fmt.Sprint(i, " ", key)] = string(value)
		}
	}
	return out
}

// TestMigration: whichever keys of a cell have moved when a script runs, it does all of
// its work or none, and once the slot has moved the call that is tried again does the
// rest. Each case moves one of the keys that a script finds by what it reads, or all
// the others.
func TestMigration(t *testing.T) {
	t.Parallel()
	cluster := redistest.NewReplicaCluster(t)
	jobs := func(h *halfway) []string { return []string{h.l.Job(h.told), h.l.Job(h.untold)} }
	replies := func(h *halfway) []string { return []string{h.l.Replies("r1")} }
	left := func(h *halfway) []string {
		return append(jobs(h), h.l.Replies("r1"), h.l.PoolMembers(richNode("n1").Pools[0]))
	}
	ended := func(h *halfway, want ...freeslot.State) {
		for i, job := range []string{h.told, h.untold} {
			if got := h.status(job).State; got != want[i] {
				h.t.Errorf("a job is %s, want %s", got, want[i])
			}
		}
	}
	direct := func(h *halfway, ctx context.Context) error {
		_, err := h.Heartbeat(ctx, Heartbeat{Node: "n1", Epoch: h.epoch})
		return err
	}
	linked := func(h *halfway, ctx context.Context) error {
		_, err := h.HeartbeatLinked(ctx, Heartbeat{Node: "n1", Epoch: h.epoch}, h.link("g1", "s1", 1))
		return err
	}
	next := NewEpoch()
	for name, c := range map[string]struct {
		found  func(h *halfway) []string // the keys that the script finds
		call   func(h *halfway, ctx context.Context) error
		verify func(h *halfway)
		// sure is that the call succeeds while keys that it finds are elsewhere.
		sure bool
	}{
		"complete": {
			found: replies, sure: true,
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Cell.complete(ctx, []Completion{succeed("n1", h.epoch, h.told), succeed("n1", h.epoch, h.untold)})
				return err
			},
			verify: func(h *halfway) { ended(h, freeslot.StateSucceeded, freeslot.StateSucceeded) },
		},
		"deregister": {
			found: left,
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Deregister(ctx, "n1", h.epoch)
				return err
			},
			verify: func(h *halfway) { ended(h, freeslot.StateWaiting, freeslot.StateWaiting) },
		},
		"register": {
			found: left,
			call: func(h *halfway, ctx context.Context) error {
				node := richNode("n1")
				node.Pools = node.Pools[1:]
				_, err := h.Register(ctx, node, next)
				return err
			},
			verify: func(h *halfway) { ended(h, freeslot.StateWaiting, freeslot.StateWaiting) },
		},
		"register, the profile lost": { // its epoch is, and it keeps its jobs
			found: func(h *halfway) []string {
				h.do("HSET", h.l.Node("n1"), "epoch", NewEpoch())
				return left(h)
			},
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Register(ctx, richNode("n1"), h.epoch)
				return err
			},
			verify: func(h *halfway) { ended(h, freeslot.StateRunning, freeslot.StateRunning) },
		},
		"moves begin": {
			found: func(h *halfway) []string {
				h.queue(2)
				h.moves()
				return []string{h.l.Job(h.first), h.l.Queue(echo), h.l.Fair(echo)}
			},
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.BeginMoves(ctx, echo, Target{Cell: 9, Slots: 9}, 0, 10)
				return err
			},
			verify: func(h *halfway) {
				for _, job := range []string{h.first, h.second} {
					if s := h.status(job); s.State != freeslot.StateMoving {
						h.t.Errorf("%+v; want s.State == freeslot.StateMoving", s)
					}
				}
			},
		},
		"a job comes": {
			found: func(h *halfway) []string {
				h.queue(2)
				h.moves()
				return []string{h.l.Queue(echo), h.l.Fair(echo)}
			},
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.moveIn(ctx, []*Move{h.coming}, 1e15, nil)
				return err
			},
			verify: func(h *halfway) {
				if s := h.status(h.coming.there()); s.State != freeslot.StateWaiting || s.ID != h.coming.Job || len(h.line(echo)) != 3 {
					h.t.Errorf("%+v, %v; want s.State == freeslot.StateWaiting, s.ID == %v, len(h.line(echo)) == 3", s, h.line(echo), h.coming.Job)
				}
			},
		},
		"a move is settled": {
			found: func(h *halfway) []string {
				h.queue(2)
				h.moves()
				if _, err := h.moveIn(h.ctx(), []*Move{h.coming}, 1e15, nil); err != nil {
					h.t.Fatal(err)
				}
				return []string{h.l.Job(h.coming.there())}
			},
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.moveAck(ctx, []*Move{h.coming})
				return err
			},
			verify: func(h *halfway) {
				if record := h.hash(h.l.Job(h.coming.there())); record["keep"] != "" || record["hop"] != "1" {
					h.t.Errorf(`%v; want record["keep"] == "", record["hop"] == "1"`, record)
				}
			},
		},
		"cancel": {
			found: func(h *halfway) []string { return []string{h.l.Slots("n1"), h.l.Dispatch("n1")} },
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Cancel(ctx, "", h.told)
				return err
			},
			verify: func(h *halfway) {
				ended(h, freeslot.StateCancelling, freeslot.StateRunning)
				hb, err := h.Heartbeat(h.ctx(), Heartbeat{Node: "n1", Epoch: h.epoch, Resources: []byte("{}")})
				if err != nil || !slices.Equal(hb.Cancel, []Attempt{{h.told, 1}}) {
					h.t.Errorf("the agent is told %+v, %v", hb, err)
				}
			},
		},
		"heartbeat, behind a gateway": {
			found: func(h *halfway) []string {
				h.behind("g1")
				h.do("DEL", h.l.Dispatch("n1"), h.l.Metrics("n1")) // it needs neither
				return []string{h.l.Gateway("g1")}
			},
			sure: true,
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.HeartbeatLinked(ctx, Heartbeat{Node: "n1", Epoch: h.epoch}, h.link("g1", "s1", 1))
				return err
			},
			verify: func(h *halfway) { h.named(Attempt{h.told, 1}, false) },
		},
		"idle": {
			found: func(h *halfway) []string {
				h.idle(func(ctx context.Context) error { return direct(h, ctx) })
				return replies(h)
			},
			sure: true, call: direct, verify: func(*halfway) {},
		},
		"idle, linked": {
			found: func(h *halfway) []string {
				h.behind("g1")
				h.idle(func(ctx context.Context) error { return linked(h, ctx) })
				h.do("DEL", h.l.Dispatch("n1"), h.l.Metrics("n1")) // it needs neither
				return []string{h.l.Gateway("g1")}
			},
			sure: true, call: linked, verify: func(*halfway) {},
		},
		"complete, behind a gateway": {
			found: func(h *halfway) []string {
				h.behind("g1")
				h.do("DEL", h.l.Dispatch("n1"))
				return []string{h.l.Replies("r1")}
			},
			sure: true,
			call: func(h *halfway, ctx context.Context) error {
				comp := succeed("n1", h.epoch, h.told)
				comp.Begun = func([]Dispatch) {}
				_, err := h.Cell.complete(ctx, []Completion{comp})
				return err
			},
			verify: func(h *halfway) { ended(h, freeslot.StateSucceeded, freeslot.StateRunning) },
		},
		"take, behind a gateway": {
			found: func(h *halfway) []string {
				h.queue(1)
				h.end("n1", h.epoch, h.untold) // hands it over
				h.complete1(h.fails("n1", h.epoch, h.first, HandBack))
				h.forgive(h.first)
				h.behind("g1")
				h.do("XADD", h.l.Dispatch("n1"), "*", "left", "1") // it is one of KEYS
				return []string{h.l.Gateway("g1")}
			},
			sure: true,
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Take(ctx, "n1", []string{echo}, 1)
				return err
			},
			verify: func(h *halfway) {
				h.take("n1")
				h.named(Attempt{h.first, 2}, false)
			},
		},
		"cancel, behind a gateway": {
			found: func(h *halfway) []string {
				h.behind("g1")
				return []string{h.l.Slots("n1"), h.l.Load("n1"), h.l.Gateway("g1")}
			},
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Cancel(ctx, "", h.told)
				return err
			},
			verify: func(h *halfway) {
				ended(h, freeslot.StateCancelling, freeslot.StateRunning)
				h.named(Attempt{h.told, 1}, true)
			},
		},
		"complete, and hand over": { // n1 has 3 slots, of which 2 are in use
			found: func(h *halfway) []string {
				h.queue(1)
				return []string{h.l.Queue(echo), h.l.Fair(echo), h.l.Job(h.first), h.l.Waiting(), h.l.WaitingVersion(), h.l.Serves("n1"), h.l.Replies("r1")}
			},
			sure: true,
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Cell.complete(ctx, []Completion{succeed("n1", h.epoch, h.told)})
				return err
			},
			verify: func(h *halfway) {
				ended(h, freeslot.StateSucceeded, freeslot.StateRunning)
				h.take("n1") // what was not handed over
				if s := h.status(h.first); s.State != freeslot.StateRunning || s.Attempt != 1 {
					h.t.Errorf("the job that waited: %+v", s)
				}
			},
		},
		"complete, to be tried again": {
			found: func(h *halfway) []string {
				h.queue(1)
				return []string{h.l.Queue(echo), h.l.Fair(echo), h.l.Waiting(), h.l.WaitingVersion(), h.l.Due(), h.l.Replies("r1")}
			},
			call: func(h *halfway, ctx context.Context) error {
				failed := Completion{
					Node: "n1", Epoch: h.epoch, Attempt: Attempt{h.told, 1}, State: freeslot.StateFailed,
					Error: &freeslot.JobError{Code: "boom"}, Next: Retry,
				}
				paused := failed
				paused.Attempt.Job, paused.RetryDelay = h.untold, time.Hour
				_, err := h.Cell.complete(ctx, []Completion{failed, paused})
				return err
			},
			verify: func(h *halfway) { ended(h, freeslot.StateWaiting, freeslot.StateRetryWait) },
		},
		"take": {
			found: func(h *halfway) []string {
				h.queue(1)
				h.end("n1", h.epoch, h.untold) // hands it over
				h.complete1(h.fails("n1", h.epoch, h.first, HandBack))
				h.forgive(h.first)
				return []string{h.l.Queue(echo), h.l.Fair(echo), h.l.Job(h.first), h.l.Replies("r1")}
			},
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Take(ctx, "n1", []string{echo}, 1)
				return err
			},
			verify: func(h *halfway) {
				h.take("n1")
				if s := h.status(h.first); s.State != freeslot.StateRunning || s.Attempt != 2 {
					h.t.Errorf("the job that waited: %+v", s)
				}
			},
		},
		"cancel of a job that waits": {
			found: func(h *halfway) []string {
				h.queue(1)
				return []string{h.l.Queue(echo), h.l.Fair(echo), h.l.Replies("r1")}
			},
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Cancel(ctx, "", h.first)
				return err
			},
			verify: func(h *halfway) {
				if s := h.status(h.first); s.State != freeslot.StateCancelled {
					h.t.Errorf("%+v; want s.State == freeslot.StateCancelled", s)
				}
			},
		},
		"due": { // the one expires, the other's pause is over, and a third is asked to stop
			found: func(h *halfway) []string {
				h.queue(1)
				paused := h.fails("n1", h.epoch, h.untold, Retry)
				h.do("DEL", h.l.Serves("n1"))
				paused.RetryDelay = time.Hour
				h.complete1(paused)
				h.pass(h.first)
				h.pass(h.untold)
				h.do("ZADD", h.l.Due(), "1", h.untold) // so that the one that expires is the last
				return []string{h.l.Queue(echo), h.l.Fair(echo), h.l.Job(h.first), h.l.Job(h.untold), h.l.Replies("r1")}
			},
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Due(ctx, 10)
				return err
			},
			verify: func(h *halfway) {
				ended(h, freeslot.StateRunning, freeslot.StateWaiting)
				if s := h.status(h.first); s.State != freeslot.StateExpired {
					h.t.Errorf("%+v; want s.State == freeslot.StateExpired", s)
				}
			},
		},
		"retain": {
			found: func(h *halfway) []string {
				h.cfg.RetentionBytes = 1 << 40
				h.retain(h.Cell, 10)
				h.cfg.RetentionBytes = 1
				h.end("n1", h.epoch, h.told)
				return []string{h.l.Job(h.finished), h.l.Job(h.told)}
			},
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Cell.retain(ctx, 10)
				return err
			},
			verify: func(h *halfway) {
				if got := h.retain(h.Cell, 10); got.Bytes != 0 || h.exists(h.l.Finished()) || h.exists(h.l.Job(h.told)) || !h.exists(h.l.Job(h.untold)) {
					h.t.Errorf("%+v, expected no record of a job that has ended", got)
				}
			},
		},
		"reap": {
			found: func(h *halfway) []string {
				h.queue(1)
				h.do("SET", h.l.Load("n1"), "1000000000000")
				return append(left(h), h.l.Queue(echo), h.l.Fair(echo))
			},
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Reap(ctx, "n1", h.epoch)
				return err
			},
			verify: func(h *halfway) { ended(h, freeslot.StateWaiting, freeslot.StateWaiting) },
		},
		"enqueue": {
			found: func(h *halfway) []string {
				h.queue(2)
				return []string{h.l.Queue(echo), h.l.Fair(echo), h.l.Job(h.first), h.l.Replies("r1")}
			},
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Cell.enqueue(ctx, encoded(h.t, withCandidates(h.submission(h.second), "n2"), withCandidates(h.submission(h.second), "n1")))
				return err
			},
			verify: func(h *halfway) {
				if s := h.status(h.second); s.State != freeslot.StateWaiting && s.State != freeslot.StateRunning {
					h.t.Errorf("%+v; want s.State == freeslot.StateWaiting or s.State == freeslot.StateRunning", s)
				}
			},
		},
		"attach": {
			found: replies, sure: true,
			call: func(h *halfway, ctx context.Context) error {
				_, err := h.Attach(ctx, "", h.told, "r2")
				return err
			},
			verify: func(h *halfway) {
				if got := h.field(h.l.Job(h.told), "reply_to"); got != "r2" {
					h.t.Errorf("the result goes to %q", got)
				}
			},
		},
		"changes": {
			found: func(h *halfway) []string { return []string{h.l.Node("n1"), h.l.Node("n2")} },
			call: func(h *halfway, ctx context.Context) error {
				ch, err := h.Changes(ctx, 0, 100)
				if err == nil && (len(ch.Nodes) != 2 || ch.Nodes[0].Gone || ch.Nodes[1].Gone) {
					h.t.Errorf("nodes are missing: %+v", ch.Nodes)
				}
				return err
			},
			verify: func(*halfway) {},
		},
	} {
		keys := len(c.found(newHalfway(t, cluster, fmt.Sprintf("m%x", name))))
		if keys == 0 {
			t.Errorf("%s finds no key by what it reads: this test shows nothing", name)
		}
		for i := range 2 * keys {
			t.Run(fmt.Sprint(name, "/", i), func(t *testing.T) {
				h := newHalfway(t, cluster, fmt.Sprintf("m%x-%d", name, i))
				found := c.found(h)
				moved := found[i/2 : i/2+1]
				if i%2 == 1 {
					moved = slices.DeleteFunc(h.keys(), func(key string) bool { return key == found[i/2] })
				}
				cluster.BeginMigration(h.slot, h.to, moved...)
				before := h.state()
				ctx, cancel := context.WithCancel(t.Context())
				if !c.sure { // else the client tries again for ever
					ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
				}
				err := c.call(h, ctx)
				cancel()
				if answer := new(*rueidis.RedisError); errors.As(err, answer) {
					if after := h.state(); !maps.Equal(before, after) {
						t.Errorf("it failed halfway: %v; keys before %q, after %q", err, sortedKeys(before), sortedKeys(after))
					}
				}
				if c.sure && err != nil {
					t.Errorf("moved %q: %v", moved, err)
				}
				cluster.MigrateSlot(h.slot, h.to)
				if err != nil {
					waittest.Succeeds(t, "success when tried again", func() error { return c.call(h, t.Context()) })
				}
				c.verify(h)
				h.sound()
			})
		}
	}
}

// TestMigrationOfSharedCalls: a key of one node that has moved costs no other node its heartbeat, and of
// ends it is known that none was carried out.
func TestMigrationOfSharedCalls(t *testing.T) {
	t.Parallel()
	h := newHalfway(t, redistest.NewReplicaCluster(t), "shared")
	h.behind("g1")
	h.silence("n2")
	_, err := h.HeartbeatLinked(h.ctx(), Heartbeat{Node: "n2", Epoch: h.other}, h.link("g1", "s2", 1))
	must(t, err)
	held, _ := h.slots("n2")
	moved := slices.Sorted(maps.Keys(held))[0]
	h.cluster.BeginMigration(h.slot, h.to, h.l.Job(moved), h.l.Load("n2"))
	before := h.state()
	out, err := h.CompleteNodes(h.ctx(), []Completion{succeed("n1", h.epoch, h.told), succeed("n2", h.other, moved)})
	if must(t, err); !slices.Equal(out, []SharedOutcome{SharedAlone, SharedAlone}) {
		t.Errorf("ends: %v", out)
	}
	if after := h.state(); !maps.Equal(before, after) {
		t.Errorf("keys before %q, after %q", sortedKeys(before), sortedKeys(after))
	}
	results := h.HeartbeatsLinked(h.ctx(), []LinkedHeartbeat{
		{Heartbeat{Node: "n2", Epoch: h.other}, h.link("g1", "s2", 1)},
		{Heartbeat{Node: "n1", Epoch: h.epoch}, h.link("g1", "s1", 1)},
	})
	if results[0].Err == nil || results[1].Err != nil {
		t.Errorf("heartbeats: %v, %v", results[0].Err, results[1].Err)
	}
}
