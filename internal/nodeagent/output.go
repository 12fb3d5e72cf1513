package nodeagent

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// The codes of jobs that an executor failed, in addition to freeslot's own, http_<status> and
// exit_<code>.
const (
	// CodeTimeout: the service or command took longer than its timeout.
	CodeTimeout = "timeout"
	// CodeIdleTimeout: the service's stream brought nothing for its idle_timeout. Retryable.
	CodeIdleTimeout = "idle_timeout"
	// CodeBadPayload: the job is not what the service is configured to take.
	CodeBadPayload = "bad_payload"
	// CodeBadOutput: the output is not in the configured format.
	CodeBadOutput = "bad_output"
	// CodeUnreachable: the HTTP service did not answer, or broke off. Retryable.
	CodeUnreachable = "unreachable"
	// CodeStartFailed: the command could not be started. Retryable if the node was short of
	// processes, files or memory.
	CodeStartFailed = "start_failed"
	// CodeSignalled: a signal ended the command, and it was not the agent's. Retryable.
	CodeSignalled = "signalled"
	// CodeOutOfMemory: the command needed more memory than its limit.
	CodeOutOfMemory = "out_of_memory"
	// CodeLimitsFailed: the node could not set the command's limits for this job. Retryable.
	CodeLimitsFailed = "limits_failed"
)

// Output tells how bytes become a job's result.
type Output string

// The values of Output.
const (
	// OutputAuto: JSON if the content type of the response is JSON, or if the output of a command
	// is valid JSON in UTF-8; text otherwise.
	OutputAuto Output = "auto"
	// OutputJSON: the bytes are the result, and must be valid JSON in UTF-8. A byte order mark
	// before it is cut.
	OutputJSON Output = "json"
	// OutputText: the result is a JSON string of the bytes, which must be UTF-8.
	OutputText Output = "text"
	// OutputBase64: the result is a JSON string of the bytes in base64.
	OutputBase64 Output = "base64"
)

// Input tells how a payload reaches a command's standard input.
type Input string

// The values of Input.
const (
	// InputJSON: the payload as it is.
	InputJSON Input = "json"
	// InputText: the payload must be a JSON string; the command gets the string.
	InputText Input = "text"
)

func (o Output) validate(path string, p *config.Problems) {
	p.OneOf(path, string(o), string(OutputAuto), string(OutputJSON), string(OutputText), string(OutputBase64))
}

// result makes the job's result of data; o is not OutputAuto.
func (o Output) result(data []byte) (json.RawMessage, error) {
	switch o {
	case OutputJSON:
		data = withoutMark(data)
		if !json.Valid(data) {
			return nil, jobError(CodeBadOutput, "the output is not valid JSON")
		}
		if !utf8.Valid(data) { // json.Valid does not check that
			return nil, jobError(CodeBadOutput, "the output is JSON that is not UTF-8; for other data set output: base64")
		}
		return data, nil
	case OutputBase64:
		return json.Marshal(append([]byte{}, data...)) // no output is an empty text, not null
	default:
		if !utf8.Valid(data) {
			return nil, jobError(CodeBadOutput, "the output is not UTF-8 text; for other data set output: base64")
		}
		return json.Marshal(string(data))
	}
}

// withoutMark cuts the byte order mark, which some systems write before JSON in UTF-8.
func withoutMark(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\ufeff")) }

func jobError(code, message string) *freeslot.JobError {
	return &freeslot.JobError{Code: code, Message: message}
}
