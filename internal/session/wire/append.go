package wire

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
)

// NoIndex is the index of answers that are not about a batch.
const NoIndex = -1

// AppendSubmit appends the frame of a request, and so do AppendSubmitBatch,
// AppendCancel, AppendAttach and AppendPing. Payloads must be valid JSON: they are
// copied as they are.
func AppendSubmit(dst []byte, id string, job *freeslot.Job) []byte {
	dst = appendRequest(dst, TypeSubmit, id)
	dst = append(dst, `,"job":`...)
	dst = appendJob(dst, job)
	return append(dst, '}')
}

// AppendSubmitBatch appends the submit of several jobs; see AppendSubmit.
func AppendSubmitBatch(dst []byte, id string, jobs []freeslot.Job) []byte {
	dst = appendRequest(dst, TypeSubmit, id)
	dst = append(dst, `,"jobs":[`...)
	for i := range jobs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJob(dst, &jobs[i])
	}
	return append(dst, "]}"...)
}

// AppendCancel appends a cancel; see AppendSubmit.
func AppendCancel(dst []byte, id, jobID string) []byte {
	return appendString(append(appendRequest(dst, TypeCancel, id), `,"job_id":`...), jobID, '}')
}

// AppendAttach appends an attach; see AppendSubmit.
func AppendAttach(dst []byte, id, jobID string) []byte {
	return appendString(append(appendRequest(dst, TypeAttach, id), `,"job_id":`...), jobID, '}')
}

// AppendPing appends a ping; see AppendSubmit.
func AppendPing(dst []byte, id string) []byte {
	return append(appendRequest(dst, TypePing, id), '}')
}

func appendRequest(dst []byte, t RequestType, id string) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, t...)
	dst = append(dst, `","id":`...)
	return appendString(dst, id)
}

func appendJob(dst []byte, job *freeslot.Job) []byte {
	dst = append(dst, `{"service":`...)
	dst = appendString(dst, job.Service)
	if len(job.Payload) > 0 {
		dst = append(dst, `,"payload":`...)
		dst = append(dst, job.Payload...)
	}
	if r := &job.Requirement; !class.Same(r, &freeslot.Requirement{}) {
		dst = append(dst, `,"requirement":`...)
		dst = appendRequirement(dst, r)
	}
	if job.AffinityKey != "" {
		dst = appendString(append(dst, `,"affinity_key":`...), job.AffinityKey)
	}
	if job.Slots != 0 {
		dst = appendInt(append(dst, `,"slots":`...), int64(job.Slots))
	}
	if job.Priority != 0 {
		dst = appendInt(append(dst, `,"priority":`...), int64(job.Priority))
	}
	if job.MaxAttempts != 0 {
		dst = appendInt(append(dst, `,"max_attempts":`...), int64(job.MaxAttempts))
	}
	if job.TimeoutMS != 0 {
		dst = appendInt(append(dst, `,"timeout_ms":`...), job.TimeoutMS)
	}
	if job.RunAtMS != 0 {
		dst = appendInt(append(dst, `,"run_at_ms":`...), job.RunAtMS)
	}
	if job.ProgressTimeoutMS != 0 {
		dst = appendInt(append(dst, `,"progress_timeout_ms":`...), job.ProgressTimeoutMS)
	}
	if job.OnLeaseLoss != "" {
		dst = appendString(append(dst, `,"on_lease_loss":`...), string(job.OnLeaseLoss))
	}
	if job.IdempotencyKey != "" {
		dst = appendString(append(dst, `,"idempotency_key":`...), job.IdempotencyKey)
	}
	if job.ConcurrencyKey != "" {
		dst = appendString(append(dst, `,"concurrency_key":`...), job.ConcurrencyKey)
	}
	if job.ConcurrencyLimit != 0 {
		dst = appendInt(append(dst, `,"concurrency_limit":`...), int64(job.ConcurrencyLimit))
	}
	if job.TraceParent != "" {
		dst = appendString(append(dst, `,"traceparent":`...), job.TraceParent)
	}
	return append(dst, '}')
}

func appendRequirement(dst []byte, r *freeslot.Requirement) []byte {
	start := len(dst)
	dst = append(dst, '{')
	field := func(name string) {
		if len(dst) > start+1 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = append(dst, name...)
		dst = append(dst, `":`...)
	}
	if r.Pool != "" {
		field("pool")
		dst = appendString(dst, r.Pool)
	}
	if r.PreferredPool != "" {
		field("preferred_pool")
		dst = appendString(dst, r.PreferredPool)
	}
	if len(r.Services) > 0 {
		field("services")
		dst = appendStrings(dst, r.Services)
	}
	if r.SourceLanguage != "" {
		field("source_language")
		dst = appendString(dst, r.SourceLanguage)
	}
	if r.TargetLanguage != "" {
		field("target_language")
		dst = appendString(dst, r.TargetLanguage)
	}
	if len(r.Labels) > 0 {
		field("labels")
		dst = append(dst, '{')
		for i, name := range sortedKeys(r.Labels) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, name), ':')
			dst = appendString(dst, r.Labels[name])
		}
		dst = append(dst, '}')
	}
	if len(r.LabelRules) > 0 {
		field("label_rules")
		dst = appendLabelRules(dst, r.LabelRules)
	}
	return append(dst, '}')
}

func appendLabelRules(dst []byte, rules []freeslot.LabelRule) []byte {
	dst = append(dst, '[')
	for i := range rules {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(append(dst, `{"label":`...), rules[i].Label)
		dst = appendString(append(dst, `,"operator":`...), string(rules[i].Operator))
		if len(rules[i].Values) > 0 {
			dst = appendStrings(append(dst, `,"values":`...), rules[i].Values)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, s)
	}
	return append(dst, ']')
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

// appendUTF8 appends JSON that may have been stored before results were checked for
// UTF-8: a frame that is not UTF-8 would end the session of everybody who asks for it.
// In valid JSON such bytes can only be within strings, so that it stays valid.
func appendUTF8(dst, raw []byte) []byte {
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\ufffd"))
	}
	return append(dst, raw...)
}

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string, and then the bytes of tail. Invalid
// UTF-8 becomes U+FFFD: a frame that is not UTF-8 would end the session.
func appendString(dst []byte, s string, tail ...byte) []byte {
	dst = append(dst, '"')
	kept := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, s[kept:i]...), "\ufffd"...)
				kept = i + 1
			}
			i += size
			continue
		}
		if b >= 0x20 && b != '"' && b != '\\' {
			i++
			continue
		}
		dst = append(dst, s[kept:i]...)
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, `\n`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hexDigits[b>>4], hexDigits[b&15])
		}
		i++
		kept = i
	}
	dst = append(dst, s[kept:]...)
	dst = append(dst, '"')
	return append(dst, tail...)
}
