package cell

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// redisNow is Redis' clock in microseconds.
func (r *rig) redisNow() int64 {
	r.t.Helper()
	m := r.do("EVAL", "local t = redis.call('TIME') return t[1] * 1000000 + t[2]", "1", r.l.Rate("clock"))
	now, err := m.AsInt64()
	if err != nil {
		r.t.Fatal(err)
	}
	return now
}

func (r *rig) permits(rate Rate, most int) Permits {
	r.t.Helper()
	p, err := r.TakePermits(r.ctx(), "acme", rate, most)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// TestBucket: a bucket begins full, is emptied, and fills with time, by Redis' clock alone.
func TestBucket(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		slow := Rate{PerSecond: 0.001, Burst: 10} // what comes during the test is far less than a permit
		if p := r.permits(slow, 4); p.Taken != 4 || p.Left < 6 || p.Left > 6.5 {
			t.Errorf("%+v; want p.Taken == 4, p.Left >= 6, p.Left <= 6.5", p)
		}
		if p := r.permits(slow, 100); p.Taken != 6 || p.Left >= 1 {
			t.Errorf("%+v; want p.Taken == 6, p.Left < 1", p)
		}
		if p := r.permits(slow, 1); p.Taken != 0 || p.Left >= 1 {
			t.Errorf("%+v; want p.Taken == 0, p.Left < 1", p)
		}
		key := r.l.Rate("acme")
		// Until it is full again, and no longer.
		if ttl := r.int("PTTL", key); ttl < 9_000_000 || ttl > 10_001_000 {
			t.Errorf("it lives for %d ms", ttl)
		}
		set := func(left float64, ago time.Duration) {
			r.do("SET", key, fmt.Sprintf("%.6f %d", left, r.redisNow()-ago.Microseconds()))
		}
		set(0.5, 2500*time.Second)
		if p := r.permits(slow, 100); p.Taken != 3 || p.Left >= 0.5 {
			t.Errorf("2500 s later: %+v", p)
		}
		set(0, 1e6*time.Second)
		if p := r.permits(slow, 100); p.Taken != 10 {
			t.Errorf("a bucket holds no more than its burst: %+v", p)
		}
		// A clock that was an hour ahead and goes right again neither gives nor takes.
		set(2.25, -time.Hour)
		if p := r.permits(slow, 1); p.Taken != 1 || p.Left < 1.25 || p.Left > 1.5 {
			t.Errorf("after the clock went back: %+v", p)
		}
		set(0.25, 1000*time.Second)
		if p := r.permits(slow, 5); p.Taken != 1 {
			t.Errorf("and then it fills again: %+v", p)
		}
		for _, odd := range []string{"", "x", "nan 5", "5", "-1.0 5", "1e3 7"} {
			r.do("SET", key, odd)
			if p := r.permits(slow, 100); p.Taken != 10 {
				t.Errorf("%q: %+v; want p.Taken == 10", odd, p)
			}
		}
		r.do("DEL", key)
		r.do("SADD", key, "member")
		if p := r.permits(slow, 100); p.Taken != 10 {
			t.Errorf("a set: %+v", p)
		}
		huge := Rate{PerSecond: MinRate, Burst: MaxBurst}
		if p := r.permits(huge, MaxBurst); p.Taken > MaxBurst || p.Left < 0 {
			t.Errorf("%+v; want p.Taken <= MaxBurst, p.Left >= 0", p)
		}
		r.permits(Rate{PerSecond: MaxRate, Burst: 1}, 1)
	})
}

// TestBucketBound: however many ask, no more is given in any time than the rate allows.
func TestBucketBound(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		rate := Rate{PerSecond: 2000, Burst: 50}
		begin := r.redisNow()
		var given atomic.Int64
		var askers sync.WaitGroup
		for range 4 {
			askers.Go(func() {
				for range 25 {
					p, err := r.TakePermits(r.ctx(), "acme", rate, 20)
					if err != nil {
						t.Error(err)
					}
					given.Add(int64(p.Taken))
				}
			})
		}
		askers.Wait()
		took := float64(r.redisNow()-begin) / 1e6
		if most := 50 + rate.PerSecond*took; float64(given.Load()) > most {
			t.Errorf("%d permits in %.3f s, expected at most %.1f", given.Load(), took, most)
		}
		// And what there was is given: no more than one chunk is left over.
		if least := math.Min(100*20, 50); float64(given.Load()) < least {
			t.Errorf("%d permits, expected at least %.0f", given.Load(), least)
		}
	})
}

func TestTakePermitsRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	if _, err := r.TakePermits(r.ctx(), "a b", Rate{PerSecond: 1, Burst: 1}, 1); err == nil {
		t.Error("a tenant of that name")
	}
}
