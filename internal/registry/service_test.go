package registry

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestDue: lists of tasks are for one call each.
func TestDue(t *testing.T) {
	t.Parallel()
	tasks := make(due)
	for range 130 {
		tasks.add(taskBeat, new(member))
	}
	big := &member{fields: []string{strings.Repeat("x", registerBytes/3)}}
	for range 7 {
		tasks.add(taskRegister, big)
	}
	var sizes []int
	for _, kind := range []task{taskBeat, taskRegister} {
		for _, list := range tasks[kind] {
			sizes = append(sizes, len(list))
		}
	}
	if got := fmt.Sprint(sizes); got != "[64 64 2 3 3 1]" {
		t.Error(got)
	}
}

// TestServiceShares: what is due soon goes along with what is due.
func TestServiceShares(t *testing.T) {
	t.Parallel()
	o := Options{}.WithDefaults()
	s := newService(nil, "s")
	for _, id := range []string{"now", "soon", "later"} {
		s.members[id] = newMember(registration("s", id), o.Heartbeat)
	}
	if tasks, wait := s.begin(nil); wait != 0 || len(tasks[taskRegister]) != 1 || len(tasks[taskRegister][0]) != 3 {
		t.Fatal(tasks, wait)
	}
	if tasks, _ := s.begin(nil); tasks != nil {
		t.Error("what is under way is due")
	}
	now := time.Now()
	for id, in := range map[string]time.Duration{"now": 0, "soon": 400 * time.Millisecond, "later": time.Second} {
		s.members[id].failed(now, errFull)
		s.members[id].pending, s.members[id].notBefore = taskNone, now.Add(in)
	}
	tasks, wait := s.begin(nil)
	if wait != 0 || len(tasks[taskRegister]) != 1 || len(tasks[taskRegister][0]) != 2 {
		t.Error(tasks, wait)
	}
	if tasks, wait := s.begin(nil); tasks != nil || wait <= 0 || wait > time.Second {
		t.Error(tasks, wait)
	}
}
