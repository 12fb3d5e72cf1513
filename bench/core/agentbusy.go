package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/dispatch"
)

const burnMode = "core-burn"

func init() { children[burnMode] = burn }

// burn keeps one processor busy until its input ends.
func burn(_ context.Context, _ []string, in *bufio.Reader, out io.Writer) error {
	runtime.GOMAXPROCS(2) // one for the reading
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, in)
		ended.Store(true)
	}()
	fmt.Fprintln(out, "ready")
	for x := uint64(1); !ended.Load(); {
		for range 100_000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
		if x == 0 {
			fmt.Fprintln(out)
		}
	}
	return nil
}

// runAgentBusy looks how late heartbeats are while the machine has more to do than it can.
func runAgentBusy(ctx context.Context, b *bench) (err error) {
	const slots, interval = 64, 3 * time.Second
	window, takes, burners := sized(b, time.Minute, 4*time.Second), 50*time.Millisecond, sized(b, 2*runtime.NumCPU(), 1)
	b.say("The nodeagent program with its default settings, %d slots, and a service over HTTP that takes %s a job; always twice as many jobs under way or waiting as it has slots. Beside it %d processes that do nothing but compute; none of them has a priority. %s.", slots, takes, burners, window)
	b.say("The longest time between two heartbeats, by Redis' clock; they are due every %s.", interval)
	program, err := measure.BuildProgram(ctx, b.root, b.folder, "nodeagent")
	if err != nil {
		return err
	}
	s, err := b.startRedis(ctx, noAOF)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	var running, most atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if now := running.Add(1); now > most.Load() {
			most.Store(now)
		}
		time.Sleep(takes)
		running.Add(-1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	defer service.Close()
	p, err := startAgent(program, s.URL(), "busy", "node.max_concurrency="+strconv.Itoa(slots), "services=[{name: "+napService+", http: {url: '"+service.URL+"'}}]")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	if err := s.awaitNode(ctx, p); err != nil {
		return err
	}
	r, err := openReplica(ctx, s.URL(), "replica-0", nil, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	d, err := dispatch.New(dispatch.Config{Replica: "replica-0"}, r.cells, r.cache, zap.NewNop(), nil)
	if err != nil {
		return err
	}
	if err := d.Start(ctx); err != nil {
		return err
	}
	defer func() {
		stopCtx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
		defer cancel()
		err = errors.Join(err, d.Stop(stopCtx))
	}()
	for range burners {
		c, err := startReady(burnMode)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.end()) }()
	}
	loadCtx, stopLoad := context.WithCancel(ctx)
	var load sync.WaitGroup
	defer load.Wait()
	defer stopLoad()
	var ended atomic.Int64
	var failed error
	f := &napFleet{dispatcher: d}
	load.Go(func() { failed = f.keep(loadCtx, 2*slots, &ended) })
	longest, beats, err := s.watchBeats(ctx, p.node, window)
	if err != nil {
		return err
	}
	jobs := ended.Load()
	stopLoad()
	load.Wait()
	if failed != nil {
		return failed
	}
	b.result.Tables = []result.Table{{First: "Interval", Columns: []result.Column{
		{Name: "heartbeats", Unit: result.Number}, {Name: "longest time between two", Unit: result.Milliseconds}, {Name: "jobs", Unit: result.PerSecond}, {Name: "most at once", Unit: result.Number},
	}, Rows: []result.Row{{Name: interval.String(), Values: result.Values(float64(beats), rounded(longest), rounded(float64(jobs)/window.Seconds()), float64(most.Load()))}}}}
	b.target(fmt.Sprintf("%d jobs over HTTP at once, all processors busy: longest time between two heartbeats", slots), result.Milliseconds, result.AtMost, float64(interval+time.Second)/1e6, longest)
	return nil
}

// keep has so many jobs under way or waiting until ctx ends.
func (f *napFleet) keep(ctx context.Context, count int, ended *atomic.Int64) error {
	more := make(chan struct{}, count)
	sink := &napSink{ended: func(freeslot.JobStatus) { ended.Add(1); more <- struct{}{} }}
	for range count {
		more <- struct{}{}
	}
	for {
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
		n := 1
		for ; n < 64 && len(more) > 0; n++ {
			<-more
		}
		if err := f.submit(ctx, napTenant, n, sink, nil); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// watchBeats returns the longest time between two heartbeats of a node, in milliseconds, and how many there were.
func (s *server) watchBeats(ctx context.Context, node string, window time.Duration) (longest float64, beats int, err error) {
	const look = 50 * time.Millisecond
	var last int64
	for end := time.Now().Add(window); time.Now().Before(end); {
		at, err := s.lastBeat(ctx, node)
		if err != nil {
			return 0, 0, err
		}
		if last > 0 {
			longest = max(longest, float64(at-last))
		}
		if at != last {
			beats++
			last = at
		}
		if err := measure.SleepUntil(ctx, time.Now().Add(look)); err != nil {
			return 0, 0, err
		}
	}
	return longest, beats, nil
}

// lastBeat is when Redis last heard of a node, by its clock, in milliseconds; 0 for never.
func (s *server) lastBeat(ctx context.Context, node string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
	defer cancel()
	text, err := s.client.Do(ctx, s.client.B().Get().Key("scheduler:load:"+node).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	const digits = 13
	if len(text) < digits {
		return 0, fmt.Errorf("the load of %s is %q", node, text)
	}
	return strconv.ParseInt(text[:digits], 10, 64)
}
