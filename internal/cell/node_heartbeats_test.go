package cell

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestHeartbeatsAsOne: one call for many nodes does to each what a call of its own does.
func TestHeartbeatsAsOne(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		for seed := range uint64(8) {
			t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
				t.Parallel()
				together, single := newRig(t, redis), newRig(t, redis)
				jobs := make([]string, 200)
				for i := range jobs {
					jobs[i] = NewJobID(0)
				}
				nodes := maxHeartbeats
				if seed%2 > 0 {
					nodes = 1 + int(seed)
				}
				rigs := []*rig{together, single}
				beats := make([][]LinkedHeartbeat, len(rigs))
				heard := make([]*listener, len(rigs))
				for i, r := range rigs {
					if seed > 3 {
						r.allowQuiet()
					}
					beats[i] = drawnBeats(r, rand.New(rand.NewPCG(seed, 1)), nodes, jobs) //nolint:gosec // the same for both
					heard[i] = r.listen()
				}
				results, err := together.heartbeats(together.ctx(), beats[0], together.runner.CallApart)
				if err != nil {
					t.Fatal(err)
				}
				for i, hb := range beats[1] {
					want, err := single.Heartbeat(single.ctx(), hb.Heartbeat)
					if !errors.Is(err, results[i].Err) {
						t.Errorf("%+v: %v, alone %v", hb, results[i].Err, err)
					}
					sorted := cmpopts.SortSlices(func(a, b Attempt) bool { return a.Job < b.Job })
					if d := cmp.Diff(want, results[i].HeartbeatReply, sorted, cmpopts.IgnoreFields(HeartbeatReply{}, "AtMS")); d != "" {
						t.Errorf("%+v (-alone +together):\n%s", hb, d)
					}
				}
				if d := cmp.Diff(heard[1].drain(), heard[0].drain(), cmpopts.IgnoreFields(events.Event{}, "AtMS", "Body")); d != "" {
					t.Errorf("events (-alone +together):\n%s", d)
				}
				if d := cmp.Diff(withoutTimes(single.dump()), withoutTimes(together.dump())); d != "" {
					t.Errorf("Redis (-alone +together):\n%s", d)
				}
				together.sound()
			})
		}
	})
}

// drawnBeats makes nodes with jobs, and their heartbeats. Some heartbeats come from strangers.
func drawnBeats(r *rig, draw *rand.Rand, nodes int, jobs []string) []LinkedHeartbeat {
	beats := make([]LinkedHeartbeat, nodes)
	for i := range beats {
		node, epoch := fmt.Sprint("n", i), fmt.Sprint("epoch-", i)
		hb := Heartbeat{Node: node, Epoch: epoch, Status: []freeslot.Status{"", freeslot.StatusOnline, freeslot.StatusDraining}[draw.IntN(3)]}
		if _, err := r.Register(r.ctx(), testNode(node, 9), epoch); err != nil {
			r.t.Fatal(err)
		}
		for range draw.IntN(4) {
			s := submission("", node)
			s.JobID, jobs = jobs[0], jobs[1:]
			s.Job.Slots = 1 + draw.IntN(2)
			if p, err := r.Submit(r.ctx(), s); err != nil || !p.Assigned {
				r.t.Fatal(p, err)
			}
			if draw.IntN(4) == 0 {
				if _, err := r.Cancel(r.ctx(), "", s.JobID); err != nil {
					r.t.Fatal(err)
				}
			}
			if draw.IntN(2) == 0 {
				hb.Running = append(hb.Running, Attempt{s.JobID, 1 + draw.IntN(2)})
			}
			hb.Read = r.lastDispatch(node)
		}
		if draw.IntN(4) == 0 {
			hb.Running = append(hb.Running, Attempt{jobs[len(jobs)-1-i], 1})
		}
		if draw.IntN(2) == 0 {
			hb.Read = ""
		}
		switch draw.IntN(8) {
		case 0:
			hb.Epoch = "another"
		case 1:
			hb.Node = "unknown-" + node
		case 2:
			if err := r.Drain(r.ctx(), node); err != nil {
				r.t.Fatal(err)
			}
		case 3:
			hb.Resources = []byte(`{"at_ms":0,"cpu":0.5}`)
		case 4:
			hb.Resources = []byte(`{"cpu":0.5}`)
		case 5:
			r.do("HSET", r.l.Slots(node), "sum", "77") // an edit by hand
		}
		beats[i] = LinkedHeartbeat{hb, testLink(int64(1+draw.IntN(12)), "t")}
	}
	return beats
}

// withoutTimes is a dump without times, links, and what is drawn from them.
func withoutTimes(dump map[string]string) map[string]string {
	differs := regexp.MustCompile(`\b\d{16}\b|\b1\d{12}\b(-\d+)?( \d+ - \S+ t replica-1 0\.4\.0 1500)?|generation=[0-9a-f]{16}`)
	for key, text := range dump {
		dump[key] = differs.ReplaceAllString(text, "<>")
	}
	return dump
}

// TestHeartbeatLinked: the node lives for all who ask Redis, and gets jobs.
func TestHeartbeatLinked(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch, link := NewEpoch(), testLink(1, "t")
		_, err := r.RegisterLinked(r.ctx(), testNode("n1", 3), epoch, link, "")
		must(t, err)
		direct := r.register(testNode("n2", 1))
		r.silence("n2")
		first := submission("", "n2", "n1")
		if p, err := r.Submit(r.ctx(), first); err != nil || p.Node != "n1" {
			t.Errorf("a job after the registration: %+v, %v", p, err)
		}
		before := r.nowMS()
		got, err := r.HeartbeatLinked(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Resources: []byte(`{"at_ms":0,"cpu":1}`)}, link)
		if err != nil || got.AtMS < before || got.AtMS > r.nowMS() || len(got.Start) != 1 || got.Used != 1 || got.Revision != r.revision() {
			t.Errorf("%+v, %v; want no error, got.AtMS >= %v, got.AtMS <= r.nowMS(), len(got.Start) == 1, got.Used == 1, got.Revision == r.revision()", got, err, before)
		}
		if want := fmt.Sprint(got.AtMS, " ", mustEncode(t, link)); r.text(r.l.Load("n1")) != want {
			t.Errorf("load is %q, expected %q", r.text(r.l.Load("n1")), want)
		}
		if want := fmt.Sprintf(`{"at_ms":%d,"cpu":1}`, got.AtMS); r.resources("n1") != want {
			t.Errorf("resources are %s, expected %s", r.resources("n1"), want)
		}
		state, err := r.Nodes(r.ctx(), []string{"n1"})
		if err != nil || state.Nodes[0].LastHeartbeatMS != got.AtMS {
			t.Errorf("replicas read %+v, %v", state, err)
		}
		if p, err := r.Submit(r.ctx(), submission("", "n2", "n1")); err != nil || p.Node != "n1" {
			t.Errorf("a job of two candidates: %+v, %v", p, err)
		}
		if r.waits(""); r.take("n1") != 1 {
			t.Error("a job that waited did not begin")
		}
		if gone, err := r.Reap(r.ctx(), "n1", epoch); err != nil || gone.Gone {
			t.Errorf("reaped while it lives: %+v, %v", gone, err)
		}
		r.do("SET", r.l.Load("n1"), fmt.Sprint(before-r.HeartbeatLimit().Milliseconds()-1, " ", mustEncode(t, link)))
		if p, err := r.Submit(r.ctx(), submission("", "n1")); err != nil || p.Assigned || p.Refusals[0].Reason != RefusedSilent {
			t.Errorf("a job for a silent node: %+v, %v", p, err)
		}
		if gone, err := r.Reap(r.ctx(), "n1", epoch); err != nil || !gone.Gone || len(gone.Jobs) != 3 {
			t.Errorf("reap: %+v, %v", gone, err)
		}
		_, err = r.Deregister(r.ctx(), "n2", direct)
		must(t, err)
		r.cancelWaiting()
		r.sound()
	})
}

// text is a string, as Redis has it.
func (r *rig) text(key string) string {
	r.t.Helper()
	m := r.do("GET", key)
	text, err := m.ToString()
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

// TestLateHeartbeat: one of an earlier connection, of another epoch or of an unknown node changes
// nothing.
func TestLateHeartbeat(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 2))
		hb := Heartbeat{Node: "n1", Epoch: epoch, Running: []Attempt{{r.place("", 1, "n1"), 1}}, Resources: []byte(`{"a":1}`)}
		beat := func(hb Heartbeat, number int64) error {
			_, err := r.HeartbeatLinked(r.ctx(), hb, testLink(number, "t"))
			return err
		}
		must(t, beat(hb, 9)) // over a direct agent's
		must(t, beat(hb, 10))
		must(t, beat(hb, 10))
		late, other, unknown := hb, hb, hb
		late.Status, late.Read, late.Resources = freeslot.StatusDraining, "9999999999999-0", []byte(`{"a":2}`)
		other.Epoch, unknown.Node = "other", "n2"
		r.unchanged("a late heartbeat", func() {
			for _, c := range []struct {
				hb     Heartbeat
				number int64
				want   error
			}{{late, 9, ErrStaleConnection}, {late, 1, ErrStaleConnection}, {other, 11, ErrSuperseded}, {unknown, 11, ErrUnknownNode}} {
				if err := beat(c.hb, c.number); !errors.Is(err, c.want) {
					t.Errorf("%+v of connection %d: %v, expected %v", c.hb, c.number, err, c.want)
				}
			}
			bad := hb
			bad.Status = "dead"
			wantErr(t, beat(bad, 11), freeslot.CodeInvalidArgument)
			wantErr(t, beat(hb, 0), freeslot.CodeInvalidArgument)
		}, nil)
		r.sound()
	})
}

// TestHeartbeatUnderAnotherToken: who knows the epoch, which all can read, does not get a node that lives.
func TestHeartbeatUnderAnotherToken(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		direct, epoch := r.register(testNode("direct", 2)), NewEpoch()
		r.beat("direct", direct, "")
		_, err := r.RegisterLinked(r.ctx(), testNode("linked", 2), epoch, testLink(9, "owner"), "")
		must(t, err)
		for node, epoch := range map[string]Epoch{"direct": direct, "linked": epoch} {
			for _, number := range []int64{1, 99} {
				r.unchanged("a heartbeat under another token", func() {
					_, err := r.HeartbeatLinked(r.ctx(), Heartbeat{Node: node, Epoch: epoch}, testLink(number, "thief"))
					if !errors.Is(err, ErrNodeInUse) {
						t.Errorf("%s, connection %d: %v", node, number, err)
					}
				}, nil)
			}
		}
		_, err = r.HeartbeatLinked(r.ctx(), Heartbeat{Node: "linked", Epoch: epoch}, testLink(9, "owner"))
		must(t, err)
		r.silence("linked")
		_, err = r.HeartbeatLinked(r.ctx(), Heartbeat{Node: "linked", Epoch: epoch}, testLink(10, "other"))
		must(t, err) // its token has another name now
		r.sound()
	})
}

// TestHeartbeatsWithBadKeys: what an operator did to one node costs no other node of the call
// anything, and changes nothing of that one.
func TestHeartbeatsWithBadKeys(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		spoilt := []string{"profile", "slots", "stream", "load"}
		beats := make([]LinkedHeartbeat, 0, len(spoilt)+2)
		for _, node := range append([]string{"first"}, append(spoilt, "last")...) {
			epoch := r.register(testNode(node, 1))
			r.place("", 1, node)
			beats = append(beats, LinkedHeartbeat{Heartbeat{Node: node, Epoch: epoch, Read: "0-1"}, testLink(1, "t")})
		}
		for _, key := range []string{r.l.Node("profile"), r.l.Slots("slots"), r.l.Dispatch("stream"), r.l.Load("load")} {
			r.do("DEL", key)
			r.do("SADD", key, "x")
		}
		results := []HeartbeatResult(nil)
		r.unchanged("a heartbeat of a node with a bad key", func() {
			var err error
			results, err = r.heartbeats(r.ctx(), beats, r.runner.CallApart)
			must(t, err)
		}, func(dump map[string]string) {
			for key := range dump {
				if !strings.HasSuffix(key, ":profile") && !strings.HasSuffix(key, ":slots") && !strings.HasSuffix(key, ":stream") {
					delete(dump, key)
				}
			}
		})
		for i, result := range results {
			refused := i >= 1 && i <= 3
			if refused != (result.Err != nil) || refused != strings.Contains(fmt.Sprint(result.Err), "WRONGTYPE") {
				t.Errorf(`%s: %+v, %v; want refused == (result.Err != nil), refused == strings.Contains(fmt.Sprint(result.Err), "WRONGTYPE")`, beats[i].Node, result.HeartbeatReply, result.Err)
			}
			if !refused && len(result.Start) != 1 {
				t.Errorf("%s: %+v; want refused or len(result.Start) == 1", beats[i].Node, result.HeartbeatReply)
			}
		}
		if link, err := r.Link(r.ctx(), "load"); err != nil || !link.Alive || link.Link.Connection != 1 {
			t.Errorf("a load of another type is not mended: %+v, %v", link, err)
		}
	})
}
