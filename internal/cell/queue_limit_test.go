package cell

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

// TestRunningLimit: jobs beyond the limit are held back beside free slots, without
// hiding those behind them, and go on one by one.
func TestRunningLimit(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 8))
		limited := []func(*Submission){of("acme", 1), limitedBy(RunningLimit("acme", 2))}
		var jobs []string
		for range 5 {
			jobs = append(jobs, r.waits("r1", limited...))
		}
		other := r.waits("r1", of("beta", 1))
		if got := r.take("n1"); got != 3 {
			t.Errorf("%d jobs began, expected two of the limited tenant and the other one", got)
		}
		if s := r.status(other); s.State != freeslot.StateRunning {
			t.Errorf("the other tenant's job is %s", s.State)
		}
		if used, err := r.Use(r.ctx(), []string{"beta", "acme"}); err != nil || used[0] != (Use{}) || used[1] != (Use{Running: 2, Held: 3, OldestHeldMS: used[1].OldestHeldMS}) || used[1].OldestHeldMS == 0 {
			t.Errorf("%+v, %v; want nothing counted for beta, and two running and three held jobs of acme", used, err)
		}
		r.sound()
		for i, job := range jobs {
			if s := r.status(job); s.State != freeslot.StateRunning {
				t.Fatalf("job %d is %s, its turn has come", i, s.State)
			}
			r.end("n1", epoch, job) // hands over by itself
			r.sound()
		}
		r.end("n1", epoch, other)
		r.check()
		if r.exists(r.l.Limits()) || r.exists(r.l.FullLimits()) {
			t.Error("limits without jobs are kept")
		}
		r.sound()
	})
}

// TestKeyLimit: whichever way a job stops to run, the next one of its key comes.
func TestKeyLimit(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		limited := limitedBy(KeyLimit("acme", "user 7", 1))
		stop := map[string]func(epoch Epoch, job string){
			"success": func(epoch Epoch, job string) { r.end("n1", epoch, job) },
			"failure": func(epoch Epoch, job string) { r.complete1(r.fails("n1", epoch, job, Never)) },
			"pause": func(epoch Epoch, job string) {
				c := r.fails("n1", epoch, job, Retry)
				c.RetryDelay = time.Hour
				r.complete1(c)
			},
			"cancellation": func(epoch Epoch, job string) {
				if _, err := r.Cancel(r.ctx(), "", job); err != nil {
					t.Fatal(err)
				}
				r.sound() // it counts until the agent confirms
				c := succeed("n1", epoch, job)
				c.State, c.Result = freeslot.StateCancelled, nil
				r.complete1(c)
			},
			"restart":  func(Epoch, string) { r.register(testNode("n1", 4)) },
			"stop":     func(epoch Epoch, _ string) { must(t, second(r.Deregister(r.ctx(), "n1", epoch))) },
			"deadline": func(_ Epoch, job string) { r.pass(job); r.due(10); r.pass(job); r.due(10) },
		}
		for name, f := range stop {
			epoch := r.register(testNode("n1", 4))
			first := r.waits("r1", limited, timeout(1000_000))
			then := r.waits("r1", limited)
			if r.take("n1"); r.status(first).State != freeslot.StateRunning || r.status(then).State != freeslot.StateWaiting {
				t.Fatalf("%s: %s and %s", name, r.status(first).State, r.status(then).State)
			}
			r.sound()
			f(epoch, first)
			r.sound()
			if !r.exists(r.l.Node("n1")) {
				r.register(testNode("n1", 4))
			}
			r.take("n1")
			running := 0
			for _, job := range []string{first, then} {
				if r.status(job).State == freeslot.StateRunning {
					running++
				}
			}
			if running != 1 {
				t.Errorf("after %s %d jobs of the key run: %s and %s", name, running, r.status(first).State, r.status(then).State)
			}
			r.sound()
			for _, job := range []string{first, then} {
				must(t, second(r.Cancel(r.ctx(), "", job)))
			}
			r.register(testNode("n1", 4)) // which ends what is being cancelled
			r.sound()
		}
	})
}

func second[T any](_ T, err error) error { return err }

// TestHeldBack: a job that is held back can be cancelled, attached to and expires.
func TestHeldBack(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		limited := limitedBy(RunningLimit("t1", 1), WaitingLimit("t1", 100))
		first := r.waits("", limited)
		r.take("n1")
		a, b, c := r.waits("r1", limited), r.waits("r1", limited, timeout(1000_000)), r.waits("r1", limited)
		if s := r.status(a); s.State != freeslot.StateWaiting || s.Position != 0 || s.HeldBy != freeslot.HeldByTenant {
			t.Errorf("held back: %+v", s)
		}
		r.sound()
		must(t, second(r.Attach(r.ctx(), "", a, "r2")))
		if s, err := r.Cancel(r.ctx(), "", a); err != nil || s.State != freeslot.StateCancelled {
			t.Errorf("cancelled: %+v, %v", s, err)
		}
		r.pass(b)
		r.due(10)
		if s := r.status(b); s.State != freeslot.StateExpired {
			t.Errorf("its time is over: %+v", s)
		}
		r.sound()
		r.end("n1", epoch, first)
		if s := r.status(c); s.State != freeslot.StateRunning {
			t.Errorf("the last is %s", s.State)
		}
		r.sound()
		r.end("n1", epoch, c)
	})
}

// TestWaitingLimit: beyond the limit jobs are refused, and others' are not.
func TestWaitingLimit(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		limit := limitedBy(WaitingLimit("acme", 2))
		first := r.waits("", of("acme", 1), limit)
		r.waits("", of("acme", 1), limit)
		s := submission("")
		s.Tenant, s.Limits = "acme", []Limit{WaitingLimit("acme", 2)}
		res := r.EnqueueAll(r.ctx(), []Submission{s})[0]
		var refused *freeslot.Error
		if !errors.As(res.Err, &refused) || refused.Code != freeslot.CodeOverloaded || refused.RetryAfter == 0 || !strings.Contains(refused.Message, "acme") {
			t.Errorf("the third: %+v", res)
		}
		if _, err := r.Job(r.ctx(), "", s.JobID); freeslot.CodeOf(err) != freeslot.CodeNotFound {
			t.Errorf("it was created: %v", err)
		}
		r.waits("", of("beta", 1))
		r.sound()
		epoch := r.register(testNode("n1", 1))
		r.take("n1")
		if s := r.status(first); s.State != freeslot.StateRunning {
			t.Fatalf("the first is %s", s.State)
		}
		r.waits("", of("acme", 1), limit) // one has begun
		r.sound()
		r.end("n1", epoch, first)
		r.sound()
	})
}

// TestGatesMended: what is left counted holds nobody up for long, nor does what an operator made of the keys.
func TestGatesMended(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 4))
		g := KeyLimit("t1", "k", 1)
		first := r.waits("", limitedBy(g))
		r.take("n1")
		// The first ends and goes on counting, as a migrating hash slot can have it.
		r.end("n1", epoch, first)
		r.do("SADD", r.l.Counted(g.name), first)
		r.do("HSET", r.l.Limits(), g.name, "1")
		held := r.waits("r1", limitedBy(g))
		if r.take("n1"); r.status(held).State != freeslot.StateWaiting {
			t.Fatal("not held back")
		}
		if n := r.check(); n != 1 {
			t.Errorf("%d classes came back", n)
		}
		if r.take("n1"); r.status(held).State != freeslot.StateRunning {
			t.Errorf("still held back: %+v", r.status(held))
		}
		r.sound()
		for _, key := range []string{r.l.Counted(g.name), r.l.LimitedBy(g.name), r.l.Limits(), r.l.FullLimits()} {
			next := r.waits("r1", limitedBy(g))
			r.do("DEL", key)
			r.do("SET", key, "not what it was")
			r.take("n1")
			r.check()
			r.check()
			must(t, second(r.Cancel(r.ctx(), "", next)))
			if s := r.status(next); s.State == freeslot.StateWaiting {
				t.Errorf("%s: %+v; want s.State != freeslot.StateWaiting", key, s)
			}
			r.register(testNode("n1", 4))
			r.check()
		}
	})
}

// TestLimitsAtRandom: whatever happens, no limit lets too many through, and in the end nobody is
// held back.
func TestLimitsAtRandom(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		services := []string{"echo", "asr", "tts"}
		classes := make([]string, len(services))
		for i, s := range services {
			classes[i] = ClassOf(&freeslot.Job{Service: s}).ID
		}
		nodes := []string{"n1", "n2"}
		epochs := make(map[string]Epoch)
		for _, n := range nodes {
			epochs[n] = r.register(testNode(n, 3))
		}
		var jobs []string
		ran := 0 // attempts that have ended
		end := func(job string) {
			if s := r.status(job); s.State == freeslot.StateRunning || s.State == freeslot.StateCancelling {
				c := Completion{Node: s.Node, Epoch: epochs[s.Node], Attempt: Attempt{job, s.Attempt}, State: freeslot.StateSucceeded}
				if s.State == freeslot.StateCancelling {
					c.State = freeslot.StateCancelled
				} else if again := Next(rng.IntN(6)); again == Retry || again == HandBack {
					c = r.fails(s.Node, epochs[s.Node], job, again)
				}
				r.complete1(c)
				ran++
			}
		}
		for range 50 {
			node := nodes[rng.IntN(2)]
			switch dice := rng.IntN(10); {
			case dice < 4:
				tenant := []string{"a", "b"}[rng.IntN(2)]
				g := []Limit{RunningLimit(tenant, 2), WaitingLimit(tenant, 20)}
				if rng.IntN(2) == 0 {
					g = append(g, KeyLimit(tenant, []string{"x", "y"}[rng.IntN(2)], 1))
				}
				s := submission("r1", nodes[:rng.IntN(3)]...)
				s.Tenant, s.Job.Service, s.Limits = tenant, services[rng.IntN(3)], g
				if res := r.EnqueueAll(r.ctx(), []Submission{s})[0]; res.Err == nil {
					jobs = append(jobs, s.JobID)
				}
			case dice < 7 && len(jobs) > 0:
				end(jobs[rng.IntN(len(jobs))])
			case dice < 8:
				r.take(node, classes[:1+rng.IntN(3)]...)
			case dice < 9 && len(jobs) > 0:
				must(t, second(r.Cancel(r.ctx(), "", jobs[rng.IntN(len(jobs))])))
			default:
				epochs[node] = r.register(testNode(node, 3))
			}
			r.sound()
		}
		for open := len(jobs); open > 0; {
			for _, n := range nodes { // a slow machine may have made them silent
				must(t, second(r.Heartbeat(r.ctx(), Heartbeat{Node: n, Epoch: epochs[n]})))
			}
			r.check()
			begun := r.take("n1", classes...) + r.take("n2", classes...)
			left, before := 0, ran
			for _, job := range jobs {
				end(job)
				if !r.status(job).State.Terminal() {
					left++
				}
			}
			// One that a completion handed a slot may run at first, and wait once more then.
			if left == open && begun == 0 && ran == before {
				t.Fatalf("%d jobs are held back for ever", left)
			}
			open = left
		}
		r.sound()
	})
}

// TestHeldBackIsListed: a job that a limit holds back is found by its state, its class and its limit.
func TestHeldBackIsListed(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("n1", 8))
		limited := limitedBy(KeyLimit("t1", "k", 2), RunningLimit("t1", 5))
		var want []string
		for range 2 {
			r.waits("", of("t1", 1), limited)
		}
		r.take("n1")
		for range 3 {
			want = append(want, r.waits("", of("t1", 1), limited))
		}
		// All but the first are held back once a node has looked at them.
		r.take("n1")
		for _, f := range []JobFilter{{State: freeslot.StateWaiting}, {State: freeslot.StateWaiting, Class: echo}, {State: freeslot.StateWaiting, Tenant: "t1"}} {
			for _, limit := range []int{1, 2, 100} {
				if ids, _ := r.all(f, limit); !slices.Equal(slices.Sorted(slices.Values(ids)), slices.Sorted(slices.Values(want))) {
					t.Errorf("%+v by %d lists %v, expected %v", f, limit, ids, want)
				}
			}
		}
		if ids, _ := r.all(JobFilter{Class: echo}, 2); len(ids) != 5 {
			t.Errorf("of the class: %v", ids)
		}
		// Another tenant's cursor would name the limit, and so the tenant.
		page, err := r.Jobs(r.ctx(), JobFilter{State: freeslot.StateWaiting, Tenant: "t2"}, "", 1)
		if err != nil || len(page.Jobs) != 0 || page.Cursor != "" {
			t.Errorf("of another tenant: %+v, %v", page, err)
		}
		full, err := r.FullLimits(r.ctx())
		if err != nil || len(full) != 1 || full[0] != (FullLimit{By: freeslot.HeldByKey, Tenant: "t1", Limit: 2, Running: 2, Jobs: 3, First: want[0]}) {
			t.Errorf(`%+v, %v; want no error, len(full) == 1, full[0] == (FullLimit{By: freeslot.HeldByKey, Tenant: "t1", Limit: 2, Running: 2, Jobs: 3, First: want[0]})`, full, err)
		}
	})
}
