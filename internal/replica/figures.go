package replica

import (
	"runtime/metrics"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// newHistory makes what keeps the figures of all replicas. An embedded replica serves no history,
// and keeps none: it only tells its own figures.
func (r *Replica) newHistory(cfg config.Replica, f *fleet, log *zap.Logger) (*history.History, *history.Keeper) {
	if r.served == nil {
		return nil, nil
	}
	h := history.New()
	if c := cfg.Console; c.PrometheusURL != "" {
		h.UsePrometheus(history.NewPrometheus(history.PrometheusConfig{
			URL: c.PrometheusURL, TokenFile: c.PrometheusTokenFile, Labels: c.PrometheusLabels,
		}))
	}
	return h, history.NewKeeper(h, history.NewStore(f.cells.Runners()[0]), cfg.ReplicaID, log.Named("history"))
}

// observe hands the answers of presence to the cache and the history. k may be nil.
func observe(c *cache.Cache, k *history.Keeper) func(nowMS int64, all []presence.Replica) {
	return func(nowMS int64, all []presence.Replica) {
		c.AllowQuiet(presence.AllReadHeartbeats(all))
		if k != nil {
			k.Observe(nowMS, reportsOf(all))
		}
	}
}

func reportsOf(all []presence.Replica) []history.Report {
	reports := make([]history.Report, len(all))
	for i, r := range all {
		reports[i] = history.Report{Replica: r.Name, AtMS: r.AtMS, Figures: r.Figures}
	}
	return reports
}

// sampler reads the figures of this replica.
type sampler struct {
	fleet   *fleet
	jobs    *dispatch.Dispatcher
	started time.Time
	keeps   bool
	memory  []metrics.Sample // used by presence's loop alone
}

// newSampler makes a sampler. keeps is true if the replica keeps the history.
func newSampler(f *fleet, d *dispatch.Dispatcher, keeps bool) *sampler {
	return &sampler{fleet: f, jobs: d, started: time.Now(), keeps: keeps, memory: []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}}
}

// figures returns the encoded figures of this replica. It asks no one.
func (s *sampler) figures() string {
	of := s.jobs.Figures()
	f := history.Figures{
		StartMS: s.started.UnixMilli(), Keeps: s.keeps, Cells: of.Cells, Memory: s.memoryBytes(),
	}
	f.Counters[history.Placed], f.Counters[history.Queued] = of.Placed, of.Queued
	f.Counters[history.Refused], f.Counters[history.CPU] = of.Refused, uint64(cpuTime().Microseconds())
	tellEnds(&f, &of)
	for i := range f.Gauges {
		f.Gauges[i] = history.Unknown
	}
	if of.Cells > 0 {
		f.Gauges[history.Waiting], f.Gauges[history.Held] = int64(of.Waiting), int64(of.Held)
		f.Gauges[history.OldestWait] = of.OldestWait.Milliseconds()
		f.Gauges[history.RedisMemory] = of.MemoryBytes
	}
	if s.fleet.cache.Health().Synced && !s.fleet.cache.Stale() { // otherwise nodes seem silent
		n := s.fleet.cache.Count(s.fleet.cache.SilenceLimit())
		f.Gauges[history.SlotsUsed], f.Gauges[history.SlotsTotal] = int64(n.SlotsUsed), int64(n.Slots)
		f.Gauges[history.NodesOnline], f.Gauges[history.NodesDrain] = int64(n.Online), int64(n.Draining)
		f.Gauges[history.NodesSilent] = int64(n.Silent)
	}
	f.Histograms[history.Assign].ReadBuckets(of.Assign)
	f.Histograms[history.EventsDelay].ReadBuckets(s.fleet.cache.EventDelay())
	for _, r := range s.fleet.cells.Runners() {
		f.Histograms[history.RedisCall].ReadBuckets(r.CallTimes())
	}
	return f.Encode()
}

// tellEnds puts the ends into f.
func tellEnds(f *history.Figures, of *dispatch.Figures) {
	f.States, f.Ends[history.Retries] = true, of.Retries
	at := map[freeslot.State]int{
		freeslot.StateDead: history.Dead, freeslot.StateFailed: history.Failed,
		freeslot.StateCancelled: history.Cancelled, freeslot.StateExpired: history.Expired,
	}
	for i, state := range cell.EndStates() {
		f.Ends[history.Ended] += of.Ends[i]
		if n, apart := at[state]; apart {
			f.Ends[n] = of.Ends[i]
		}
	}
}

// memoryBytes returns the memory that the process has from the system.
func (s *sampler) memoryBytes() int64 {
	metrics.Read(s.memory)
	return int64(s.memory[0].Value.Uint64() - s.memory[1].Value.Uint64())
}
