package schedule

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/freeslot/freeslot"
)

type object = map[string]json.RawMessage

// sound returns a schedule without any error.
func sound(job object) object {
	text, _ := json.Marshal(job) // it came from JSON
	return object{"cron": json.RawMessage(`"@daily"`), "job": text}
}

var soundJob = object{"service": json.RawMessage(`"x"`)}

// allProblems adds all other bad fields to the error for the first one. It tries each field by
// itself in an otherwise sound schedule, so that one place decides what is wrong.
func allProblems(data []byte, first error) error {
	var found freeslot.FieldErrors
	found.Add(first)
	try := func(base object, name string, value json.RawMessage) {
		if len(found) == freeslot.MaxFieldErrors {
			return
		}
		tried := maps.Clone(base)
		if tried[name] = value; value == nil {
			delete(tried, name)
		}
		text, err := json.Marshal(tried)
		if err != nil {
			return
		}
		var bad *freeslot.Error
		if _, err := decodeChange(text); errors.As(err, &bad) &&
			!slices.ContainsFunc(found, func(f freeslot.FieldError) bool { return f.Field == bad.Field }) {
			found.Add(bad)
		}
	}
	fields := members(data)
	if fields == nil {
		return first
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "job" {
			try(sound(soundJob), name, fields[name])
		}
	}
	try(sound(soundJob), "cron", fields["cron"])
	job := members(fields["job"])
	if job == nil {
		try(sound(soundJob), "job", fields["job"])
	} else {
		tryJob(job, func(job object) { try(sound(job), "", nil) })
	}
	if len(found) == 1 {
		return first
	}
	return found.Err()
}

// tryJob lets try look at each field of a job, and of its requirement.
func tryJob(job object, try func(job object)) {
	with := func(name string, value json.RawMessage) object {
		tried := maps.Clone(soundJob)
		tried[name] = value
		return tried
	}
	for _, name := range slices.Sorted(maps.Keys(job)) {
		requirement := object(nil)
		if name == "requirement" {
			requirement = members(job[name])
		}
		tried := with(name, job[name])
		if key := job["concurrency_key"]; name == "concurrency_limit" && key != nil {
			tried["concurrency_key"] = key // without it the key is refused
		}
		if requirement == nil {
			try(tried)
		}
		for _, part := range slices.Sorted(maps.Keys(requirement)) {
			text, _ := json.Marshal(object{part: requirement[part]}) // it came from JSON
			try(with(name, text))
		}
	}
	if job["service"] == nil {
		try(object{})
	}
}

// members returns the members of a JSON object; nil if data is not one.
func members(data []byte) (fields object) {
	if json.Unmarshal(data, &fields) != nil {
		return nil
	}
	return fields
}
