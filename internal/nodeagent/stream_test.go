package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/worker"
)

func answer(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}
}

func TestHTTPStreams(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind, body string
		output     Output
		want       string
		code, says string
		retry      bool
	}{
		"ndjson":              {kind: ndjsonType, body: "{\"progress\":1}\n{\"result\":{\"a\": \"b\"}}\n", want: `{"a":"b"}`},
		"sse":                 {kind: sseType, body: "event: progress\ndata: 1\n\nevent: result\ndata: {\"a\":\ndata: 1}\n\n", want: `{"a":1}`},
		"nothing after it":    {kind: ndjsonType, body: "{\"result\":1}\nthis is not read", want: `1`},
		"null":                {kind: sseType, body: "event: result\ndata: null\n\n", want: `null`},
		"output json":         {kind: ndjsonType, output: OutputJSON, body: `{"result":"x"}`, want: `"x"`},
		"output text":         {kind: ndjsonType, output: OutputText, body: `{"result":1}`, want: `"{\"result\":1}"`},
		"output base64":       {kind: sseType, output: OutputBase64, body: "a", want: `"YQ=="`},
		"no result":           {kind: ndjsonType, body: "{\"progress\":1}\n", code: CodeUnreachable, says: "ended without a result", retry: true},
		"no events":           {kind: sseType, code: CodeUnreachable, says: "ended without a result", retry: true},
		"half a result":       {kind: sseType, body: "event: result\ndata: 1\n", code: CodeUnreachable, retry: true},
		"no event":            {kind: ndjsonType, body: "{\"done\":1}\n", code: CodeBadOutput, says: `{\"done\":1}`},
		"result is no JSON":   {kind: sseType, body: "event: result\ndata: done\n\n", code: CodeBadOutput, says: "not valid JSON"},
		"result not UTF-8":    {kind: ndjsonType, body: "{\"result\":\"\xff\"}\n", code: CodeBadOutput, says: "UTF-8"},
		"result too large":    {kind: ndjsonType, body: `{"result":"` + strings.Repeat("x", 999) + `"}`, code: freeslot.JobErrorResultTooLarge, says: "more than 1000 bytes"},
		"event too large":     {kind: sseType, body: strings.Repeat("data: x\n", 100_000), code: freeslot.JobErrorResultTooLarge, says: "an event of the stream"},
		"failed":              {kind: ndjsonType, body: `{"error":{"code":"no_voice","message":"none for de","retryable":false}}`, code: "no_voice", says: "none for de"},
		"failed for now":      {kind: sseType, body: "event: error\ndata: {\"code\":\"busy\",\"retryable\":true,\"more\":1}\n\n", code: "busy", retry: true},
		"failed without code": {kind: ndjsonType, body: `{"error":{"message":"x"}}`, code: CodeBadOutput, says: `{\"message\":\"x\"}`},
		"bad code":            {kind: ndjsonType, body: `{"error":{"code":"a b"}}`, code: CodeBadOutput},
		"error is no object":  {kind: sseType, body: "event: error\ndata: oops\n\n", code: CodeBadOutput, says: "oops"},
		"progress too large":  {kind: ndjsonType, body: `{"progress":"` + strings.Repeat("x", freeslot.MaxProgressBytes) + "\"}\n{\"result\":1}", want: `1`},
		"progress is no JSON": {kind: sseType, body: "event: progress\ndata: 50 %\n\nevent: result\ndata: 1\n\n", want: `1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := serve(t, answer(test.kind, test.body), func(c *HTTP) { c.Output = cmp.Or(test.output, c.Output) })
			result, err := e.run(t.Context(), testJob())
			if test.code != "" {
				wantCode(t, err, test.code, test.says)
				wantRetry(t, err, test.retry)
				return
			}
			if err != nil || text(t, result) != test.want {
				t.Errorf("%v, %v, expected %s", result, err, test.want)
			}
		})
	}
}

func TestHTTPAccept(t *testing.T) {
	t.Parallel()
	for output, want := range map[Output]string{
		OutputAuto: "application/json, application/x-ndjson;q=0.9, text/event-stream;q=0.8, */*;q=0.1", OutputText: "*/*",
	} {
		got := make(chan string, 2)
		handler := func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Accept") }
		for _, configured := range []string{"", "application/json"} {
			e := serve(t, handler, func(c *HTTP) {
				c.Output = output
				if configured != "" {
					c.Headers = map[string]string{"Accept": configured}
				}
			})
			if _, err := e.run(t.Context(), testJob()); err != nil {
				t.Fatal(err)
			}
			if accept := <-got; accept != cmp.Or(configured, want) {
				t.Errorf("%s, %q configured: %q", output, configured, accept)
			}
		}
	}
}

// Progress that cannot be sent is logged once a job, no matter how much of it there is.
func TestRefusedProgressIsLogged(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	e := serve(t, answer(sseType, strings.Repeat("event: progress\ndata: x\n\n", 50)+"event: result\ndata: 1\n\n"))
	e.log = zap.New(core)
	if _, err := e.run(t.Context(), testJob()); err != nil {
		t.Fatal(err)
	}
	if logs.Len() != 1 || logs.All()[0].Message != "progress.refused" || logs.All()[0].ContextMap()["job_id"] != testJob().ID {
		t.Errorf(`%v; want logs.Len() == 1, logs.All()[0].Message == "progress.refused", logs.All()[0].ContextMap()["job_id"] == testJob().ID`, logs.All())
	}
}

// A service that sends a byte now and then cannot exceed the timeout: in the head of its answer, in
// the body, in a refusal, or in a stream.
func TestHTTPSlowAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ begin, drip, code string }{
		"status":    {"", "H", CodeTimeout},
		"headers":   {"HTTP/1.1 200 OK\r\n", "X-A: b\r\n", CodeTimeout},
		"body":      {"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "x", CodeTimeout},
		"chunks":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", CodeTimeout},
		"refusal":   {"HTTP/1.1 500 Oops\r\nContent-Length: 500\r\n\r\n", "x", "http_500"},
		"stream":    {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", ": \n", CodeTimeout},
		"half line": {"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n", " ", CodeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drips := drip(t, test.begin, test.drip, 5*time.Millisecond)
			_, err := executor(t, drips, func(c *HTTP) { c.Timeout = 150 * time.Millisecond }).run(t.Context(), testJob())
			wantCode(t, err, test.code, "")
		})
	}
}

// drip is a service that sends the same bytes again and again, with pauses.
func drip(t *testing.T, begin, more string, pause time.Duration) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = listener.Close(); <-ended })
	go func() {
		defer close(ended)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 64<<10)) // the request
		_, err = io.WriteString(conn, begin)
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for ; err == nil; <-ticker.C {
			_, err = io.WriteString(conn, more)
		}
	}()
	return "http://" + listener.Addr().String()
}

// An endless answer is read no further than the limit.
func TestHTTPEndlessAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ kind, piece, code string }{
		"chunked body": {"text/plain", strings.Repeat("x", 1000), freeslot.JobErrorResultTooLarge},
		"one line":     {ndjsonType, strings.Repeat("x", 1000), freeslot.JobErrorResultTooLarge},
		"one event":    {sseType, "data: x\n", freeslot.JobErrorResultTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			aborted := make(chan struct{})
			e := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				defer close(aborted)
				w.Header().Set("Content-Type", test.kind)
				for err := error(nil); err == nil; {
					_, err = io.WriteString(w, test.piece)
				}
			})
			_, err := e.run(t.Context(), testJob())
			wantCode(t, err, test.code, "")
			<-aborted
		})
	}
	e := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 2*maxHeaderBytes))
	})
	_, err := e.run(t.Context(), testJob())
	wantCode(t, err, CodeUnreachable, "exceeded")
}

func TestHTTPIdleTimeout(t *testing.T) {
	t.Parallel()
	quiet := func(kind, before string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // the server sees the abort only then
			answer(kind, before)(w, r)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}
	short := func(c *HTTP) { c.IdleTimeout = 30 * time.Millisecond }
	for _, handler := range []http.HandlerFunc{quiet(sseType, ""), quiet(sseType, "event: progress\ndata: 1\n\n"), quiet(ndjsonType, `{"progress":1}`+"\n")} {
		_, err := serve(t, handler, short).run(t.Context(), testJob())
		wantCode(t, err, CodeIdleTimeout, "nothing for 30ms")
		wantRetry(t, err, true)
	}
	// Half lines do not count.
	_, err := executor(t, drip(t, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", "x", 5*time.Millisecond), short).run(t.Context(), testJob())
	wantCode(t, err, CodeIdleTimeout, "")
	// Other answers than streams have no idle timeout.
	_, err = serve(t, quiet("text/plain", "x"), short, func(c *HTTP) { c.Timeout = 100 * time.Millisecond }).run(t.Context(), testJob())
	wantCode(t, err, CodeTimeout, "")
}

// Each line, and each comment, begins the idle time anew.
func TestIdleTimeoutBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		idle := time.AfterFunc(time.Second, func() { _ = writer.CloseWithError(errIdle) })
		defer idle.Stop()
		go func() {
			for range 5 {
				time.Sleep(900 * time.Millisecond)
				_, _ = io.WriteString(writer, ": ping\n\n")
			}
		}()
		begun := time.Now()
		_, err := newEventReader(sseType, reader, 100, func() { idle.Reset(time.Second) }).next()
		if !errors.Is(err, errIdle) || time.Since(begun) != 5500*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}

func TestHTTPStreamIsCancelled(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	e := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server sees the abort only then
		answer(ndjsonType, `{"progress":1}`+"\n")(w, r)
		w.(http.Flusher).Flush()
		close(begun)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-begun; cancel(worker.ErrStalled) }()
	if _, err := e.run(ctx, testJob()); !errors.Is(err, worker.ErrStalled) {
		t.Errorf("error %v", err)
	}
}
