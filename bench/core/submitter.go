package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/sim"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/dispatch/presence"
	"github.com/freeslot/freeslot/internal/selection"
)

const submitterMode = "core-submitter"

func init() { children[submitterMode] = submitJobs }

// probePrefix begins the ids of the nodes by which the event delay is measured.
const probePrefix = "probe-"

// submitter is a replica that makes its own clients' submits.
type submitter struct {
	*replica
	dispatcher *dispatch.Dispatcher
	presence   *presence.Presence
	work       workload
	index      int
	seen       *recorder
	nodes      *timedNodes
	registry   *prometheus.Registry
	trips      *tripClient
	base       submitterFigures // counters at the start of the window

	late    *hdrhistogram.Histogram // written by the arrivals' loop only, read once it has ended
	results atomic.Int64
	endings endings
}

// replySample is which part of the results are looked at for when they came: one in so many.
const replySample = 32

// ending is the end of a job, and when the replica that waits for it had taken it in; the wall clock, ns.
type ending struct {
	EndedNS int64 `json:"e"`
	CameNS  int64 `json:"c"`
}

// endings are those of some jobs. It is safe for concurrent use.
type endings struct {
	mu   sync.Mutex // guards what follows
	jobs []string
	came []int64
}

func (e *endings) add(job string) {
	now := time.Now().UnixNano()
	e.mu.Lock()
	e.jobs, e.came = append(e.jobs, job), append(e.came, now)
	e.mu.Unlock()
}

func (e *endings) take() (jobs []string, came []int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	jobs, came = e.jobs, e.came
	e.jobs, e.came = nil, nil
	return jobs, came
}

// submitterFigures are counts of one replica, and what one of its calls takes.
type submitterFigures struct {
	Calls      int64         `json:"calls"`
	Batches    int64         `json:"batches"`
	Refused    int64         `json:"refused"`
	Others     int64         `json:"others"` // refusals for other reasons
	Accepted   int64         `json:"accepted"`
	Overloaded int64         `json:"overloaded"`
	Failed     int64         `json:"failed"`
	Results    int64         `json:"results"`
	RoundTrip  sim.Quantiles `json:"round_trip"`
	// ForwardShare is the part of a call's time until the script ran.
	ForwardShare float64       `json:"forward_share"`
	Late         sim.Quantiles `json:"late"`
}

// submitJobs is a replica. It answers "start NS" (the arrivals begin at that moment of the wall clock),
// "mark" (the window begins), "figures" (it ends), "stop" (no more arrivals; answers when all results are
// in), "sights", "choices" (the moments of the choices since the window began), "endings" (of some jobs since then).
func submitJobs(ctx context.Context, args []string, in *bufio.Reader, out io.Writer) (err error) {
	if len(args) != 3 {
		return errors.New("expected the URL of Redis, an index and a workload")
	}
	runtime.GOMAXPROCS(childProcs)
	s := &submitter{seen: &recorder{prefix: probePrefix}, registry: prometheus.NewRegistry(), late: measure.NewHistogram()}
	if s.index, err = strconv.Atoi(args[1]); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(args[2]), &s.work); err != nil {
		return err
	}
	if err := s.work.load(); err != nil {
		return err
	}
	startCtx, cancel := context.WithTimeout(ctx, childStart)
	defer cancel()
	if err := s.open(startCtx, args[0]); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	fmt.Fprintln(out, "ready")
	return s.serve(ctx, in, out)
}

func (s *submitter) open(ctx context.Context, url string) (err error) {
	wrap := func(c rueidis.Client) rueidis.Client {
		s.trips = newTripClient(c)
		return s.trips
	}
	name := "replica-" + strconv.Itoa(s.index)
	if s.replica, err = openReplica(ctx, url, name, s.seen, wrap, s.registry); err != nil {
		return err
	}
	s.presence = presence.New(presence.Config{Replica: name, OnChange: func(replicas []string) {
		s.cache.SetShare(selection.NewShare(name, replicas))
	}}, presence.NewStore(s.cells.At(0).Runner()), zap.NewNop())
	s.presence.Start()
	s.nodes = &timedNodes{Cache: s.cache}
	s.dispatcher, err = dispatch.New(dispatch.Config{Replica: name}, s.cells, s.nodes, zap.NewNop(), s.registry)
	if err == nil {
		err = s.dispatcher.Start(ctx)
	}
	return err
}

func (s *submitter) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	return errors.Join(s.dispatcher.Stop(ctx), s.presence.Stop(ctx), s.replica.close())
}

func (s *submitter) serve(ctx context.Context, in *bufio.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var arrivals sync.WaitGroup
	defer arrivals.Wait()
	defer cancel()
	failed := make(chan error, 1)
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		var answer any = "ok"
		switch word {
		case "start":
			ns, err := strconv.ParseInt(rest, 10, 64)
			if err != nil {
				return err
			}
			arrivals.Go(func() { failed <- s.arrive(ctx, time.Unix(0, ns)) })
		case "mark":
			s.seen.take()
			s.nodes.take()
			s.trips.reset()
			s.endings.take()
			if s.base, err = s.count(); err != nil {
				return err
			}
		case "figures":
			if answer, err = s.figures(); err != nil {
				return err
			}
		case "stop":
			cancel()
			arrivals.Wait()
			if err := <-failed; err != nil {
				return err
			}
			f, err := s.drained()
			if err != nil {
				return err
			}
			f.Late = quantilesOf(s.late)
			answer = f
		case "sights":
			answer = s.seen.take()
		case "choices":
			answer = s.nodes.take()
		case "endings":
			if answer, err = s.ended(ctx); err != nil {
				return err
			}
		default:
			return fmt.Errorf("asked for %q", line)
		}
		if err := json.NewEncoder(out).Encode(answer); err != nil {
			return err
		}
	}
}

// arrive submits the jobs that arrive at this replica, each when it is due, until ctx ends.
func (s *submitter) arrive(ctx context.Context, begin time.Time) error {
	pace, err := measure.NewPacer(ctx)
	if err != nil {
		return err
	}
	defer pace.Close()
	all := s.work.arrivals()
	var submits sync.WaitGroup
	defer submits.Wait()
	begin = time.Now().Add(time.Until(begin)) // on the monotonic clock
	for {
		at, replica, request := all.arrive()
		if replica != s.index {
			continue
		}
		due := begin.Add(at)
		if pace.Wait(ctx, due) != nil {
			return nil
		}
		measure.Record(s.late, time.Since(due))
		payload := strconv.AppendInt(nil, s.work.durations.Of(request).Microseconds(), 10)
		job := &freeslot.Job{Service: benchService, Payload: payload}
		submits.Go(func() {
			s.dispatcher.Submit(context.WithoutCancel(ctx), []dispatch.Request{{Tenant: "bench", Job: job}}, &jobSink{s}, func(int, dispatch.Accepted, error) {})
		})
	}
}

// jobSink waits for one job.
type jobSink struct{ s *submitter }

func (*jobSink) Assigned(dispatch.Assignment) {}

func (j *jobSink) Result(status freeslot.JobStatus) {
	if j.s.results.Add(1)%replySample == 0 && j.s.work.Endings {
		j.s.endings.add(strings.Clone(status.ID)) // which is part of all that came with it
	}
}

func (*jobSink) Detached(string) {}

// Progress implements dispatch.Sink.
func (*jobSink) Progress(string, freeslot.Progress) {}

// drained waits for the results of all accepted jobs and returns the counts since the replica's start.
func (s *submitter) drained() (submitterFigures, error) {
	for end := time.Now().Add(measure.StopGrace); ; {
		f, err := s.count()
		if err != nil || f.Results == f.Accepted {
			return f, err
		}
		if time.Now().After(end) {
			return f, fmt.Errorf("replica %d: %d jobs accepted and %d results", s.index, f.Accepted, f.Results)
		}
		time.Sleep(settlePoll)
	}
}

// count reads the counters since the replica's start.
func (s *submitter) count() (f submitterFigures, err error) {
	families, err := s.registry.Gather()
	if err != nil {
		return f, err
	}
	f.Results = s.results.Load()
	for _, family := range families {
		for _, m := range family.GetMetric() {
			label := ""
			if len(m.GetLabel()) > 0 {
				label = m.GetLabel()[0].GetValue()
			}
			n := int64(m.GetCounter().GetValue())
			switch family.GetName() {
			case "freeslot_redis_batch_items":
				if label == "submit" {
					f.Calls, f.Batches = int64(m.GetHistogram().GetSampleSum()), int64(m.GetHistogram().GetSampleCount())
				}
			case "freeslot_reservation_refusals_total":
				if label == string(cell.RefusedFull) {
					f.Refused = n
				} else {
					f.Others += n
				}
			case "freeslot_submits_total":
				switch label {
				case "accepted":
					f.Accepted = n
				case string(freeslot.CodeOverloaded):
					f.Overloaded = n
				default:
					f.Failed += n
				}
			}
		}
	}
	return f, nil
}

// figures are those of the window.
func (s *submitter) figures() (submitterFigures, error) {
	f, err := s.count()
	b := &s.base
	f.Calls, f.Batches, f.Refused, f.Others = f.Calls-b.Calls, f.Batches-b.Batches, f.Refused-b.Refused, f.Others-b.Others
	f.Accepted, f.Overloaded, f.Failed, f.Results = f.Accepted-b.Accepted, f.Overloaded-b.Overloaded, f.Failed-b.Failed, f.Results-b.Results
	f.RoundTrip, f.ForwardShare = s.trips.quantiles()
	return f, err
}

// ended says when Redis ended the jobs of which this replica heard, and when that was: their places in the index of
// finished jobs tell to the microsecond.
func (s *submitter) ended(ctx context.Context) ([]ending, error) {
	ctx, cancel := context.WithTimeout(ctx, agentCall)
	defer cancel()
	jobs, came := s.endings.take()
	var out []ending
	for page := range slices.Chunk(jobs, 1000) {
		at, err := s.commands.Do(ctx, s.commands.B().Zmscore().Key(s.cells.At(0).Layout().Finished()).Member(page...).Build()).ToArray()
		if err != nil {
			return nil, fmt.Errorf("read when jobs ended: %w", err)
		}
		for i := range at {
			us, err := at[i].AsFloat64()
			if err != nil {
				return nil, fmt.Errorf("read when job %s ended: %w", page[i], err)
			}
			out = append(out, ending{EndedNS: int64(us) * int64(time.Microsecond), CameNS: came[len(out)]})
		}
	}
	return out, nil
}

// tripClient times the calls of the submit script, which is known by its first keys.
type tripClient struct {
	rueidis.Client
	keys []string
	mu   sync.Mutex // guards what follows
	took *hdrhistogram.Histogram
	// forward and whole are sums in milliseconds: until the script ran, and of the calls.
	forward, whole float64
}

func newTripClient(c rueidis.Client) *tripClient {
	l := cell.Layout{Prefix: cell.DefaultPrefix}
	return &tripClient{Client: c, keys: []string{l.Revisions(), l.Version()}, took: measure.NewHistogram()}
}

// Do implements rueidis.Client.
func (c *tripClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	words := cmd.Commands()
	if words[0] != "EVALSHA" || len(words) < 3+len(c.keys) || !slices.Equal(words[3:3+len(c.keys)], c.keys) {
		return c.Client.Do(ctx, cmd)
	}
	begin := time.Now()
	result := c.Client.Do(ctx, cmd)
	took := time.Since(begin)
	ran := scriptRan(result)
	c.mu.Lock()
	defer c.mu.Unlock()
	measure.Record(c.took, took)
	if ran > 0 {
		c.forward += ran - float64(begin.UnixNano())/float64(time.Millisecond)
		c.whole += took.Seconds() * 1000
	}
	return result
}

// scriptRan is when a submit script ran, in milliseconds of the wall clock, which Redis shares; 0 if it did
// not. The script tells the whole millisecond, of which the middle is right on average.
func scriptRan(result rueidis.RedisResult) float64 {
	fields, err := result.ToArray()
	if err != nil || len(fields) == 0 {
		return 0
	}
	ms, err := fields[0].AsInt64()
	if err != nil {
		return 0
	}
	return float64(ms) + 0.5
}

func (c *tripClient) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took.Reset()
	c.forward, c.whole = 0, 0
}

func (c *tripClient) quantiles() (trips sim.Quantiles, forwardShare float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.whole > 0 {
		forwardShare = min(max(c.forward/c.whole, 0), 1)
	}
	return quantilesOf(c.took), forwardShare
}

// quantilesOf are the points that the simulation asks for.
func quantilesOf(h *hdrhistogram.Histogram) sim.Quantiles {
	if h.TotalCount() == 0 {
		return nil
	}
	var out sim.Quantiles
	for _, at := range []float64{0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1} {
		us := float64(h.ValueAtQuantile(at * 100))
		if at == 0 {
			us = float64(h.Min())
		}
		out = append(out, sim.Quantile{At: at, US: us})
	}
	return out
}
