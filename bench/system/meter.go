package system

import (
	"context"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
)

// Meter reads what Redis and processes have used so far.
type Meter struct {
	redis *Redis // nil: it is not read
	pids  []int
	begin time.Time
	stat  measure.RedisStat
	used  float64
}

// Spent is what was used between two readings.
type Spent struct {
	// Seconds have passed. Redis and Processes are seconds of processor time, of Redis' main thread
	// and of all processes in sum.
	Seconds, Redis, Processes float64
	before, after             measure.RedisStat
}

// NewMeter begins to measure. redis may be nil.
func NewMeter(ctx context.Context, redis *Redis, pids ...int) (*Meter, error) {
	m := &Meter{redis: redis, pids: pids}
	return m, m.read(ctx)
}

func (m *Meter) read(ctx context.Context) (err error) {
	m.used = 0
	for _, pid := range m.pids {
		used, err := measure.CPUSeconds(pid)
		if err != nil {
			return err
		}
		m.used += used
	}
	if m.redis != nil {
		m.stat, err = measure.ReadRedisStat(ctx, m.redis.Client)
	}
	m.begin = time.Now()
	return err
}

// Spent is what was used since the reading before.
func (m *Meter) Spent(ctx context.Context) (Spent, error) {
	before, seconds := *m, time.Since(m.begin).Seconds()
	err := m.read(ctx)
	return Spent{
		Seconds: seconds, Redis: m.stat.CPUSeconds - before.stat.CPUSeconds, Processes: m.used - before.used,
		before: before.stat, after: m.stat,
	}, err
}

// OfCore is a processor time in percent of what has passed.
func (s *Spent) OfCore(seconds float64) float64 { return 100 * seconds / s.Seconds }

// Rate is how often a second Redis' commands were called, by scripts too.
func (s *Spent) Rate(commands ...string) float64 { return s.Calls(commands...) / s.Seconds }

// SentRate is how many bytes a second Redis has sent, to all connections.
func (s *Spent) SentRate() float64 { return (s.after.SentBytes - s.before.SentBytes) / s.Seconds }

// Calls is how often they were called.
func (s *Spent) Calls(commands ...string) (calls float64) {
	for _, c := range commands {
		calls += s.after.Commands[c].Calls - s.before.Commands[c].Calls
	}
	return calls
}

// AllRate is how often a second any command was called.
func (s *Spent) AllRate() float64 {
	names := make([]string, 0, len(s.after.Commands))
	for name := range s.after.Commands {
		names = append(names, name)
	}
	return s.Rate(names...)
}

// Cost is what Redis spent on each of jobs.
func (s *Spent) Cost(jobs int64) measure.RedisCost { return s.after.Cost(s.before, jobs) }
