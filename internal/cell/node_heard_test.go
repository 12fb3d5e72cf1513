package cell

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// allowQuiet lets heartbeats be quiet for longer than any test runs.
func (r *rig) allowQuiet() {
	r.t.Helper()
	r.do("HSET", r.l.Version(), "quiet_until", "9999999999999")
}

// heardOf reads all quiet heartbeats in pages, which must be larger than what comes in a millisecond.
func (r *rig) heardOf(page int) map[string]int64 {
	r.t.Helper()
	all, since := make(map[string]int64), int64(0)
	for {
		h, err := r.Heard(r.ctx(), since, page, QuietAsBefore)
		if err != nil {
			r.t.Fatal(err)
		}
		for node, at := range h.All() {
			all[node], since = at, at
		}
		if h.Len() < page {
			return all
		}
	}
}

// TestQuietHeartbeats: a heartbeat that changes nothing has no event and no revision while replicas
// read the index. Every other one has both.
func TestQuietHeartbeats(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		for _, linked := range []bool{false, true} {
			t.Run(fmt.Sprint("linked=", linked), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, redis)
				var epoch Epoch
				link := testLink(1, "t")
				if linked {
					epoch = NewEpoch()
					if _, err := r.RegisterLinked(r.ctx(), testNode("n1", 2), epoch, link, ""); err != nil {
						t.Fatal(err)
					}
				} else {
					epoch = r.register(testNode("n1", 2))
				}
				heard := r.listen()
				beat := func(what string, quiet bool, change func(*Heartbeat)) {
					t.Helper()
					hb := Heartbeat{Node: "n1", Epoch: epoch}
					change(&hb)
					before := r.revision()
					call := r.Heartbeat
					if linked {
						call = func(ctx context.Context, hb Heartbeat) (HeartbeatReply, error) {
							return r.HeartbeatLinked(ctx, hb, link)
						}
					}
					reply, err := call(r.ctx(), hb)
					if err != nil {
						t.Fatalf("%s: %v, want an answer", what, err)
					}
					if n := len(heard.drain()); (n == 0) != quiet || (reply.Revision == 0) != quiet || (r.revision() == before) != quiet {
						t.Errorf("%s: %d events, revision %d after %d, answer %d; quiet: want %v", what, n, r.revision(), before, reply.Revision, quiet)
					}
					at, _ := r.load("n1")
					if !quiet {
						return
					}
					if listed := r.heardOf(2)["n1"]; listed != at {
						t.Errorf("%s: listed at %d, want the heartbeat, %d", what, listed, at)
					}
				}
				plain := func(*Heartbeat) {}
				figures := func(text string) func(*Heartbeat) { return func(hb *Heartbeat) { hb.Resources = []byte(text) } }
				beat("the first one", false, plain)
				beat("no replica reads", false, plain)
				for _, till := range []string{"1", "1234567890123", "soon", ""} {
					r.do("HSET", r.l.Version(), "quiet_until", till)
					beat("quiet until "+till, false, plain)
				}
				r.allowQuiet()
				beat("a sign of life", true, plain)
				beat("first figures", false, figures(`{"at_ms":0,"x":1}`))
				beat("the same figures", true, figures(`{"at_ms":0,"x":1}`))
				beat("no figures", true, plain)
				beat("other figures", false, figures(`{"at_ms":0,"x":2}`))
				r.do("SET", r.l.Metrics("n1"), `{"at_ms":1000000000000,"x":2}`)
				beat("figures that are old", false, figures(`{"at_ms":0,"x":2}`))
				beat("figures without a time", false, figures(`{"x":2}`))
				beat("the same without a time", true, figures(`{"x":2}`))
				draining := func(hb *Heartbeat) { hb.Status = freeslot.StatusDraining }
				beat("it drains", false, draining)
				beat("it still drains", true, draining)
				beat("it is back", false, plain)
				job := r.place("", 1, "n1")
				running := func(hb *Heartbeat) { hb.Running = []Attempt{{job, 1}} }
				beat("a job", false, running)
				beat("the job", false, running)
				r.end("n1", epoch, job)
				heard.drain()
				beat("after the job", false, plain)
				if got := r.hash(r.l.Slots("n1")); !maps.Equal(got, map[string]string{"sum": "00"}) {
					t.Errorf("slots %v, want a sum that everyone has heard of", got)
				}
				beat("everyone knows that it is over", true, plain)
				beat("an attempt that nobody knows", false, running)
				r.do("DEL", r.l.Heartbeats())
				r.do("SET", r.l.Heartbeats(), "no index")
				beat("the index cannot be written", false, plain)
				r.do("DEL", r.l.Heartbeats())
				beat("and again", true, plain)
				r.sound()
			})
		}
	})
}

// TestHeard: pages bring every quiet heartbeat, and nodes that leave are none of them.
func TestHeard(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		if h, err := r.Heard(r.ctx(), 0, 5, QuietAllowed); err != nil || len(maps.Collect(h.All())) != 0 || h.NowMS < r.nowMS()-60_000 {
			t.Fatalf("%+v, %v, want no heartbeat and the time", h, err)
		}
		if till := r.field(r.l.Version(), "quiet_until"); till < strconv.FormatInt(r.nowMS()-60_000, 10) {
			t.Errorf("quiet until %q, want a time that is still to come", till)
		}
		r.allowQuiet()
		var names []string
		for i := range 7 {
			names = append(names, fmt.Sprint("n", i))
			epoch := r.register(testNode(names[i], 1))
			if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: names[i], Epoch: epoch}); err != nil {
				t.Fatal(err)
			}
			// Two nodes have the same time.
			r.do("ZADD", r.l.Heartbeats(), strconv.FormatInt(r.nowMS()-100+int64(i/2), 10), names[i])
		}
		all := r.heardOf(3)
		if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, names) {
			t.Errorf("heard of %v, want %v", got, names)
		}
		h, err := r.Heard(r.ctx(), all["n6"], 5, QuietEnded)
		if last, ok := maps.Collect(h.All())["n6"]; err != nil || !ok || last != all["n6"] {
			t.Errorf("%+v, %v, want the last heartbeat", h, err)
		}
		if till, _ := r.try("HGET", r.l.Version(), "quiet_until"); !till.IsNil() {
			t.Error("the mark stays")
		}
		if _, err := r.Deregister(r.ctx(), "n0", r.field(r.l.Node("n0"), "epoch")); err != nil {
			t.Fatal(err)
		}
		r.do("ZADD", r.l.Heartbeats(), "5.5", "an odd one", "7", "", "8", "other")
		odd := map[string]int64{"an odd one": 5, "": 7, "other": 8}
		if h, err := r.Heard(r.ctx(), 0, 3, QuietAsBefore); err != nil || h.Len() != 3 || !maps.Equal(maps.Collect(h.All()), odd) {
			t.Errorf("%v, %v, want %v", maps.Collect(h.All()), err, odd)
		}
		r.do("ZADD", r.l.Heartbeats(), "5", "old", "9999999999999", "future")
		if _, ok := r.heardOf(10)["future"]; ok {
			t.Error("read a heartbeat that is still to come")
		}
		r.allowQuiet() // as a clock that goes back leaves it
		if _, err := r.Heard(r.ctx(), 0, 5, QuietAllowed); err != nil {
			t.Fatal(err)
		}
		if till, _ := strconv.ParseInt(r.field(r.l.Version(), "quiet_until"), 10, 64); till > r.nowMS()+60_000 {
			t.Errorf("quiet until %d, want a time that is soon", till)
		}
		left := slices.Sorted(maps.Keys(r.heardOf(10)))
		if !slices.Equal(left, names[1:]) {
			t.Errorf("%v are left, want %v", left, names[1:])
		}
	})
}

// TestEarlierAgents: agents of a release that announces every heartbeat share a cell with quiet ones.
// Each of them makes the next heartbeat an event, and no replica keeps slots in use.
func TestEarlierAgents(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		r.allowQuiet()
		epoch := r.register(testNode("n1", 1))
		earlier, later := earlierHeartbeat(t), r.scripts
		heard := r.listen()
		beat := func(scripts script.Set, events int, running ...Attempt) HeartbeatReply {
			t.Helper()
			r.scripts = scripts
			reply, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Running: running})
			if n := len(heard.drain()); err != nil || n != events {
				t.Errorf("%d events, %v, want %d", n, err, events)
			}
			r.scripts = later
			return reply
		}
		beat(earlier, 1)
		beat(later, 1)
		beat(later, 0)
		beat(earlier, 1)
		job := r.place("", 1, "n1")
		heard.drain()
		if reply := beat(earlier, 1); reply.Used != 1 || len(reply.Start) != 1 {
			t.Errorf("%+v, want one slot in use and the job to start", reply)
		}
		r.end("n1", epoch, job)
		heard.drain()
		beat(earlier, 1)
		beat(later, 1) // it tells that nothing is in use, which the earlier one has left in the hash
		beat(later, 0)
		beat(earlier, 1)
		beat(later, 1)
		r.sound()
	})
}

// earlierHeartbeat is heartbeat.lua as it was before heartbeats could be quiet.
func earlierHeartbeat(t *testing.T) script.Set {
	t.Helper()
	text := scripts["heartbeat"].Text(false)
	for part, was := range map[string]string{
		"if not named and sum == '00' and profile[2] == state then\n": "if false then\n",
		"local noted = named and used or '00'\n":                      "local noted = used\n",
	} {
		if strings.Count(text, part) != 1 {
			t.Fatalf("heartbeat.lua has %d of %q", strings.Count(text, part), part)
		}
		text = strings.Replace(text, part, was, 1)
	}
	set := maps.Clone(scripts)
	set["heartbeat"] = script.New("heartbeat", text)
	return set
}
