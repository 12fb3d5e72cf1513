package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/bench/load"
)

func job(at, run int64, model string) load.Planned {
	return load.Planned{AtUS: at, RunUS: run, Model: model}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		slots map[string]int
		plan  []load.Planned
		want  []int64
	}{
		{"one slot, in order", map[string]int{"a": 1}, []load.Planned{job(0, 10, ""), job(1, 10, ""), job(2, 10, "")}, []int64{0, 9, 18}},
		{"free again in time", map[string]int{"a": 1}, []load.Planned{job(0, 10, ""), job(10, 5, "")}, []int64{0, 0}},
		{"any takes the model with the most free", map[string]int{"a": 1, "b": 2}, []load.Planned{job(0, 10, ""), job(0, 10, "a"), job(0, 10, "b")}, []int64{0, 0, 0}},
		{"another requirement does not wait behind", map[string]int{"a": 1, "b": 1}, []load.Planned{job(0, 100, "a"), job(1, 10, "a"), job(2, 10, "b")}, []int64{0, 99, 0}},
		{"who came first gets the slot", map[string]int{"a": 1}, []load.Planned{job(0, 10, ""), job(1, 10, ""), job(2, 10, "a"), job(3, 10, "")}, []int64{0, 9, 18, 27}},
		{"no such model", map[string]int{"a": 1}, []load.Planned{job(0, 10, "z"), job(0, 10, "a")}, []int64{-1, 0}},
	} {
		if diff := cmp.Diff(c.want, idealDelays(c.plan, c.slots)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
