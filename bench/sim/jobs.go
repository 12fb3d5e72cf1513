package sim

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/freeslot/freeslot/bench/trace"
	"github.com/freeslot/freeslot/internal/selection"
)

// jobs makes the jobs of a run: when each comes, how long it holds its slot, and for which pool it is. It draws
// from sources of its own, so that the same jobs come whatever becomes of them.
type jobs struct {
	cfg      *Config
	rnd      *rand.Rand
	replay   *trace.Arrivals // nil unless arrivals are the trace's
	tokens   trace.Durations
	weighted []int // sums of tokens up to each request, to draw by tokens
	at       float64
}

// job is one of them. Times are in nanoseconds since the run began.
type job struct {
	at   int64
	held int64
	pool int32
	key  string // affinity key
}

func newJobs(cfg *Config) (*jobs, error) {
	j := &jobs{cfg: cfg, rnd: source(cfg.Seed, 1)}
	if cfg.Arrivals == ArrivalsTrace {
		var err error
		if j.replay, err = trace.NewArrivals(cfg.Requests, cfg.Rate); err != nil {
			return nil, err
		}
	}
	if cfg.Durations == DurationsTrace {
		j.tokens.PerToken = float64(cfg.MeanDuration) / trace.MeanTokens(cfg.Requests)
		sum := 0
		for i := range cfg.Requests {
			sum += max(cfg.Requests[i].GeneratedTokens, 1)
			j.weighted = append(j.weighted, sum)
		}
	}
	return j, nil
}

// source is the n-th random source of a seed.
func source(seed, n uint64) *rand.Rand {
	return rand.New(selection.NewSource(selection.NewSource(seed + n<<32).Uint64())) //nolint:gosec // a simulation
}

// following is the next job.
func (j *jobs) following() job {
	var out job
	request := (*trace.Request)(nil)
	gap := float64(time.Second) / j.cfg.Rate
	switch j.cfg.Arrivals {
	case ArrivalsTrace:
		a := j.replay.Next()
		j.at, request = float64(a.At), a.Request
	case ArrivalsPoisson:
		j.at += j.rnd.ExpFloat64() * gap
	default:
		j.at += gap
	}
	switch j.cfg.Durations {
	case DurationsTrace:
		if request == nil {
			// The trace's order belongs to its arrivals: at other ones its hour could pass in seconds.
			request = &j.cfg.Requests[j.rnd.IntN(len(j.cfg.Requests))]
		}
		out.held = int64(j.tokens.Of(request))
	case DurationsExponential:
		out.held = int64(j.rnd.ExpFloat64() * float64(j.cfg.MeanDuration))
	default:
		out.held = int64(j.cfg.MeanDuration)
	}
	out.at, out.held = int64(j.at), max(out.held+int64(j.cfg.Overhead), 1)
	if j.cfg.Pools > 1 {
		out.pool = j.rnd.Int32N(int32(j.cfg.Pools))
	}
	if j.cfg.Keys > 0 {
		out.key = "key-" + strconv.Itoa(j.rnd.IntN(j.cfg.Keys))
	}
	return out
}

// remaining is how much longer a job still holds its slot that is found at work at a random moment: long jobs
// are found more often, anywhere between their begin and their end.
func (j *jobs) remaining() int64 {
	whole := float64(j.cfg.MeanDuration)
	switch j.cfg.Durations {
	case DurationsExponential:
		return max(int64(j.rnd.ExpFloat64()*whole), 1)
	case DurationsTrace:
		i, _ := slices.BinarySearch(j.weighted, j.rnd.IntN(j.weighted[len(j.weighted)-1])+1)
		whole = float64(j.tokens.Of(&j.cfg.Requests[i]))
	}
	return max(int64(j.rnd.Float64()*(whole+float64(j.cfg.Overhead))), 1)
}
