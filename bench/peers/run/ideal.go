package main

import (
	"container/heap"
	"slices"

	"github.com/freeslot/freeslot/bench/load"
)

// idealDelays returns how long each job of the plan waits for a slot, in microseconds. Jobs that ask for the same are
// served in the order in which they came; a slot that becomes free goes to the one of those at the head of
// their queues that came first. A job that takes any node gets one of the model of which the most is free.
// slots are by model. A job that asks for a model that has none waits for ever: its delay is -1.
func idealDelays(plan []load.Planned, slots map[string]int) []int64 {
	w := &idealWorld{free: make(map[string]int), queues: make(map[string][]int), plan: plan, out: make([]int64, len(plan))}
	for model, n := range slots {
		w.free[model] = n
		w.models = append(w.models, model)
	}
	slices.Sort(w.models)
	for i := range plan {
		w.until(plan[i].AtUS)
		if plan[i].Model != "" && slots[plan[i].Model] == 0 {
			w.out[i] = -1
			continue
		}
		if model, ok := w.slotFor(plan[i].Model); ok {
			w.begin(i, model, plan[i].AtUS)
			continue
		}
		w.queues[plan[i].Model] = append(w.queues[plan[i].Model], i)
	}
	for len(w.ends) > 0 {
		w.until(w.ends[0].at)
	}
	return w.out
}

type idealWorld struct {
	plan   []load.Planned
	free   map[string]int
	models []string
	queues map[string][]int // jobs that wait, by what they ask for
	ends   endHeap
	out    []int64
}

// until ends the jobs that are over by then, in order, and gives their slots on.
func (w *idealWorld) until(at int64) {
	for len(w.ends) > 0 && w.ends[0].at <= at {
		e := heap.Pop(&w.ends).(end)
		w.free[e.model]++
		if i, ok := w.next(e.model); ok {
			w.begin(i, e.model, e.at)
		}
	}
}

// next takes the job that a free slot of the model goes to.
func (w *idealWorld) next(model string) (int, bool) {
	own, others := w.queues[model], w.queues[""]
	switch {
	case len(own) == 0 && len(others) == 0:
		return 0, false
	case len(others) == 0 || len(own) > 0 && own[0] < others[0]:
		w.queues[model] = own[1:]
		return own[0], true
	default:
		w.queues[""] = others[1:]
		return others[0], true
	}
}

func (w *idealWorld) slotFor(model string) (string, bool) {
	if model != "" {
		return model, w.free[model] > 0
	}
	best := ""
	for _, m := range w.models {
		if w.free[m] > w.free[best] {
			best = m
		}
	}
	return best, w.free[best] > 0
}

func (w *idealWorld) begin(i int, model string, at int64) {
	w.free[model]--
	w.out[i] = at - w.plan[i].AtUS
	heap.Push(&w.ends, end{at + w.plan[i].RunUS, model})
}

// end is when a job gives back its slot.
type end struct {
	at    int64
	model string
}

// endHeap is a heap, the earliest first.
type endHeap []end

func (e endHeap) Len() int           { return len(e) }
func (e endHeap) Less(i, j int) bool { return e[i].at < e[j].at }
func (e endHeap) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *endHeap) Push(x any) { *e = append(*e, x.(end)) }

// Pop implements heap.Interface.
func (e *endHeap) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}
