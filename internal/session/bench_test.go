package session

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/wire"
)

// instantDispatcher runs every job at once and keeps nothing.
type instantDispatcher struct{ Dispatcher }

func (instantDispatcher) Submit(_ context.Context, reqs []dispatch.Request, sink dispatch.Sink, accepted func(int, dispatch.Accepted, error)) {
	for i, r := range reqs {
		id := cellID(i)
		accepted(i, dispatch.Accepted{JobID: id}, nil)
		sink.Assigned(dispatch.Assignment{JobID: id, Node: "node-1", Attempt: 1, AssignedAtMS: 1})
		sink.Result(freeslot.JobStatus{
			ID: id, Tenant: r.Tenant, Service: r.Job.Service, State: freeslot.StateSucceeded, Node: "node-1", Attempt: 1, Slots: 1,
			Result: r.Job.Payload, SubmittedAtMS: 1, AssignedAtMS: 1, FinishedAtMS: 2,
		})
	}
}

func (instantDispatcher) Forget(dispatch.Sink) {}

func cellID(i int) string { return "0-01JD5Y8G6W9V0M5T2C3Q4R7" + string(rune('A'+i%26)) + "8Z" }

// BenchmarkSession measures what a session adds to a job, including the client's side and the
// loopback. jobs=1 is one job after another, jobs=20 as many in a batch.
func BenchmarkSession(b *testing.B) {
	job := `{"service":"tts","payload":{"text":"a sentence of a usual length, which is spoken"},"requirement":{"target_language":"en"}}`
	for _, frames := range []string{"single", "batch"} {
		for name, request := range map[string]string{
			"jobs=1":  `{"type":"submit","id":"r","job":` + job + `}`,
			"jobs=20": `{"type":"submit","id":"r","jobs":[` + strings.Repeat(job+",", 19) + job + `]}`,
		} {
			b.Run("frames="+frames+"/"+name, func(b *testing.B) { benchmarkSession(b, frames, []byte(request), strings.Count(request, "tts")) })
		}
	}
}

func benchmarkSession(b *testing.B, frames string, request []byte, jobs int) {
	h, err := New(Config{}, instantDispatcher{}, fakeAuth{}, zap.NewNop(), nil)
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	ctx := context.Background()
	conn, _, err := websocket.Dial(ctx, server.URL+"?frames="+frames, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer acme"}}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = conn.CloseNow()
		_ = h.Stop(ctx)
	}()
	conn.SetReadLimit(-1)
	b.ReportAllocs()
	for b.Loop() {
		if err := conn.Write(ctx, websocket.MessageText, request); err != nil {
			b.Fatal(err)
		}
		for results := 0; results < jobs; {
			_, frame, err := conn.Read(ctx)
			if err != nil {
				b.Fatal(err)
			}
			err = wire.DecodeMessages(frame, func(m *wire.Message) {
				if m.Type == wire.TypeResult {
					results++
				}
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*jobs), "ns/job")
}
