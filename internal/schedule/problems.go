package schedule

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/freeslot/freeslot"
)

type object = map[string]json.RawMessage

// sound is a schedule with which nothing is wrong.
func sound(job object) object {
	text, _ := json.Marshal(job) // which was JSON before
	return object{"cron": json.RawMessage(`"@daily"`), "job": text}
}

var soundJob = object{"service": json.RawMessage(`"x"`)}

// allProblems adds to what a change was refused for, its first bad field, all others. Each field is tried
// by itself in a schedule that is sound but for it, so that what is wrong is decided in one place.
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
		if _, err := decodeChange(text); errors.As(err, &bad) && !slices.ContainsFunc(found, func(f freeslot.FieldError) bool { return f.Field == bad.Field }) {
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

// tryJob has try look at each field of a job, and of its requirement.
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
			tried["concurrency_key"] = key // without which it is refused
		}
		if requirement == nil {
			try(tried)
		}
		for _, part := range slices.Sorted(maps.Keys(requirement)) {
			text, _ := json.Marshal(object{part: requirement[part]}) // which was JSON before
			try(with(name, text))
		}
	}
	if job["service"] == nil {
		try(object{})
	}
}

// members are those of a JSON object, nil of what is none.
func members(data []byte) (fields object) {
	if json.Unmarshal(data, &fields) != nil {
		return nil
	}
	return fields
}
