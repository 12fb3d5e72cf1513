package heartbeat

import (
	"maps"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// entry is an event of a sender.
type entry struct {
	what     string // "succeeded", "failed" or "forget"
	decision Decision
	begun    time.Time
	metrics  Metrics
	// order is the place of its beginning and end among the others.
	from, to int
}

// twin decides each time by all events so far.
type twin struct {
	p       Policy
	history []entry
	begun   *entry
	clock   int
}

func (w *twin) tick() int { w.clock++; return w.clock }

// last is the latest success of at least this decision.
func (w *twin) last(least Decision) (found *entry) {
	for i := range w.history {
		if e := &w.history[i]; e.what == "succeeded" && e.decision >= least {
			found = e
		}
	}
	return found
}

// owed reports whether a failure or a loss demands least, without such a success that began later.
func (w *twin) owed(least Decision) bool {
	for _, e := range w.history {
		calls := e.what == "forget" && least == MetadataUpdate || e.what == "failed" && e.decision >= least
		if !calls {
			continue
		}
		paid := false
		for _, s := range w.history {
			paid = paid || s.what == "succeeded" && s.from > e.to && s.decision >= max(least, called(e))
		}
		if !paid {
			return true
		}
	}
	return false
}

func called(e entry) Decision {
	if e.what == "forget" {
		return MetadataUpdate
	}
	return e.decision
}

func (w *twin) changed(m Metrics) bool {
	told := w.last(MetadataUpdate).metrics
	for name, t := range w.p.Thresholds {
		a, had := told[name]
		b, has := m[name]
		if had != has {
			return true
		}
		if !had {
			continue
		}
		x, xok := a.(float64)
		y, yok := b.(float64)
		xok, yok = xok && !math.IsNaN(x), yok && !math.IsNaN(y)
		switch {
		case xok && yok:
			diff := math.Abs(x - y)
			if diff > 0 && (t.Kind == Any || t.Kind == Absolute && diff >= t.Value || t.Kind == Percent && (x == 0 || 100*diff >= t.Value*math.Abs(x))) {
				return true
			}
		case xok != yok:
			return true
		default:
			s, sok := a.(string)
			r, rok := b.(string)
			if sok != rok || s != r {
				return true
			}
		}
	}
	return false
}

func (w *twin) due(now time.Time, m Metrics, demanded bool) Decision {
	jitter := func(d time.Duration) time.Duration { return d }
	if w.p.Jitter != nil {
		jitter = w.p.Jitter
	}
	every := w.p.MetadataInterval
	if every == 0 {
		every = w.p.HeartbeatInterval
	}
	metadata := w.last(MetadataUpdate)
	if w.begun != nil {
		return None
	}
	if metadata == nil || w.owed(MetadataUpdate) || !now.Before(metadata.begun.Add(jitter(every))) {
		return MetadataUpdate
	}
	beat := demanded || w.owed(HeartbeatOnly) || !now.Before(w.last(HeartbeatOnly).begun.Add(jitter(w.p.HeartbeatInterval)))
	if (beat || !w.p.DisableImmediate) && w.changed(m) && !now.Before(metadata.begun.Add(w.p.MetadataGap)) {
		return MetadataUpdate
	}
	if beat {
		return HeartbeatOnly
	}
	return None
}

// TestTwin lets events happen in any order. It compares the decider with the twin, and the result
// of Next with the later result of Decide.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kind := rapid.SampledFrom([]ThresholdKind{Absolute, Percent, Any})
		p := Policy{
			HeartbeatInterval: time.Duration(rapid.IntRange(1, 20).Draw(rt, "heartbeat")) * time.Second,
			MetadataInterval:  time.Duration(rapid.IntRange(0, 60).Draw(rt, "metadata")) * time.Second,
			MetadataGap:       time.Duration(rapid.IntRange(0, 5).Draw(rt, "gap")) * time.Second,
			DisableImmediate:  rapid.Bool().Draw(rt, "disabled"),
			Thresholds: map[string]Threshold{
				"a": {kind.Draw(rt, "kind of a"), float64(rapid.IntRange(0, 3).Draw(rt, "value of a"))},
				"b": {kind.Draw(rt, "kind of b"), float64(rapid.SampledFrom([]int{0, 10, 50}).Draw(rt, "value of b"))},
			},
		}
		if rapid.Bool().Draw(rt, "jitter") {
			p.Jitter = func(d time.Duration) time.Duration { return d - d/10 }
		}
		if err := p.Validate(); err != nil {
			rt.Fatal(err)
		}
		value := rapid.SampledFrom([]any{nil, 0.0, 1.0, 2.0, 4.0, -4.0, math.NaN(), "x", "y"})
		d, w := New(p), &twin{p: p}
		now, metrics := start, Metrics{}
		rt.Repeat(map[string]func(*rapid.T){
			"time passes": func(rt *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 15_000).Draw(rt, "ms")) * time.Millisecond)
			},
			"until the next": func(rt *rapid.T) {
				next := d.Next(now, metrics)
				if next == Never {
					rt.Skip()
				}
				if next > 0 && d.Decide(now.Add(next-1), metrics) != None {
					rt.Fatalf("due before the %s that Next returned", next)
				}
				if now = now.Add(next); d.Decide(now, metrics) == None {
					rt.Fatalf("nothing is due after the %s that Next returned", next)
				}
			},
			"a metric changes": func(rt *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "metric")
				if v := value.Draw(rt, "value"); v == nil {
					delete(metrics, name)
				} else {
					metrics[name] = v
				}
			},
			"begin": func(rt *rapid.T) {
				decision := d.Decide(now, metrics)
				if decision == None && rapid.Bool().Draw(rt, "demand") {
					decision = d.Demand(now, metrics)
				}
				if decision == None {
					rt.Skip()
				}
				d.Begin(decision, now, metrics)
				w.begun = &entry{decision: decision, begun: now, metrics: maps.Clone(metrics), from: w.tick()}
			},
			"end": func(rt *rapid.T) {
				if w.begun == nil {
					rt.Skip()
				}
				e := *w.begun
				w.begun, e.to = nil, w.tick()
				if rapid.Bool().Draw(rt, "succeeds") {
					e.what = "succeeded"
					d.Succeeded()
				} else {
					e.what = "failed"
					d.Failed()
				}
				w.history = append(w.history, e)
			},
			"forget": func(*rapid.T) {
				d.Forget()
				w.history = append(w.history, entry{what: "forget", to: w.tick()})
			},
			"": func(rt *rapid.T) {
				if got, want := d.Decide(now, metrics), w.due(now, metrics, false); got != want {
					rt.Fatalf("after %s: %s, the twin returns %s", now.Sub(start), got, want)
				}
				if got, want := d.Demand(now, metrics), w.due(now, metrics, true); got != want {
					rt.Fatalf("on demand after %s: %s, the twin returns %s", now.Sub(start), got, want)
				}
			},
		})
	})
}
