package faults

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Action tells what a Breakage does to its target.
type Action string

// The actions.
//
//   - Kill, Freeze and Stop act on processes (SIGKILL, SIGSTOP, SIGTERM). These come back after the
//     breakage's time.
//   - Cut, Slow, Hole and Reset act on the way between a process and Redis.
//   - Drop breaks all connections of Redis' clients.
//   - Crash makes a client go away, and another one take over its jobs.
//   - Drain makes an operator drain a node, and end that.
//   - Forget makes Redis forget when it last heard a node, so that the node seems to be silent.
const (
	Kill   Action = "kill"
	Freeze Action = "freeze"
	Stop   Action = "stop"
	Cut    Action = "cut"
	Slow   Action = "slow"
	Hole   Action = "hole"
	Reset  Action = "reset"
	Drop   Action = "drop"
	Crash  Action = "crash"
	Drain  Action = "drain"
	Forget Action = "forget"
)

// The kinds of targets, by the first letter of their names: r1, n3, way-r1, drain-n3, load-n3,
// redis, c2.
const (
	redisTarget = "redis"
	wayPrefix   = "way-"
	drainPrefix = "drain-"
	loadPrefix  = "load-"
)

// Breakage is one fault of a plan.
type Breakage struct {
	At     time.Duration
	Target string
	Action Action
	// For is how long it lasts.
	For time.Duration
}

// String returns the breakage in words.
func (b Breakage) String() string {
	return fmt.Sprintf("%s %s for %s", b.Action, b.Target, b.For.Round(time.Millisecond))
}

// weakness tells how often a kind of target breaks, and in which ways.
type weakness struct {
	every   time.Duration // on average
	actions []Action
	// shortest and longest bound how long it lasts.
	shortest, longest time.Duration
}

var weaknesses = map[string]weakness{
	"replica": {9 * time.Second, []Action{Kill, Freeze, Stop}, 200 * time.Millisecond, 4 * time.Second},
	"node":    {9 * time.Second, []Action{Kill, Kill, Freeze, Stop}, 200 * time.Millisecond, 5 * time.Second},
	"redis":   {12 * time.Second, []Action{Kill, Freeze, Freeze, Drop, Drop, Stop}, 100 * time.Millisecond, 3 * time.Second},
	"way":     {14 * time.Second, []Action{Cut, Slow, Hole}, 200 * time.Millisecond, 4 * time.Second},
	"client":  {30 * time.Second, []Action{Crash}, 0, 0},
	"drain":   {20 * time.Second, []Action{Drain}, 500 * time.Millisecond, 4 * time.Second},
	"load":    {20 * time.Second, []Action{Forget}, 0, 0},
}

func weaknessOf(target string) weakness {
	switch {
	case target == redisTarget:
		return weaknesses["redis"]
	case strings.HasPrefix(target, wayPrefix):
		return weaknesses["way"]
	case strings.HasPrefix(target, drainPrefix):
		return weaknesses["drain"]
	case strings.HasPrefix(target, loadPrefix):
		return weaknesses["load"]
	case strings.HasPrefix(target, "r"):
		return weaknesses["replica"]
	case strings.HasPrefix(target, "n"):
		return weaknesses["node"]
	default:
		return weaknesses["client"]
	}
}

const (
	// calm is how long everything is left alone at first.
	calm = 500 * time.Millisecond
	// One seed in stormEvery is a storm.
	stormEvery = 4
)

// Plan returns what breaks in a run of this length, in order of time. The breakages of one target
// do not overlap. Once, everything except the clients is killed at the same time.
func Plan(seed uint64, length time.Duration, targets []string) []Breakage {
	rng := rand.New(rand.NewPCG(seed, 1))
	pace := time.Duration(1)
	if IsStorm(seed) {
		pace = 3
	}
	var plan []Breakage
	all := length*4/10 + rand64(rng, length*3/10)
	for _, target := range targets {
		w := weaknessOf(target)
		at := calm + gap(rng, w.every/pace)
		for at < length {
			b := Breakage{
				At: at, Target: target, Action: w.actions[rng.IntN(len(w.actions))],
				For: w.shortest + rand64(rng, rand64(rng, w.longest-w.shortest)),
			}
			at += b.For + gap(rng, w.every/pace)
			if b.At < all+2*time.Second && b.At+b.For > all-100*time.Millisecond {
				continue
			}
			plan = append(plan, b)
		}
		if slices.Contains(w.actions, Kill) {
			plan = append(plan, Breakage{At: all, Target: target, Action: Kill, For: rand64(rng, time.Second)})
		}
	}
	slices.SortStableFunc(plan, func(a, b Breakage) int { return cmp.Compare(a.At, b.At) })
	return plan
}

// planOf returns what breaks in a run of this length, by the weakness of each target, in order of
// time. The breakages of one target do not overlap.
func planOf(seed uint64, length time.Duration, weak map[string]weakness) []Breakage {
	rng := rand.New(rand.NewPCG(seed, 4))
	var plan []Breakage
	for _, target := range slices.Sorted(maps.Keys(weak)) {
		w := weak[target]
		for at := calm + gap(rng, w.every/2); at < length; {
			b := Breakage{
				At: at, Target: target, Action: w.actions[rng.IntN(len(w.actions))],
				For: w.shortest + rand64(rng, w.longest-w.shortest),
			}
			plan = append(plan, b)
			at += b.For + gap(rng, w.every)
		}
	}
	slices.SortStableFunc(plan, func(a, b Breakage) int { return cmp.Compare(a.At, b.At) })
	return plan
}

// IsStorm reports whether a seed is a storm.
func IsStorm(seed uint64) bool { return seed%stormEvery == stormEvery-1 }

// gap returns a pause between breakages, exponential around mean but never zero.
func gap(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(float64(mean)*min(rng.ExpFloat64(), 3)) + 100*time.Millisecond
}

func rand64(rng *rand.Rand, below time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(below) + 1))
}
