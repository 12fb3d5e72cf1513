package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	staleNodes    = 64
	staleInterval = 2 * time.Millisecond
	stalePrefix   = "stale-"
	// staleSettle is for the changes that were made last: later they never come.
	staleSettle = 500 * time.Millisecond
	// stampSlack is by how much a sight may seem to be before its change: clocks count
	// microseconds.
	stampSlack = 100 * time.Microsecond
)

// The kinds of changes that are watched, in the order in which they are made.
const (
	changeHeartbeat = iota
	changeFull
	changeFree
	changeKinds
)

var changeNames = [changeKinds]string{"heartbeat", "submit that fills a node", "completion that frees it"}

// change is one change as it was made.
type change struct {
	node string
	kind int
	used int
	mark string
	atNS int64 // by Redis' clock, right after the script
}

func runStaleness(ctx context.Context, b *tool.Bench) {
	s := b.StartRedis(ctx)
	defer tool.End(s.Stop)
	stamped := &stampedClient{Client: s.Client}
	c, stop := newCell(ctx, stamped, silentCell)
	defer stop()
	w := &changer{cell: c, stamped: stamped, marks: make([]string, staleNodes)}
	w.register(ctx)
	o := tool.StartChild(ctx, observerMode, observerMode, observed{s.URL(), stalePrefix})
	defer tool.End(o.End)
	span := tool.Sized(b, 30*time.Second, 500*time.Millisecond)
	b.Say("A replica in another process, with its own connections: subscriber, tracker, commands. One change every %s for %s on "+
		"%d nodes with one slot each: a heartbeat, a job that fills a node, its completion.", staleInterval, span, staleNodes)
	b.Say("From Redis' clock right after the script (TIME, sent together with it) to the moment at which the cache has applied " +
		"the change; both are this machine's clock, to a microsecond. Where a comparison with Redis brought a later state " +
		"first, that is when the change was seen.")
	tool.Ask[[]sight](ctx, o, 0, nil)
	made := tool.Must(w.run(ctx, time.Now().Add(span)))
	tool.Sleep(ctx, staleSettle)
	all, unseen := match(made, tool.Ask[[]sight](ctx, o, 0, nil))
	t := result.NewTable("Change", "changes", "p50 [us]", "p90 [us]", "p99 [us]", "p99.9 [us]", "max [us]")
	add := func(name string, h *hdrhistogram.Histogram) {
		at := h.ValueAtQuantile
		t.Add(name, h.TotalCount(), at(50), at(90), at(99), at(99.9), h.Max())
	}
	whole := measure.NewHistogram()
	for kind, h := range all {
		whole.Merge(h)
		add(changeNames[kind], h)
	}
	add("all", whole)
	b.Result.Tables = []result.Table{t}
	what, p50, p99 := "staleness, commit to the change seen in another process: ", quantileMS(whole, 50), quantileMS(whole, 99)
	b.Target(what+"p50", result.Microseconds, result.AtMost, 200, 1000*p50)
	b.Target(what+"p99", result.Milliseconds, result.AtMost, 2, p99)
	b.Target("staleness: changes that were not seen", result.Number, result.Exactly, 0, float64(unseen))
}

// stampedClient has Redis report the time right after each script: sent together, the two run one
// after the other. That is when the script's changes were there for others to see. It is for one
// call at a time.
type stampedClient struct {
	rueidis.Client
	atNS atomic.Int64
}

// Do implements rueidis.Client.
func (s *stampedClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if name := cmd.Commands()[0]; name != "EVALSHA" && name != "EVAL" {
		return s.Client.Do(ctx, cmd)
	}
	results := s.DoMulti(ctx, cmd, s.B().Time().Build())
	if clock, err := results[1].AsIntSlice(); err == nil && len(clock) == 2 {
		s.atNS.Store(clock[0]*1e9 + clock[1]*1e3)
	} else {
		s.atNS.Store(0)
	}
	return results[0]
}

// changer makes changes whose moments it knows, one at a time.
type changer struct {
	cell    *cell.Cell
	stamped *stampedClient
	epochs  []cell.Epoch
	marks   []string // last heartbeat of each node
	next    int
}

func (w *changer) register(ctx context.Context) {
	for i := range w.marks {
		w.epochs = append(w.epochs, cell.NewEpoch())
		n := freeslot.Node{ID: stalePrefix + strconv.Itoa(i), MaxConcurrency: 1}
		n.Services = []freeslot.Service{{Name: benchService}}
		tool.Must(w.cell.Register(ctx, n, w.epochs[i]))
	}
}

// run makes one change every staleInterval until the end, node after node.
func (w *changer) run(ctx context.Context, end time.Time) ([]change, error) {
	pace, err := measure.NewPacer(ctx)
	if err != nil {
		return nil, err
	}
	defer pace.Close()
	var made []change
	for due := time.Now(); due.Before(end) && time.Now().Before(end); w.next++ {
		id := cell.NewJobID(0)
		for kind := range changeKinds {
			// Spread, so that it keeps no step with anything else.
			due = due.Add(staleInterval/2 + rand.N(staleInterval))
			if err := pace.Wait(ctx, due); err != nil {
				return nil, err
			}
			ch, err := w.change(ctx, w.next%len(w.marks), kind, id)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", changeNames[kind], err)
			}
			made = append(made, ch)
		}
	}
	return made, nil
}

func (w *changer) change(ctx context.Context, i, kind int, id string) (change, error) {
	node, epoch := stalePrefix+strconv.Itoa(i), w.epochs[i]
	ch := change{node: node, kind: kind}
	var err error
	switch kind {
	case changeHeartbeat:
		w.marks[i] = fmt.Sprintf(`{"n":%d}`, w.next)
		_, err = w.cell.Heartbeat(ctx, cell.Heartbeat{Node: node, Epoch: epoch, Resources: []byte(w.marks[i])})
	case changeFull:
		ch.used = 1
		var p cell.Placement
		p, err = w.cell.Submit(ctx, cell.Submission{
			JobID: id, Tenant: "bench", Job: &freeslot.Job{Service: benchService}, Candidates: []string{node},
		})
		if err == nil && !p.Assigned {
			err = fmt.Errorf("refused: %v", p.Refusals)
		}
	case changeFree:
		_, err = w.cell.Complete(ctx, cell.Completion{
			Node: node, Epoch: epoch, Attempt: cell.Attempt{Job: id, N: 1}, State: freeslot.StateSucceeded,
		})
	}
	ch.mark, ch.atNS = w.marks[i], w.stamped.atNS.Load()
	if err == nil && ch.atNS == 0 {
		err = errors.New("redis did not answer the time")
	}
	return ch, err
}

// match returns how long the changes of each kind took to be seen, and how many were never seen. It
// takes the changes and the sights of each node in their order. A change is seen with the first
// sight that shows it, or a later change of its node: a comparison with Redis brings the latest
// state alone.
func match(made []change, sights []sight) (all [changeKinds]*hdrhistogram.Histogram, unseen int) {
	for kind := range all {
		all[kind] = measure.NewHistogram()
	}
	of := make(map[string][]change)
	for _, ch := range made {
		of[ch.node] = append(of[ch.node], ch)
	}
	for _, s := range sights {
		left := of[s.Node]
		shown := slices.IndexFunc(left, func(ch change) bool {
			return ch.used == s.Used && ch.mark == s.Mark && s.AtNS >= ch.atNS-int64(stampSlack)
		})
		for _, ch := range left[:shown+1] {
			measure.Record(all[ch.kind], time.Duration(s.AtNS-ch.atNS))
		}
		of[s.Node] = left[shown+1:]
	}
	for _, left := range of {
		unseen += len(left)
	}
	return all, unseen
}
