package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/worker"
)

// eventOverhead is how much larger than max_result_bytes an event may be, so that progress and
// errors also fit if results must be small.
const eventOverhead = 16 << 10

// errIdle is the cause of a context that ended because a stream brought nothing for its
// idle_timeout.
var errIdle = errors.New("idle")

// progressReporter passes on the progress of a service or a command. A value that cannot be sent
// does not affect the job. The first one of each job is logged.
type progressReporter struct {
	job     *worker.Job
	log     *zap.Logger
	refused bool
}

func (t *progressReporter) report(value []byte) {
	if err := t.job.Progress(json.RawMessage(value)); err != nil {
		t.refuse(err)
	}
}

func (t *progressReporter) refuse(err error) {
	if !t.refused {
		t.log.Warn(
			"progress.refused", zap.String(logging.FieldJob, t.job.ID), zap.String("service", t.job.Service), zap.Error(err),
		)
	}
	t.refused = true
}

// stream reads events up to a result or an error.
func (e *httpExecutor) stream(ctx context.Context, events eventReader, job *worker.Job) (any, error) {
	progress := &progressReporter{job: job, log: e.log}
	for {
		ev, err := events.next()
		switch {
		case errors.Is(err, errLineTooLong):
			return nil, jobError(
				freeslot.JobErrorResultTooLarge,
				fmt.Sprintf("an event of the stream has more than %d bytes", e.limit+eventOverhead),
			)
		case errors.Is(err, errNotAnEvent):
			return nil, jobError(CodeBadOutput, "a line of the stream is "+err.Error())
		case errors.Is(err, io.EOF):
			return nil, worker.Retryable(jobError(CodeUnreachable, "the stream ended without a result"))
		case err != nil:
			return nil, e.failure(ctx, err)
		}
		switch ev.kind {
		case eventResult:
			if len(ev.data) > e.limit {
				return nil, jobError(freeslot.JobErrorResultTooLarge, fmt.Sprintf("the result has more than %d bytes", e.limit))
			}
			return OutputJSON.result(ev.data)
		case eventError:
			return nil, streamError(ev.data)
		default:
			progress.report(ev.data)
		}
	}
}

// streamError returns the failure that a service reports at the end of a stream.
func streamError(data []byte) error {
	var failure struct {
		Code      string `json:"code"`
		Message   string `json:"message"`
		Retryable bool   `json:"retryable"`
	}
	if json.Unmarshal(data, &failure) != nil || freeslot.ValidateName("code", failure.Code) != nil {
		const message = `the stream's error is not {"code": …, "message": …, "retryable": …}: `
		return jobError(CodeBadOutput, message+excerpt(data))
	}
	err := jobError(failure.Code, failure.Message)
	if failure.Retryable {
		return worker.Retryable(err)
	}
	return err
}

// accept returns the header that lists the possible answers. Streams come after JSON: a service
// that happens to have both means JSON.
func (e *httpExecutor) accept() string {
	if e.streams() {
		return "application/json, application/x-ndjson;q=0.9, text/event-stream;q=0.8, */*;q=0.1"
	}
	return "*/*"
}

// streams reports whether a response may be a stream. text and base64 need the bytes of a whole
// body.
func (e *httpExecutor) streams() bool {
	return e.cfg.Output == OutputAuto || e.cfg.Output == OutputJSON
}

// events returns nil for a response that is not a stream.
func (e *httpExecutor) events(resp *http.Response, heard func()) eventReader {
	if !e.streams() {
		return nil
	}
	return newEventReader(resp.Header.Get("Content-Type"), resp.Body, e.limit+eventOverhead, heard)
}
