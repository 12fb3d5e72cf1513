package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

func succeeds(id int) string {
	return fmt.Sprintf(`{"type":"complete","id":%d,"attempt":"%s:1","state":"succeeded","result":%d}`, id, jobID, id)
}

// readFrame returns the ids of a frame's messages.
func (p *peer) readFrame() (ids []uint64) {
	p.t.Helper()
	_, text, err := p.conn.Read(p.t.Context())
	if err == nil {
		err = frame.DecodeAnswers(text, func(a *frame.Answer) error {
			ids = append(ids, a.ID)
			return nil
		})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return ids
}

// TestEndsOfOneFrame: the ends that come in one frame share a call, and their answers a frame, except
// those that go alone or are wrong.
func TestEndsOfOneFrame(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		var calls []string
		shared, release := make(chan struct{}), make(chan struct{})
		releaseShared, releaseAlone := sync.OnceFunc(func() { close(shared) }), sync.OnceFunc(func() { close(release) })
		defer releaseAlone()
		defer releaseShared()
		s.cell.shared = func(_ context.Context, comps []cell.Completion) ([]cell.SharedOutcome, error) {
			<-shared
			calls = append(calls, fmt.Sprint("shared ", len(comps)))
			return slices.Repeat([]cell.SharedOutcome{cell.SharedCompleted}, len(comps)), nil
		}
		s.cell.complete = func(context.Context, cell.Completion) (cell.CompletionOutcome, error) {
			<-release
			return cell.Completed, nil
		}
		p := s.connect()
		texts := []string{succeeds(1), succeeds(2), `{"type":"complete","id":3}`, succeeds(4)}
		texts = append(texts, `{"type":"complete","id":5,"attempt":"`+jobID+`:1","state":"cancelled"}`)
		p.send("[" + strings.Join(texts, ",") + "]")
		if ids := p.readFrame(); !slices.Equal(ids, []uint64{3}) {
			t.Errorf("the first frame answers %v", ids)
		}
		releaseShared()
		if ids := p.readFrame(); !slices.Equal(ids, []uint64{1, 2, 4}) {
			t.Errorf("the frame of the shared call answers %v", ids)
		}
		releaseAlone()
		if ids := p.readFrame(); !slices.Equal(ids, []uint64{5}) || !slices.Equal(calls, []string{"shared 3"}) {
			t.Errorf("the last frame answers %v, calls %v", ids, calls)
		}
	})
}

// TestMixedFrame: while the ends of a frame wait for Redis, its other requests are answered.
func TestMixedFrame(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		release := make(chan struct{})
		s.cell.shared = func(_ context.Context, comps []cell.Completion) ([]cell.SharedOutcome, error) {
			<-release
			return slices.Repeat([]cell.SharedOutcome{cell.SharedCompleted}, len(comps)), nil
		}
		p := s.connect()
		p.send("[" + strings.Join([]string{
			succeeds(1), `{"type":"spec","id":2,"job_id":"x"}`, succeeds(3), `{"type":"heartbeat","id":4,"now":true}`,
			`{"type":"progress","id":5,"reports":[]}`, succeeds(6), `{"type":"register","id":7}`, `{"type":"deregister","id":8}`,
		}, ",") + "]")
		var answered []uint64
		for len(answered) < 5 {
			answered = append(answered, p.readFrame()...)
		}
		if slices.Sort(answered); !slices.Equal(answered, []uint64{2, 4, 5, 7, 8}) {
			t.Errorf("%v are answered before the ends", answered)
		}
		close(release)
		var ends []uint64
		for len(ends) < 3 {
			ends = append(ends, p.readFrame()...)
		}
		if slices.Sort(ends); !slices.Equal(ends, []uint64{1, 3, 6}) {
			t.Errorf("%v are answered behind", ends)
		}
	})
}

// TestProgressOfOneFrame: the progress messages of a frame share a call while each attempt is named
// once and the reports fit. One that is refused refuses no other.
func TestProgressOfOneFrame(t *testing.T) {
	t.Parallel()
	progress := func(id int, attempts ...int) string {
		reports := make([]string, len(attempts))
		for i, n := range attempts {
			reports[i] = fmt.Sprintf(`{"attempt":"%s:%d","seq":1,"value":%d}`, jobID, n, n)
		}
		return fmt.Sprintf(`{"type":"progress","id":%d,"reports":[%s]}`, id, strings.Join(reports, ","))
	}
	many := make([]int, cell.MaxProgressItems)
	for i := range many {
		many[i] = 100 + i
	}
	inBubble(t, func(t *testing.T, s *server) {
		var calls []int
		s.cell.progress = func(_, _ string, reports []cell.ProgressReport) ([]cell.ProgressOutcome, error) {
			calls = append(calls, len(reports))
			out := make([]cell.ProgressOutcome, len(reports))
			for i, r := range reports {
				if r.Attempt.N == 13 {
					return nil, freeslot.Invalid("value", "is wrong")
				}
				out[i] = cell.ProgressStale
				if r.Attempt.N == 2 {
					out[i] = cell.ProgressCancel
				}
			}
			return out, nil
		}
		p := s.connect()
		for _, tc := range []struct {
			frame   []string
			calls   []int
			answers string
		}{
			{[]string{progress(1, 1, 2), progress(2, 3), progress(3, 2)}, []int{3, 1}, "1 [stale cancel], 2 [stale], 3 [cancel], "},
			{[]string{progress(4, 1), progress(5, 13), progress(6, 2)}, []int{3, 1, 1, 1}, "4 [stale], 5 invalid_argument, 6 [cancel], "},
			{[]string{progress(7, 1), progress(8, many...), progress(9, 2)}, []int{1, len(many), 1}, ""},
			{[]string{progress(10, 4, 4), progress(11)}, []int{2, 0}, ""},
		} {
			calls = nil
			p.send("[" + strings.Join(tc.frame, ",") + "]")
			var answers strings.Builder
			for range tc.frame {
				var a frame.Answer
				if err := json.Unmarshal(p.read(), &a); err != nil {
					t.Fatal(err)
				}
				if a.Type == frame.TypeError {
					fmt.Fprintf(&answers, "%d %s, ", a.ID, a.Code)
				} else {
					fmt.Fprintf(&answers, "%d %v, ", a.ID, a.Outcomes)
				}
			}
			if !slices.Equal(calls, tc.calls) || tc.answers != "" && answers.String() != tc.answers {
				t.Errorf("calls of %v reports, expected %v; answers %s, expected %s", calls, tc.calls, answers.String(), tc.answers)
			}
		}
	})
}

// TestLimitsOfAFrame: each message of a frame counts, and a refusal names its message.
func TestLimitsOfAFrame(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		release := make(chan struct{})
		s.cell.shared = func(_ context.Context, comps []cell.Completion) ([]cell.SharedOutcome, error) {
			<-release
			return slices.Repeat([]cell.SharedOutcome{cell.SharedCompleted}, len(comps)), nil
		}
		p := s.connect()
		var texts []string
		for id := range frame.MaxRequests + 2 {
			texts = append(texts, succeeds(id+1))
		}
		p.send("[" + strings.Join(texts, ",") + "]")
		for id := frame.MaxRequests + 1; id <= frame.MaxRequests+2; id++ {
			p.expect(fmt.Sprintf(`{"type":"error","id":%d,"code":"overloaded",…}`, id))
		}
		close(release)
		answered := map[uint64]bool{}
		for range frame.MaxRequests {
			var a frame.Answer
			if err := json.Unmarshal(p.read(), &a); err != nil || a.Outcome != string(cell.Completed) {
				t.Fatalf("%+v, error %v", a, err)
			}
			answered[a.ID] = true
		}
		if len(answered) != frame.MaxRequests {
			t.Errorf("%d of %d are answered", len(answered), frame.MaxRequests)
		}
		synctest.Wait()
		for _, live := range s.sessions() {
			live.mu.Lock()
			defer live.mu.Unlock()
			if live.requesting != 0 || live.bytes != 0 || live.owner.bytes.Load() != 0 {
				t.Errorf("%d requests of %d bytes are under way", live.requesting, live.bytes)
			}
		}
	})
}

func (s *server) sessions() (all []*session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, live := range s.live {
		all = append(all, live)
	}
	return all
}

// TestEndsBeforeADefect: what came before a message that ends the session is carried out, also if the
// session is over before.
func TestEndsBeforeADefect(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		release, ended := make(chan struct{}), 0
		s.cell.shared = func(_ context.Context, comps []cell.Completion) ([]cell.SharedOutcome, error) {
			<-release
			ended += len(comps)
			return slices.Repeat([]cell.SharedOutcome{cell.SharedAlone}, len(comps)), nil
		}
		alone := 0
		s.cell.complete = func(context.Context, cell.Completion) (cell.CompletionOutcome, error) {
			alone++
			return cell.Completed, nil
		}
		p := s.connect()
		live := s.sessions()[0]
		p.send("[" + succeeds(1) + "," + succeeds(2) + `,{"type":"nap","id":3},` + succeeds(4) + "]")
		p.ends(websocket.StatusCode(frame.CloseDefect))
		synctest.Wait()
		select {
		case <-live.done:
			t.Error("the session did not wait for its requests")
		default:
		}
		close(release)
		<-live.done
		if ended != 2 || alone != 2 {
			t.Errorf("%d of 2 went in a shared call, and %d of 2 alone", ended, alone)
		}
	})
}

// TestJobsThatComeTogether are one message, unless they are large.
func TestJobsThatComeTogether(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		p := s.connect()
		p.send(`{"type":"heartbeat","id":1,"now":true}`)
		p.expect(`{"type":"beat","id":1}`)
		jobs := func(n, payload int) {
			found := make([]cell.Dispatch, n)
			for i := range found {
				found[i] = job(200, i+1)
				found[i].Job = &freeslot.Job{Service: "s", Payload: json.RawMessage(`"` + strings.Repeat("x", payload) + `"`)}
			}
			s.cell.stream <- p.brought(found...)
		}
		jobs(16, 10)
		var a frame.Answer
		if err := json.Unmarshal(p.read(), &a); err != nil || len(a.Jobs) != 16 {
			t.Errorf("%d of 16 jobs in the first message, error %v", len(a.Jobs), err)
		}
		jobs(16, 8000)
		for left := 16; left > 0; left -= len(a.Jobs) {
			text := p.read()
			if a = (frame.Answer{}); json.Unmarshal(text, &a) != nil || len(text) > jobBytes+1<<10 {
				t.Fatalf("a message of %d bytes", len(text))
			}
		}
	})
}
