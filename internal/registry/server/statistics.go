package server

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/registry"
)

// Statistics sums up a service's instances.
type Statistics struct {
	// The tags document Instances and the rest for readers of the API.
	Instances int  `json:"instances" doc:"How many instances were looked at."`
	Partial   bool `json:"partial,omitempty" doc:"There are more instances; these are the first 10000 that were found."`
	Healthy   int  `json:"healthy" doc:"Instances that should get traffic."`
	Late      int  `json:"late" doc:"Instances without a heartbeat for three of their intervals."`
	Failing   int  `json:"failing" doc:"Instances that fail their checks, or say themselves that they are not well."`
	Draining  int  `json:"draining" doc:"Instances that end."`
	Disabled  int  `json:"disabled" doc:"Instances that are switched off."`
	// The tags document HeartbeatDelayMS and the rest for readers of the API.
	HeartbeatDelayMS Distribution            `json:"heartbeat_delay_ms" doc:"Milliseconds since the last heartbeat, of ephemeral instances."`
	UptimeMS         Distribution            `json:"uptime_ms" doc:"Milliseconds since the registration."`
	Metrics          map[string]Distribution `json:"metrics,omitempty" doc:"Each figure that is a number, by type.field: cpu.usage, memory.usage, disk.usage, process.goroutines, and custom ones such as http.response_ms."`
	Abnormal         []Abnormal              `json:"abnormal,omitempty" doc:"Instances that get no traffic, with the reason; at most 1000."`
}

// Distribution says how the values of a figure are spread over instances.
type Distribution struct {
	// The tags document Count and the rest for readers of the API.
	Count int     `json:"count" doc:"How many instances have it."`
	Min   float64 `json:"min"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	Max   float64 `json:"max"`
}

// Abnormal is an instance that gets no traffic.
type Abnormal struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

const maxAbnormal = 1000

// statistics sums up details as they were at Redis' time now.
func statistics(details []registry.Detail, now time.Time) Statistics {
	s := Statistics{Instances: len(details)}
	var delays, uptimes []float64
	figures := make(map[string][]float64)
	for i := range details {
		d := &details[i]
		if !d.Persistent {
			delays = append(delays, float64(max(0, now.Sub(d.BeatAt).Milliseconds())))
		}
		uptimes = append(uptimes, float64(max(0, now.Sub(d.RegisteredAt).Milliseconds())))
		for name, value := range numbers(d.Metrics) {
			figures[name] = append(figures[name], value)
		}
		reason := s.count(d, now)
		if reason == "" {
			s.Healthy++
		} else if len(s.Abnormal) < maxAbnormal {
			s.Abnormal = append(s.Abnormal, Abnormal{ID: d.ID, Reason: reason})
		}
	}
	s.HeartbeatDelayMS, s.UptimeMS = distribution(delays), distribution(uptimes)
	if len(figures) > 0 {
		s.Metrics = make(map[string]Distribution, len(figures))
	}
	for name, values := range figures {
		s.Metrics[name] = distribution(values)
	}
	return s
}

// count counts an instance, and returns why it gets no traffic.
func (s *Statistics) count(d *registry.Detail, now time.Time) (reason string) {
	if silent := now.Sub(d.BeatAt); !d.Persistent && silent > 3*d.Interval {
		s.Late++
		reason = "silent for " + silent.Round(time.Millisecond).String()
	}
	if d.Unhealthy {
		s.Failing++
		reason = "says itself that it is not well"
	}
	if d.Failing != "" {
		s.Failing++
		reason = "check fails: " + d.Failing
	}
	if d.Draining {
		s.Draining++
		reason = "drains"
	}
	if d.Disabled {
		s.Disabled++
		reason = "is disabled"
	}
	return reason
}

// numbers returns the numeric figures of an instance, by type.field.
func numbers(metrics json.RawMessage) map[string]float64 {
	var types map[string]map[string]any
	if json.Unmarshal(metrics, &types) != nil {
		return nil
	}
	out := make(map[string]float64)
	for name, fields := range types {
		for field, value := range fields {
			if n, ok := value.(float64); ok {
				out[name+"."+field] = n
			}
		}
	}
	return out
}

// distribution returns the distribution of values, which it sorts.
func distribution(values []float64) Distribution {
	n := len(values)
	if n == 0 {
		return Distribution{}
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	// The least value that p of all values do not exceed.
	percentile := func(p float64) float64 { return values[int(math.Ceil(p*float64(n)))-1] }
	return Distribution{
		Count: n, Min: values[0], Mean: sum / float64(n), P50: percentile(0.5), P95: percentile(0.95), Max: values[n-1],
	}
}
