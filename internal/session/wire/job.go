package wire

import (
	"bytes"
	"strconv"

	"github.com/freeslot/freeslot"
)

const (
	jobService fields = 1 << iota
	jobPayload
	jobRequirement
	jobSlots
	jobTraceParent
	jobAffinityKey
	jobPriority
	jobMaxAttempts
	jobTimeoutMS
	jobRunAtMS
	jobIdempotencyKey
	jobProgressTimeoutMS
	jobOnLeaseLoss
	jobConcurrencyKey
	jobConcurrencyLimit
)

const (
	reqPool fields = 1 << iota
	reqServices
	reqSource
	reqTarget
	reqLabels
	reqPreferredPool
	reqLabelRules
)

func (d *requestDecoder) job(job *freeslot.Job) *problem {
	if p := d.openObject(); p != nil {
		return p
	}
	var seen fields
	for first := true; ; first = false {
		key, ok, p := d.member(first)
		if p != nil {
			return p
		}
		if !ok {
			return nil
		}
		if p := d.jobField(job, &seen, key); p != nil {
			return p.in(fieldName(key))
		}
	}
}

func (d *requestDecoder) jobField(job *freeslot.Job, seen *fields, key []byte) (p *problem) {
	switch string(key) {
	case "service":
		if p = seen.add(jobService); p == nil {
			job.Service, p = d.string()
		}
	case "payload":
		if p = seen.add(jobPayload); p == nil {
			job.Payload, p = d.payload()
		}
	case "requirement":
		if p = seen.add(jobRequirement); p == nil {
			p = d.requirement(&job.Requirement)
		}
	case "affinity_key":
		if p = seen.add(jobAffinityKey); p == nil {
			job.AffinityKey, p = d.string()
		}
	case "slots":
		if p = seen.add(jobSlots); p == nil {
			job.Slots, p = d.smallInt()
		}
	case "priority":
		if p = seen.add(jobPriority); p == nil {
			job.Priority, p = d.smallInt()
		}
	case "max_attempts":
		if p = seen.add(jobMaxAttempts); p == nil {
			job.MaxAttempts, p = d.smallInt()
		}
	case "timeout_ms":
		if p = seen.add(jobTimeoutMS); p == nil {
			job.TimeoutMS, p = d.integer()
		}
	case "run_at_ms":
		if p = seen.add(jobRunAtMS); p == nil {
			job.RunAtMS, p = d.integer()
		}
	case "progress_timeout_ms":
		if p = seen.add(jobProgressTimeoutMS); p == nil {
			job.ProgressTimeoutMS, p = d.integer()
		}
	case "on_lease_loss":
		if p = seen.add(jobOnLeaseLoss); p == nil {
			var text string
			text, p = d.string()
			job.OnLeaseLoss = freeslot.OnLeaseLoss(text)
		}
	case "idempotency_key":
		if p = seen.add(jobIdempotencyKey); p == nil {
			job.IdempotencyKey, p = d.string()
		}
	case "concurrency_key":
		if p = seen.add(jobConcurrencyKey); p == nil {
			job.ConcurrencyKey, p = d.string()
		}
	case "concurrency_limit":
		if p = seen.add(jobConcurrencyLimit); p == nil {
			job.ConcurrencyLimit, p = d.smallInt()
		}
	case "traceparent":
		if p = seen.add(jobTraceParent); p == nil {
			job.TraceParent, p = d.string()
		}
	default:
		p = unknownField()
	}
	return p
}

// payload copies the text of any value. Its syntax is left to Job.Validate, which
// checks it anyway.
func (d *requestDecoder) payload() ([]byte, *problem) {
	text, p := d.value()
	if p != nil {
		return nil, p
	}
	return bytes.Clone(text), nil
}

func (d *requestDecoder) smallInt() (int, *problem) {
	n, p := d.integer()
	if p == nil && int64(int(n)) != n {
		p = &problem{text: "is " + strconv.FormatInt(n, 10) + ", which is out of range"}
	}
	return int(n), p
}

func (d *requestDecoder) requirement(r *freeslot.Requirement) *problem {
	if p := d.openObject(); p != nil {
		return p
	}
	var seen fields
	for first := true; ; first = false {
		key, ok, p := d.member(first)
		if p != nil {
			return p
		}
		if !ok {
			return nil
		}
		if p := d.requirementField(r, &seen, key); p != nil {
			return p.in(fieldName(key))
		}
	}
}

func (d *requestDecoder) requirementField(r *freeslot.Requirement, seen *fields, key []byte) (p *problem) {
	switch string(key) {
	case "pool":
		if p = seen.add(reqPool); p == nil {
			r.Pool, p = d.string()
		}
	case "preferred_pool":
		if p = seen.add(reqPreferredPool); p == nil {
			r.PreferredPool, p = d.string()
		}
	case "services":
		if p = seen.add(reqServices); p == nil {
			r.Services, p = d.strings(freeslot.MaxServices)
		}
	case "source_language":
		if p = seen.add(reqSource); p == nil {
			r.SourceLanguage, p = d.string()
		}
	case "target_language":
		if p = seen.add(reqTarget); p == nil {
			r.TargetLanguage, p = d.string()
		}
	case "labels":
		if p = seen.add(reqLabels); p == nil {
			r.Labels, p = d.labels()
		}
	case "label_rules":
		if p = seen.add(reqLabelRules); p == nil {
			r.LabelRules, p = d.labelRules()
		}
	default:
		p = unknownField()
	}
	return p
}

// strings, labels and labelRules stop at their limits: what lies beyond would be
// refused anyway, and need not be built first.
func (d *requestDecoder) strings(limit int) ([]string, *problem) {
	if p := d.openArray(); p != nil {
		return nil, p
	}
	var list []string
	for i := 0; ; i++ {
		ok, p := d.element(i == 0)
		if p != nil || !ok {
			return list, p
		}
		if i == limit {
			return nil, tooMany(limit)
		}
		s, p := d.string()
		if p != nil {
			return nil, p.at(i)
		}
		list = append(list, s)
	}
}

func (d *requestDecoder) labels() (map[string]string, *problem) {
	if p := d.openObject(); p != nil {
		return nil, p
	}
	labels := map[string]string{}
	for first := true; ; first = false {
		key, ok, p := d.member(first)
		if p != nil || !ok {
			return labels, p
		}
		if len(labels) == freeslot.MaxLabels {
			return nil, tooMany(freeslot.MaxLabels)
		}
		if _, twice := labels[string(key)]; twice {
			return nil, (&problem{text: "is given twice"}).in(fieldName(key))
		}
		name := string(key)
		if labels[name], p = d.string(); p != nil {
			return nil, p.in(fieldName([]byte(name)))
		}
	}
}

func tooMany(limit int) *problem {
	return &problem{text: "has more than " + strconv.Itoa(limit) + " entries"}
}
