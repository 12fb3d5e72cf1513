package cell

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// withComplete are the scripts with an edit of complete.lua.
func withComplete(t testing.TB, part, edited string) script.Set {
	t.Helper()
	text := scripts["complete"].Text(false)
	if strings.Count(text, part) != 1 {
		t.Fatalf("complete.lua has %d of %q", strings.Count(text, part), part)
	}
	set := maps.Clone(scripts)
	set["complete"] = script.New("complete", strings.Replace(text, part, edited, 1))
	return set
}

// ifPlain is where complete.lua tells plain calls from the others.
const ifPlain = "if plain and #open == 0 and tonumber(waiting) then\n"

// countPlain are scripts that count the calls of complete.lua which complete_plain.lua carries out;
// plainEnds reads the count.
func countPlain(t testing.TB) script.Set {
	return withComplete(t, ifPlain, ifPlain+"  redis.call('INCR', prefix .. ':plain' .. tag)\n")
}

func (r *rig) plainEnds() int {
	r.t.Helper()
	m := r.do("GET", r.l.key("plain", ""))
	n, _ := m.ToString()
	count, _ := strconv.Atoi(n)
	return count
}

// TestPlainEnds: complete_plain.lua leaves behind what the general code of complete.lua leaves, and answers
// the same, whatever ends together.
func TestPlainEnds(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		base := newRig(t, redis)
		sets := []script.Set{countPlain(t), withComplete(t, ifPlain, "if false then\n")}
		calls, plain := 0, 0
		rapid.Check(t, func(rt *rapid.T) {
			retention := rapid.SampledFrom([]time.Duration{time.Minute, DefaultRetention, 25 * time.Hour}).Draw(rt, "retention")
			twins := make([]*rig, len(sets))
			for i := range twins {
				cfg := Config{Layout: base.l, CallTimeout: patience, HeartbeatLimit: time.Hour, Retention: retention}
				cfg.Layout.Prefix = redis.Prefix(t)
				c, err := New(cfg, base.client, zap.NewNop(), nil)
				if err != nil {
					rt.Fatal(err)
				}
				c.scripts = sets[i]
				twins[i] = &rig{Cell: c, t: t, redis: redis, raw: base.raw, l: cfg.Layout}
			}
			both := func(what string, do func(r *rig) (any, error)) any {
				a, errA := do(twins[0])
				b, errB := do(twins[1])
				check(rt, what, fmt.Sprint(b, errB), fmt.Sprint(a, errA), nil, nil)
				return a
			}
			node := testNode("n1", rapid.SampledFrom([]int{12, 12, 5, 1}).Draw(rt, "max"))
			both("prepare", func(r *rig) (any, error) {
				if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
					return nil, err
				}
				if err := r.OpenReplies(r.ctx(), "r2"); err != nil {
					return nil, err
				}
				_, err := r.Register(r.ctx(), node, "e1")
				return nil, err
			})
			var jobs []string
			for _, placed := range []bool{true, false} {
				for range rapid.IntRange(0, map[bool]int{true: 5, false: 2}[placed]).Draw(rt, "jobs") {
					s := drawEnding(rt)
					jobs = append(jobs, s.JobID)
					if placed {
						both("submit", func(r *rig) (any, error) {
							p, err := r.Cell.submit(r.ctx(), encoded(t, s))
							return p[0].Assigned, err
						})
						continue
					}
					if rapid.IntRange(0, 5).Draw(rt, "limited") == 5 {
						s.Limits = []Limit{KeyLimit("acme", "a", 2)}
					}
					both("enqueue", func(r *rig) (any, error) { return bare(r.enqueued(s)[0]), nil })
				}
				if !placed {
					both("take", func(r *rig) (any, error) { return r.Take(r.ctx(), "n1", modelClasses[:1], 1) })
				}
			}
			for _, job := range jobs {
				if rapid.IntRange(0, 15).Draw(rt, "cancelled") == 15 {
					both("cancel", func(r *rig) (any, error) {
						s, err := r.Cancel(r.ctx(), "", job)
						return s.State, err
					})
				}
				if rapid.IntRange(0, 15).Draw(rt, "deleted") == 15 {
					both("delete", func(r *rig) (any, error) { return r.int("DEL", r.l.Job(job)), nil })
				}
			}
			left := make([]Attempt, len(jobs))
			for i, job := range jobs {
				left[i] = Attempt{job, 1}
			}
			for len(left) > 0 {
				var retried []string
				comps := make([]Completion, rapid.IntRange(1, min(3, len(left))).Draw(rt, "items"))
				for i := range comps {
					comps[i] = drawEnd(rt, left[i])
					if comps[i].Next == Retry && left[i].N == 1 {
						left, retried = append(left, Attempt{left[i].Job, 2}), append(retried, left[i].Job)
					}
				}
				left = left[len(comps):]
				if rapid.IntRange(0, 7).Draw(rt, "again") == 7 {
					comps = append(comps, drawEnd(rt, Attempt{rapid.SampledFrom(jobs).Draw(rt, "job"), 1}))
				}
				both("complete", func(r *rig) (any, error) { return r.Cell.complete(r.ctx(), comps) })
				calls++
				both("take again", func(r *rig) (any, error) {
					for _, job := range retried {
						r.forgive(job) // else the node avoids it for a while
					}
					return r.Take(r.ctx(), "n1", modelClasses[:1], 1)
				})
				check(rt, "Redis", timelessDump(twins[1]), timelessDump(twins[0]), nil, nil)
			}
			plain += twins[0].plainEnds()
		})
		if t.Logf("%d calls, %d of them plain", calls, plain); plain < calls/10 || plain > calls*9/10 {
			t.Errorf("%d of %d calls are plain, expected many of each", plain, calls)
		}
	})
}

func drawEnding(rt *rapid.T) Submission {
	s := submission(rapid.SampledFrom([]string{"", "r1", "r2", "closed"}).Draw(rt, "reply to"), "n1")
	s.Job.Slots = rapid.SampledFrom([]int{0, 0, 2}).Draw(rt, "slots")
	s.Job.TimeoutMS = rapid.SampledFrom([]int64{0, 0, 10 * time.Hour.Milliseconds()}).Draw(rt, "timeout")
	s.Job.Service = rapid.SampledFrom([]string{"echo", "echo", "echo", "echo", "echo", "echo", "echo", "tts"}).Draw(rt, "service") // nobody takes tts
	return s
}

// drawEnd mostly ends a job as it should.
func drawEnd(rt *rapid.T, of Attempt) Completion {
	c := succeed("n1", "e1", of.Job)
	c.Attempt = of
	length := rapid.SampledFrom([]int{0, 1, 9, 9, 9, 40_000, 70_000}).Draw(rt, "length")
	if c.Result = nil; length > 0 {
		c.Result = []byte(strings.Repeat("7", length))
	}
	switch rapid.IntRange(0, 19).Draw(rt, "kind") {
	case 19:
		c.Attempt.N++
	case 18:
		c.State, c.Result = freeslot.StateCancelled, nil
	case 17, 13, 12:
		c.State, c.Result, c.Error, c.Next = freeslot.StateFailed, nil, &freeslot.JobError{Code: "boom"}, Retry
	case 14, 15, 16:
		c.State, c.Error = freeslot.StateFailed, &freeslot.JobError{Code: "boom"}
		if length != 9 {
			c.Result = nil
		}
	}
	return c
}

var (
	// Microseconds, milliseconds, ids of streams, and what is made of a time.
	anyTime = regexp.MustCompile(`\b1\d{15}\b|\b1\d{12}(-\d+)?\b|\bgeneration=[0-9a-f]{16}`)
	expiry  = regexp.MustCompile(` until (\d+)\n`)
)

// timelessDump is what a cell has in Redis, without times. Only the minutes of an expiry are left.
func timelessDump(r *rig) map[string]string {
	dump, now := r.dump(), r.nowMS()
	delete(dump, strings.TrimPrefix(r.l.key("plain", ""), r.l.Prefix+":"))
	for key, text := range dump {
		text = expiry.ReplaceAllStringFunc(text, func(s string) string {
			until, _ := strconv.ParseInt(expiry.FindStringSubmatch(s)[1], 10, 64)
			return fmt.Sprintf(" for %d minutes\n", (until-now+59_000)/60_000)
		})
		lines := strings.Split(anyTime.ReplaceAllString(text, "<time>"), "\n")
		slices.Sort(lines)
		dump[key] = strings.Join(lines, "\n")
	}
	return dump
}
