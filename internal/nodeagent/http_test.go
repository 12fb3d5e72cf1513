package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/worker"
)

func testJob() *worker.Job {
	return &worker.Job{
		ID: "0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z", Tenant: "acme", Service: "tts", Attempt: 2, Slots: 1,
		Payload:     json.RawMessage(`{"text":"hello"}`),
		Requirement: freeslot.Requirement{TargetLanguage: "de-AT"},
	}
}

// serve runs a service for one test and returns an executor for it.
func serve(t *testing.T, handler http.HandlerFunc, change ...func(*HTTP)) *httpExecutor {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return executor(t, server.URL, change...)
}

func executor(t *testing.T, url string, change ...func(*HTTP)) *httpExecutor {
	t.Helper()
	cfg := HTTP{URL: url, Timeout: time.Minute, Output: OutputAuto}
	for _, c := range change {
		c(&cfg)
	}
	e := newHTTP(cfg, 1000, 2, zap.NewNop())
	t.Cleanup(e.close)
	return e
}

// text is a result as JSON.
func text(t *testing.T, result any) string {
	t.Helper()
	raw, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func wantCode(t *testing.T, err error, code, says string) {
	t.Helper()
	var e *freeslot.JobError
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Message, says) {
		t.Errorf("error %v, expected code %s with %q", err, code, says)
	}
}

// wantRetry checks whether worker.Retryable or RetryAfter has marked the error.
func wantRetry(t *testing.T, err error, want bool) {
	t.Helper()
	mark := reflect.TypeOf(worker.Retryable(errors.New("")))
	marked := false
	for ; err != nil && !marked; err = errors.Unwrap(err) {
		marked = reflect.TypeOf(err) == mark
	}
	if marked != want {
		t.Errorf("retryable %v, expected %v", marked, want)
	}
}

func TestHTTPRequest(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	e := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = io.WriteString(w, `{"ok":true}`)
	}, func(c *HTTP) {
		c.URL += "/run?x=1"
		c.Headers = map[string]string{"Authorization": "Bearer abc", "X-Freeslot-Job-Id": "forged"}
	})
	ctx, span := sdktrace.NewTracerProvider().Tracer("").Start(t.Context(), "job")
	defer span.End()
	result, err := e.run(ctx, testJob())
	if err != nil || text(t, result) != `{"ok":true}` {
		t.Fatalf("%v %v; want no error, text(t, result) == `{\"ok\":true}`", result, err)
	}
	if got.Method != http.MethodPost || got.URL.String() != "/run?x=1" || string(body) != `{"text":"hello"}` {
		t.Errorf("%s %s %s; want got.Method == http.MethodPost, got.URL.String() == \"/run?x=1\", string(body) == `{\"text\":\"hello\"}`", got.Method, got.URL, body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Authorization": "Bearer abc",
		"X-Freeslot-Job-Id": testJob().ID, "X-Freeslot-Attempt": "2", "X-Freeslot-Tenant": "acme", "X-Freeslot-Service": "tts",
		"X-Freeslot-Target-Language": "de-AT", "X-Freeslot-Source-Language": "",
		"Traceparent": "00-" + span.SpanContext().TraceID().String() + "-" + span.SpanContext().SpanID().String() + "-01",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q, expected %q", name, got.Header.Get(name), want)
		}
	}
}

func TestHTTPResponses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status      int
		contentType string
		body        string
		output      Output
		want        string
		code, says  string
	}{
		"json":            {contentType: "application/json", body: `[1]`, want: `[1]`},
		"json, marked":    {contentType: "application/json", body: "\ufeff[1]", want: `[1]`},
		"json suffix":     {contentType: "application/problem+json", body: `{}`, want: `{}`},
		"bad json":        {contentType: "application/json", body: `[1`, code: CodeBadOutput, says: "not valid JSON"},
		"json not UTF-8":  {contentType: "application/json", body: "[\"\xff\"]", code: CodeBadOutput, says: "output: base64"},
		"text":            {contentType: "text/plain", body: `hi "you"`, want: `"hi \"you\""`},
		"no type":         {body: `42`, want: `"42"`},
		"empty":           {contentType: "application/json", want: `null`},
		"no content":      {status: http.StatusNoContent, want: `null`},
		"binary":          {contentType: "audio/wav", body: "\xff\xfe", code: CodeBadOutput, says: "output: base64"},
		"base64":          {contentType: "audio/wav", body: "\xff\xfe", output: OutputBase64, want: `"//4="`},
		"forced json":     {contentType: "text/plain", body: `42`, output: OutputJSON, want: `42`},
		"forced text":     {contentType: "application/json", body: `42`, output: OutputText, want: `"42"`},
		"at the limit":    {body: strings.Repeat("x", 1000), want: `"` + strings.Repeat("x", 1000) + `"`},
		"over the limit":  {body: strings.Repeat("x", 1001), code: freeslot.JobErrorResultTooLarge, says: "more than 1000 bytes"},
		"refused":         {status: http.StatusUnprocessableEntity, body: " no voice \n", code: "http_422", says: "422 Unprocessable Entity: no voice"},
		"refused at once": {status: http.StatusServiceUnavailable, code: "http_503", says: "answered 503"},
		"long refusal":    {status: http.StatusBadGateway, body: strings.Repeat("x", 10_000), code: "http_502", says: strings.Repeat("x", excerptBytes)},
		"redirect":        {status: http.StatusFound, code: "http_302"},
		"too many":        {status: http.StatusTooManyRequests, code: "http_429"},
		"gateway timeout": {status: http.StatusGatewayTimeout, code: "http_504"},
		"broken":          {status: http.StatusInternalServerError, code: "http_500"},
		"no such path":    {status: http.StatusNotFound, code: "http_404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = nil
				if test.contentType != "" {
					w.Header().Set("Content-Type", test.contentType)
				}
				w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
				if test.status != 0 {
					w.WriteHeader(test.status)
				}
				_, _ = io.WriteString(w, test.body)
			}, func(c *HTTP) {
				if test.output != "" {
					c.Output = test.output
				}
			})
			result, err := e.run(t.Context(), testJob())
			if test.code != "" {
				wantCode(t, err, test.code, test.says)
				wantRetry(t, err, slices.Contains([]string{"http_429", "http_502", "http_503", "http_504"}, test.code))
				if len(err.Error()) > 2*excerptBytes {
					t.Errorf("an error of %d bytes", len(err.Error()))
				}
				return
			}
			if err != nil || text(t, result) != test.want {
				t.Errorf("%v, %v, expected %s", result, err, test.want)
			}
		})
	}
}

func TestHTTPUnreachable(t *testing.T) {
	t.Parallel()
	_, err := executor(t, "http://user:hidden@127.0.0.1:1/").run(t.Context(), testJob())
	wantCode(t, err, CodeUnreachable, "connection refused")
	wantRetry(t, err, true)
	if strings.Contains(err.Error(), "hidden") {
		t.Error("the message gives a secret away")
	}
	broken := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "x") // and no more
	})
	_, err = broken.run(t.Context(), testJob())
	wantCode(t, err, CodeUnreachable, "unexpected EOF")
	wantRetry(t, err, true)
	reset := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close()) // RST
		}
	})
	_, err = reset.run(t.Context(), testJob())
	wantCode(t, err, CodeUnreachable, "")
	wantRetry(t, err, true)
}

func TestHTTPRetryAfter(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		status int
		header string
		want   error
	}{
		"none":         {status: http.StatusServiceUnavailable, want: worker.Retryable(refused)},
		"seconds":      {status: http.StatusServiceUnavailable, header: "7", want: worker.RetryAfter(refused, 7*time.Second)},
		"at once":      {status: http.StatusTooManyRequests, header: "0", want: worker.RetryAfter(refused, 0)},
		"too long":     {status: http.StatusTooManyRequests, header: "86400", want: worker.RetryAfter(refused, worker.MaxRetryAfter)},
		"out of range": {status: http.StatusBadGateway, header: "99999999999999999999", want: worker.RetryAfter(refused, worker.MaxRetryAfter)},
		"negative":     {status: http.StatusGatewayTimeout, header: "-1", want: worker.Retryable(refused)},
		"a date":       {status: http.StatusServiceUnavailable, header: "Wed, 21 Oct 2026 07:28:00 GMT", want: worker.Retryable(refused)},
		"fatal":        {status: http.StatusInternalServerError, header: "7", want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp := &http.Response{StatusCode: test.status, Header: http.Header{}}
			if test.header != "" {
				resp.Header.Set("Retry-After", test.header)
			}
			if got := retryRefusal(resp, refused); fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", test.want) {
				t.Errorf("%#v, expected %#v", got, test.want)
			}
		})
	}
}

func TestHTTPEndsWithItsContext(t *testing.T) {
	t.Parallel()
	begun, aborted := make(chan struct{}, 2), make(chan struct{}, 2)
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server sees the abort only then
		begun <- struct{}{}
		<-r.Context().Done()
		aborted <- struct{}{}
	}
	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		e := serve(t, hang)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-begun; cancel(worker.ErrCancelled) }()
		if _, err := e.run(ctx, testJob()); !errors.Is(err, worker.ErrCancelled) {
			t.Errorf("error %v", err)
		}
		<-aborted
	})
	t.Run("timeout", func(t *testing.T) {
		t.Parallel()
		_, err := serve(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() },
			func(c *HTTP) { c.Timeout = 20 * time.Millisecond }).run(t.Context(), testJob())
		wantCode(t, err, CodeTimeout, "longer than 20ms")
		wantRetry(t, err, false)
	})
	t.Run("timeout in the body", func(t *testing.T) {
		t.Parallel()
		_, err := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, func(c *HTTP) { c.Timeout = 50 * time.Millisecond }).run(t.Context(), testJob())
		wantCode(t, err, CodeTimeout, "longer than 50ms")
		wantRetry(t, err, false)
	})
}

func TestHTTPNoPayloadIsNull(t *testing.T) {
	t.Parallel()
	e := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	if result, err := e.run(t.Context(), &worker.Job{}); err != nil || text(t, result) != `"null"` {
		t.Errorf("%v %v; want no error, text(t, result) == `\"null\"`", result, err)
	}
}
