package nodeagent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/tracing"
	"github.com/freeslot/freeslot/worker"
)

const (
	dialTimeout     = 5 * time.Second
	idleConnTimeout = 90 * time.Second
	// excerptBytes is the size of the part of a refusal's body that goes into the job's error.
	excerptBytes = 512
	// maxHeaderBytes bounds the headers of a response.
	maxHeaderBytes = 64 << 10
	// never is longer than any exchange.
	never = 2 * maxTimeout
)

// errTimeout is the cause of a context that ended by the timeout of a service.
var errTimeout = errors.New("timeout")

// httpExecutor runs jobs by POSTs to one service. It is safe for concurrent use.
type httpExecutor struct {
	cfg    HTTP
	limit  int
	client *http.Client
	log    *zap.Logger
}

// newHTTP makes an executor that keeps up to conns idle connections and reads at most limit bytes
// of a response.
func newHTTP(cfg HTTP, limit, conns int, log *zap.Logger) *httpExecutor {
	return &httpExecutor{cfg: cfg, limit: limit, log: log, client: &http.Client{
		// No proxy: the service is local, even if HTTP_PROXY is set.
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			MaxIdleConnsPerHost: conns,
			IdleConnTimeout:     idleConnTimeout,

			MaxResponseHeaderBytes: maxHeaderBytes,
		},
		// A redirect leads to a server that is not configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (e *httpExecutor) close() { e.client.CloseIdleConnections() }

// run is the handler.
func (e *httpExecutor) run(ctx context.Context, job *worker.Job) (any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.cfg.Timeout, errTimeout)
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	req, err := e.request(ctx, job)
	if err != nil {
		return nil, err
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, e.failure(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, retryRefusal(resp, refusal(resp))
	}
	idle := time.AfterFunc(never, func() { abort(errIdle) })
	defer idle.Stop()
	heard := func() { idle.Reset(cmp.Or(e.cfg.IdleTimeout, never)) }
	if events := e.events(resp, heard); events != nil {
		heard()
		return e.stream(ctx, events, job)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(e.limit)+1))
	if err != nil {
		return nil, e.failure(ctx, err)
	}
	if len(body) > e.limit {
		return nil, jobError(freeslot.JobErrorResultTooLarge, fmt.Sprintf("the response has more than %d bytes", e.limit))
	}
	return e.result(resp, body)
}

func (e *httpExecutor) request(ctx context.Context, job *worker.Job) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.cfg.URL, bytes.NewReader(payload(job)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", e.accept())
	for name, value := range e.cfg.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range map[string]string{
		"X-Freeslot-Job-Id":          job.ID,
		"X-Freeslot-Attempt":         strconv.Itoa(job.Attempt),
		"X-Freeslot-Tenant":          job.Tenant,
		"X-Freeslot-Service":         job.Service,
		"X-Freeslot-Source-Language": job.Requirement.SourceLanguage,
		"X-Freeslot-Target-Language": job.Requirement.TargetLanguage,
		"Traceparent":                tracing.TraceParent(ctx),
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	return req, nil
}

// failure distinguishes an end of the job's context from a service that does not answer.
func (e *httpExecutor) failure(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeout):
		return jobError(CodeTimeout, fmt.Sprintf("the service took longer than %s", e.cfg.Timeout))
	case errors.Is(cause, errIdle):
		return worker.Retryable(jobError(
			CodeIdleTimeout, fmt.Sprintf("the service's stream brought nothing for %s", e.cfg.IdleTimeout),
		))
	case cause != nil:
		return cause
	}
	return worker.Retryable(jobError(CodeUnreachable, "the service did not answer: "+plain(err)))
}

// plain returns the error without the URL, which may hold a secret.
func plain(err error) string {
	if withURL, ok := errors.AsType[*url.Error](err); ok {
		err = withURL.Err
	}
	return err.Error()
}

func refusal(resp *http.Response) error {
	excerpt, _ := io.ReadAll(io.LimitReader(resp.Body, excerptBytes)) // a part is enough
	message := "the service answered " + resp.Status
	if text := strings.TrimSpace(strings.ToValidUTF8(string(excerpt), "\uFFFD")); text != "" {
		message += ": " + text
	}
	return jobError("http_"+strconv.Itoa(resp.StatusCode), message)
}

// retryRefusal marks a temporary refusal: the service, or a proxy before it, cannot serve any
// request now.
func retryRefusal(resp *http.Response, err error) error {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return err
	}
	if after, ok := retryAfter(resp.Header.Get("Retry-After")); ok {
		return worker.RetryAfter(err, after)
	}
	return worker.Retryable(err)
}

// retryAfter reads a number of seconds. The header's other form is a date, which needs equal clocks
// on both machines.
func retryAfter(header string) (time.Duration, bool) {
	seconds, err := strconv.ParseUint(header, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false
	}
	return time.Duration(min(seconds, uint64(worker.MaxRetryAfter/time.Second))) * time.Second, true
}

func (e *httpExecutor) result(resp *http.Response, body []byte) (any, error) {
	output := e.cfg.Output
	if output == OutputAuto {
		if len(body) == 0 {
			return nil, nil
		}
		output = OutputText
		if isJSON(resp.Header.Get("Content-Type")) {
			output = OutputJSON
		}
	}
	return output.result(body)
}

func isJSON(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == "application/json" || strings.HasSuffix(t, "+json"))
}

// payload returns the job's payload; an empty one is null.
func payload(job *worker.Job) json.RawMessage {
	if len(job.Payload) == 0 {
		return json.RawMessage("null")
	}
	return job.Payload
}
