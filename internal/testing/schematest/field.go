package schematest

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
)

// publicFields has the bounds of package freeslot's types, which both protocols carry.
var publicFields = map[string]Field{
	"Job.service":                 {Bound: Name},
	"Job.affinity_key":            {Bound: Length(0, freeslot.MaxAffinityKeyLength)},
	"Job.idempotency_key":         {Bound: Length(0, freeslot.MaxAffinityKeyLength)},
	"Job.concurrency_key":         {Bound: Length(0, freeslot.MaxAffinityKeyLength)},
	"Job.slots":                   {Bound: Range(0, freeslot.MaxSlots)},
	"Job.priority":                {Bound: Range(0, freeslot.MaxPriority)},
	"Job.max_attempts":            {Bound: Range(0, freeslot.MaxMaxAttempts)},
	"Job.timeout_ms":              {Bound: Range(0, freeslot.MaxTimeoutMS)},
	"Job.progress_timeout_ms":     {Bound: Range(0, freeslot.MaxTimeoutMS)},
	"Job.run_at_ms":               {Bound: Min(0)},
	"Job.concurrency_limit":       {Bound: Range(0, freeslot.MaxConcurrencyLimit)},
	"Job.on_lease_loss":           {Bound: Enum(freeslot.LeaseLossContinue, freeslot.LeaseLossCancel)},
	"Job.traceparent":             {Bound: Length(0, 64)},
	"Requirement.pool":            {Bound: Length(0, freeslot.MaxNameLength)},
	"Requirement.preferred_pool":  {Bound: Length(0, freeslot.MaxNameLength)},
	"Requirement.source_language": {Bound: Length(0, freeslot.MaxNameLength)},
	"Requirement.target_language": {Bound: Length(0, freeslot.MaxNameLength)},
	"Requirement.labels":          {Bound: Values(Length(0, freeslot.MaxLabelValueLength))},
	"Requirement.services":        {Bound: items(freeslot.MaxServices, serviceEntry)},
	"Requirement.features":        {Bound: items(freeslot.MaxFeatures, Name)},
	"Requirement.label_rules":     {Bound: items(freeslot.MaxLabelRules, nil)},
	"LabelRule.label":             {Bound: Name},
	"LabelRule.operator":          {Bound: Enum(freeslot.LabelOperators()...)},
	"LabelRule.values":            {Bound: items(freeslot.MaxLabelRuleValues, Length(0, freeslot.MaxLabelValueLength))},
	"JobStatus.state":             {Doc: stateDoc, Bound: Enum(freeslot.States()...)},
	"JobStatus.attempt":           {Bound: Min(0)},
	"JobStatus.slots":             {Bound: Min(0)},
	"JobStatus.failures":          {Bound: Min(1)},
	"JobStatus.priority":          {Bound: Range(1, freeslot.MaxPriority)},
	"JobStatus.deadline_ms":       {Bound: Min(1)},
	"JobStatus.run_at_ms":         {Bound: Min(1)},
	"JobStatus.position":          {Bound: Min(1)},
	"JobStatus.attempts":          {Doc: attemptsDoc, Bound: items(freeslot.MaxPastAttempts, nil)},
	"JobStatus.schedule":          {Doc: "The schedule that made the job; absent for a client's job."},
	"JobStatus.requeued_as":       {Doc: "The id of the job as which this one was submitted again."},
	"JobStatus.requeued_from":     {Doc: "The id of the job that this one repeats."},
	"JobStatus.submitted_at_ms":   {Bound: Min(0)},
	"JobStatus.assigned_at_ms":    {Bound: Min(0)},
	"JobStatus.finished_at_ms":    {Bound: Min(1)},
	"JobError.code": {Doc: "One of freeslot's own codes, or one that the handler chose.", Bound: examples(
		freeslot.JobErrorHandler, freeslot.JobErrorPanic, freeslot.JobErrorNoHandler, freeslot.JobErrorInterrupted,
		freeslot.JobErrorNodeLost,
		freeslot.JobErrorLost, freeslot.JobErrorResultTooLarge, freeslot.JobErrorStalled, freeslot.JobErrorLeaseLost,
		freeslot.JobErrorNoMatchingNode,
	)},
	"JobError.message":        {Doc: "For people."},
	"Progress.attempt":        {Bound: Min(1)},
	"Progress.seq":            {Bound: Min(1)},
	"Progress.at_ms":          {Bound: Min(0)},
	"PastAttempt.attempt":     {Doc: "The number of the try, from 1.", Bound: Min(1)},
	"PastAttempt.began_at_ms": {Doc: "By Redis' clock, in milliseconds since 1970; 0 if it is not known.", Bound: Min(0)},
	"PastAttempt.ended_at_ms": {Doc: "By Redis' clock, in milliseconds since 1970.", Bound: Min(0)},
	"PastAttempt.ended": {Doc: "How it ended.", Bound: Enum(
		freeslot.AttemptFailed, freeslot.AttemptLost, freeslot.AttemptHandedBack, freeslot.AttemptCancelled,
		freeslot.AttemptExpired,
	)},
	"PastAttempt.code": {Doc: pastCodeDoc},
}

const (
	stateDoc    = "The last five are terminal. Treat a state that you do not know as not terminal."
	attemptsDoc = "The last attempts that did not end the job well, the oldest first; absent in results that are " +
		"sent by themselves."
	pastCodeDoc = "The code of its error; absent if there was none or it has other characters than letters, digits " +
		"and ._:/-."
)

// Name bounds a name of a service, pool, label, feature or node.
func Name(s *huma.Schema) {
	Length(1, freeslot.MaxNameLength)(s)
	s.Pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"
}

// serviceEntry bounds a service's name, or its name, an @ and a range of versions.
func serviceEntry(s *huma.Schema) { s.Pattern = `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(@.{1,128})?$` }

// Length bounds a string, in bytes: JSON Schema counts characters, which are at most as many.
func Length(least, most int) func(*huma.Schema) {
	return func(s *huma.Schema) {
		s.MaxLength = &most
		if least > 0 {
			s.MinLength = &least
		}
	}
}

// Min bounds a number from below.
func Min(least float64) func(*huma.Schema) {
	return func(s *huma.Schema) { s.Minimum = &least }
}

// Range bounds a number.
func Range(least, most float64) func(*huma.Schema) {
	return func(s *huma.Schema) { s.Minimum, s.Maximum = &least, &most }
}

// Items bounds an array, and with each its elements. A least of 0 or a most of 0 is no bound.
func Items(least, most int, each func(*huma.Schema)) func(*huma.Schema) {
	return func(s *huma.Schema) {
		if least > 0 {
			s.MinItems = &least
		}
		if most > 0 {
			s.MaxItems = &most
		}
		if each != nil {
			each(s.Items)
		}
	}
}

func items(most int, each func(*huma.Schema)) func(*huma.Schema) { return Items(0, most, each) }

// Values bounds the values of an object.
func Values(each func(*huma.Schema)) func(*huma.Schema) {
	return func(s *huma.Schema) {
		values, _ := s.AdditionalProperties.(*huma.Schema)
		each(values)
	}
}

// Const fixes a value.
func Const(value any) func(*huma.Schema) {
	return func(s *huma.Schema) { s.Type, s.Extensions = "", map[string]any{"const": value} }
}

// Enum lists the values that this release has.
func Enum[T ~string](values ...T) func(*huma.Schema) {
	return func(s *huma.Schema) { s.Enum = texts(values) }
}

func examples(values ...string) func(*huma.Schema) {
	return func(s *huma.Schema) { s.Examples = texts(values) }
}

func texts[T ~string](values []T) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}
