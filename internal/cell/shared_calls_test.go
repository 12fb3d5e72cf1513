package cell

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestSharedCallsAreShort: no call that nodes share, nor the largest of one node behind a gateway, has
// Redis do more than this, which is less than 3 ms of work: all else waits for it. The commands are those
// of the script. The bytes come with the call, or are its answer.
func TestSharedCallsAreShort(t *testing.T) {
	t.Parallel()
	server := redistest.New(t) // its counts are of this test alone
	// The first call of a script sends everything twice, and the script itself.
	newRig(t, server.Target).largestBeats(1, 0, 100)()
	newRig(t, server.Target).largestEnds()()
	for name, c := range map[string]struct {
		largest func(r *rig) func()
		most    work
	}{
		"heartbeats of idle nodes": {func(r *rig) func() { return r.largestBeats(32, 0, resourcesTogether/32) }, work{300, 160_000}},
		"heartbeats of busy nodes": {func(r *rig) func() { return r.largestBeats(32, attemptsTogether/32, resourcesTogether/32) }, work{300, 180_000}},
		"heartbeats of two nodes":  {func(r *rig) func() { return r.largestBeats(2, attemptsTogether/2, maxResources) }, work{25, 60_000}},
		"heartbeat of one node":    {func(r *rig) func() { return r.largestBeats(1, frame.MaxSlots, maxResources) }, work{15, 62_000}},
		"ends":                     {(*rig).largestEnds, work{700, 290_000}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, server.Target)
			call := c.largest(r)
			begin := r.work()
			call()
			end := r.work()
			did := work{end.commands - begin.commands, end.bytes - begin.bytes}
			if t.Logf("%+v", did); did.commands > c.most.commands || did.bytes > c.most.bytes {
				t.Errorf("Redis did %+v, expected at most %+v", did, c.most)
			}
		})
	}
}

// work is what Redis did: commands, also those of scripts, and bytes that came and went.
type work struct{ commands, bytes int }

func (r *rig) work() (w work) {
	r.t.Helper()
	reply := r.do("INFO", "stats", "commandstats")
	text, err := reply.ToString()
	must(r.t, err)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "cmdstat_ping": // an idle connection's sign of life
		case strings.HasPrefix(name, "cmdstat_"):
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, err := strconv.Atoi(calls)
			must(r.t, err)
			w.commands += n
		case name == "total_net_input_bytes" || name == "total_net_output_bytes":
			n, err := strconv.Atoi(value)
			must(r.t, err)
			w.bytes += n
		}
	}
	return w
}

// largestBeats are the heartbeats of nodes that each have so many jobs, and resources of so many bytes.
func (r *rig) largestBeats(nodes, jobs, bytes int) func() {
	var beats []LinkedHeartbeat
	for i := range nodes {
		node := fmt.Sprint("n", i)
		if r.exists(r.l.Node(node)) {
			r.do("DEL", r.l.Slots(node))
		}
		hb := Heartbeat{Node: node, Epoch: r.register(testNode(node, freeslot.MaxConcurrencyLimit)), Resources: []byte(`{"x":"` + strings.Repeat("x", bytes-8) + `"}`)}
		args := []string{"HSET", r.l.Slots(node), "sum", strconv.Itoa(jobs)}
		for range jobs {
			a := Attempt{NewJobID(0), 1}
			hb.Running = append(hb.Running, a)
			args = append(args, a.Job, "1:"+hb.Epoch+":1")
		}
		r.do(args...)
		beats = append(beats, LinkedHeartbeat{hb, testLink(1, "t")})
	}
	if n := FitHeartbeats(beats); n != nodes {
		r.t.Fatalf("%d of %d heartbeats share a call", n, nodes)
	}
	return func() {
		for _, result := range r.HeartbeatsLinked(r.ctx(), beats) {
			must(r.t, result.Err)
		}
	}
}

// largestEnds are those of two jobs on each of as many nodes as a call may have, which are full and wait
// for replicas of their own, with results as large as they may be together.
func (r *rig) largestEnds() func() {
	const nodes = sharedNodes
	must(r.t, r.ConfigSeen(r.ctx(), 1))
	var comps []Completion
	for i := range nodes {
		node := fmt.Sprint("n", i)
		epoch := r.register(testNode(node, 2))
		r.take(node)
		for k := range sharedItems / nodes {
			replica := fmt.Sprintf("r%d-%d", i, k)
			must(r.t, r.OpenReplies(r.ctx(), replica))
			s := submission(replica, node)
			s.Job.TimeoutMS = time.Hour.Milliseconds()
			if p, err := r.Submit(r.ctx(), s); err != nil || !p.Assigned {
				r.t.Fatal(p, err)
			}
			c := succeed(node, epoch, s.JobID)
			c.Result = []byte(`"` + strings.Repeat("x", sharedBytes/sharedItems-controlOverhead-2) + `"`)
			comps = append(comps, c)
		}
	}
	r.waits("", service("tts")) // so that each node's queues are looked at
	if n := FitNodes(comps); n != len(comps) {
		r.t.Fatalf("%d of %d ends share a call", n, len(comps))
	}
	return func() {
		out, err := r.CompleteNodes(r.ctx(), comps)
		if must(r.t, err); slices.Contains(out, SharedAlone) || slices.Contains(out, SharedUnknown) {
			r.t.Fatal(out)
		}
	}
}

// TestEndsOutOfMemory: the ends of jobs free memory, so they work where Redis refuses other writes.
func TestEndsOutOfMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t).Target)
	var comps []Completion
	for _, node := range []string{"n1", "n2"} {
		comps = append(comps, succeed(node, r.register(testNode(node, 1)), r.place("", 1, node)))
	}
	r.do("CONFIG", "SET", "maxmemory", "1")
	out, err := r.CompleteNodes(r.ctx(), comps)
	r.do("CONFIG", "SET", "maxmemory", "0")
	if must(t, err); !slices.Equal(out, []SharedOutcome{SharedCompleted, SharedCompleted}) {
		t.Error(out)
	}
	if s := r.status(comps[1].Attempt.Job); s.State != freeslot.StateSucceeded {
		t.Errorf("%+v; want s.State == freeslot.StateSucceeded", s)
	}
	r.sound()
}

// TestHeartbeatsAlone: a heartbeat that cannot be sent costs the others of its call nothing; and after an
// error answer each is sent alone.
func TestHeartbeatsAlone(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		var beats []LinkedHeartbeat
		for _, node := range []string{"n1", "bad", "n2", "worse"} {
			beats = append(beats, LinkedHeartbeat{Heartbeat{Node: node, Epoch: r.register(testNode(node, 1))}, testLink(1, "t")})
		}
		beats[1].Resources = []byte("{")
		beats[3].Link.Token = "no name"
		for _, planted := range []string{"", "if ARGV[2] ~= '1' then error('planted') end\n"} {
			r.scripts = withHeartbeats(planted)
			before := r.nowMS()
			results := r.HeartbeatsLinked(r.ctx(), beats)
			for i, result := range results {
				if i%2 > 0 {
					wantErr(t, result.Err, freeslot.CodeInvalidArgument)
				} else if must(t, result.Err); result.AtMS < before {
					t.Errorf("%+v; want result.AtMS >= %v", result, before)
				}
			}
		}
		r.scripts = withHeartbeats("error('planted')\n")
		for i, result := range r.HeartbeatsLinked(r.ctx(), beats) {
			if result.Err == nil || strings.Contains(result.Err.Error(), "planted") == (i%2 > 0) {
				t.Errorf(`%s: %v; want an error, strings.Contains(result.Err.Error(), "planted") != (i%%2 > 0)`, beats[i].Node, result.Err)
			}
		}
		r.scripts = scripts
	})
}

// withHeartbeats are the scripts with something planted before heartbeats.lua.
func withHeartbeats(planted string) script.Set {
	set := maps.Clone(scripts)
	set["heartbeats"] = script.New("heartbeats", planted+scripts["heartbeats"].Text(false))
	return set
}

// meeting lets no call for one heartbeat through before all of them have come.
type meeting struct {
	rueidis.Client
	missing atomic.Int32
	all     chan struct{}
}

func (m *meeting) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	const ofOne = "7" // keys
	if words := cmd.Commands(); words[0] != "EVALSHA" || words[2] != ofOne {
		return m.Client.Do(ctx, cmd)
	}
	if m.missing.Add(-1) == 0 {
		close(m.all)
	}
	select {
	case <-m.all:
		return m.Client.Do(ctx, cmd)
	case <-ctx.Done():
		return rueidis.NewErrorResult(ctx.Err())
	}
}

// TestHeartbeatsAloneAtOnce: after an error answer the heartbeats do not wait for each other, or the
// nodes behind them would be late.
func TestHeartbeatsAloneAtOnce(t *testing.T) {
	t.Parallel()
	base := newRig(t, redistest.New(t).Target)
	var beats []LinkedHeartbeat
	for i := range maxHeartbeats {
		node := fmt.Sprint("n", i)
		beats = append(beats, LinkedHeartbeat{Heartbeat{Node: node, Epoch: base.register(testNode(node, 1))}, testLink(1, "t")})
	}
	client := &meeting{Client: base.client, all: make(chan struct{})}
	client.missing.Store(maxHeartbeats)
	c, err := New(base.cfg, client, zap.NewNop(), nil)
	must(t, err)
	c.scripts = withHeartbeats("if ARGV[2] ~= '1' then error('planted') end\n")
	for i, result := range c.HeartbeatsLinked(t.Context(), beats) {
		if result.Err != nil {
			t.Errorf("%s: %v; want no error", beats[i].Node, result.Err)
		}
	}
}
