package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/worker"
)

// eventOverhead is what an event may have beside a result of max_result_bytes, so that
// progress and errors fit also where results are small.
const eventOverhead = 16 << 10

// errIdle is the cause of a context that ended because a stream brought nothing.
var errIdle = errors.New("idle")

// teller passes on what a service or a command tells of its progress. What it is told that cannot be
// sent has no effect on the job, as progress has none; the log has the first of each job.
type teller struct {
	job     *worker.Job
	log     *zap.Logger
	refused bool
}

func (t *teller) tell(value []byte) {
	if err := t.job.Progress(json.RawMessage(value)); err != nil {
		t.refuse(err)
	}
}

func (t *teller) refuse(err error) {
	if !t.refused {
		t.log.Warn("progress.refused", zap.String(logging.FieldJob, t.job.ID), zap.String("service", t.job.Service), zap.Error(err))
	}
	t.refused = true
}

// idle aborts an exchange, by errIdle, when a stream brings nothing for its limit.
type idle struct {
	limit time.Duration
	timer *time.Timer
}

// start does nothing without a limit.
func (i *idle) start(abort context.CancelCauseFunc) {
	if i.limit > 0 {
		i.timer = time.AfterFunc(i.limit, func() { abort(errIdle) })
	}
}

func (i *idle) heard() {
	if i.timer != nil {
		i.timer.Reset(i.limit)
	}
}

func (i *idle) stop() {
	if i.timer != nil {
		i.timer.Stop()
	}
}

// stream reads events up to a result or an error.
func (e *httpExecutor) stream(ctx context.Context, events eventReader, job *worker.Job) (any, error) {
	progress := &teller{job: job, log: e.log}
	for {
		ev, err := events.next()
		switch {
		case errors.Is(err, errLineTooLong):
			return nil, jobError(freeslot.JobErrorResultTooLarge, fmt.Sprintf("an event of the stream has more than %d bytes", e.limit+eventOverhead))
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
			progress.tell(ev.data)
		}
	}
}

// streamError is the failure that a service tells at the end of a stream.
func streamError(data []byte) error {
	var told struct {
		Code      string `json:"code"`
		Message   string `json:"message"`
		Retryable bool   `json:"retryable"`
	}
	if json.Unmarshal(data, &told) != nil || freeslot.ValidateName("code", told.Code) != nil {
		return jobError(CodeBadOutput, `the stream's error is not {"code": …, "message": …, "retryable": …}: `+excerpt(data))
	}
	err := jobError(told.Code, told.Message)
	if told.Retryable {
		return worker.Retryable(err)
	}
	return err
}

// accept is what a service is told that it may answer with. What can tell progress comes after
// JSON: a service that has both by chance means JSON.
func (e *httpExecutor) accept() string {
	if e.streams() {
		return "application/json, application/x-ndjson;q=0.9, text/event-stream;q=0.8, */*;q=0.1"
	}
	return "*/*"
}

// streams: text and base64 are of the bytes of a whole body.
func (e *httpExecutor) streams() bool {
	return e.cfg.Output == OutputAuto || e.cfg.Output == OutputJSON
}

// events is nil for a response that is no stream.
func (e *httpExecutor) events(resp *http.Response, heard func()) eventReader {
	if !e.streams() {
		return nil
	}
	return newEventReader(resp.Header.Get("Content-Type"), resp.Body, e.limit+eventOverhead, heard)
}
