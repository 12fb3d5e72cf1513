package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	staleNodes    = 64
	staleInterval = 2 * time.Millisecond
	// settleLimit is how long caches may take to agree with Redis once it is quiet.
	settleLimit = 5 * time.Second
	settlePoll  = 20 * time.Millisecond
)

// kinds of changes that are watched, in the order in which they are made.
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

func runStaleness(ctx context.Context, b *bench) (err error) {
	s, err := b.startRedis(ctx, noAOF)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	stamped := &stampedClient{Client: s.client}
	c, err := newCell(ctx, stamped)
	if err != nil {
		return err
	}
	defer stopCell(c)
	w := newChanger(c, stamped, "stale-", staleNodes)
	if err := w.register(ctx); err != nil {
		return err
	}
	o, err := startReady(observerMode, s.URL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.end()) }()
	span := sized(b, 30*time.Second, 500*time.Millisecond)
	b.say("A replica in another process, with its own connections: subscriber, tracker, commands. One change every %s for %s on %d nodes with one slot each: a heartbeat, a job that fills a node, its completion.", staleInterval, span, staleNodes)
	b.say("From Redis' clock right after the script (TIME, sent together with it) to the moment at which the cache has applied the change; both are this machine's clock, to a microsecond. Where a comparison with Redis brought a later state first, that is when the change was seen.")
	if _, err := query[[]sight](o, "sights"); err != nil {
		return err
	}
	made, err := w.run(ctx, time.Now().Add(span), staleInterval)
	if err != nil {
		return err
	}
	all, unseen, err := w.collect(ctx, o, made)
	if err != nil {
		return err
	}
	t := result.Table{First: "Change", Columns: []result.Column{
		{Name: "changes", Unit: result.Number},
		{Name: "p50", Unit: result.Microseconds},
		{Name: "p90", Unit: result.Microseconds},
		{Name: "p99", Unit: result.Microseconds},
		{Name: "p99.9", Unit: result.Microseconds},
		{Name: "max", Unit: result.Microseconds},
	}}
	whole := measure.NewHistogram()
	for kind, h := range all {
		whole.Merge(h)
		t.Rows = append(t.Rows, staleRow(changeNames[kind], h))
	}
	t.Rows = append(t.Rows, staleRow("all", whole))
	b.result.Tables = []result.Table{t}
	b.target("staleness, commit to the change seen in another process: p50", result.Microseconds, result.AtMost, 200, float64(whole.ValueAtQuantile(50)))
	b.target("staleness, commit to the change seen in another process: p99", result.Milliseconds, result.AtMost, 2, float64(whole.ValueAtQuantile(99))/1000)
	b.target("staleness: changes that were not seen", result.Number, result.Exactly, 0, float64(unseen))
	return nil
}

func staleRow(name string, h *hdrhistogram.Histogram) result.Row {
	return result.Row{Name: name, Values: result.Values(float64(h.TotalCount()), float64(h.ValueAtQuantile(50)), float64(h.ValueAtQuantile(90)),
		float64(h.ValueAtQuantile(99)), float64(h.ValueAtQuantile(99.9)), float64(h.Max()))}
}

// changer makes changes whose moments it knows, one at a time.
type changer struct {
	cell    *cell.Cell
	stamped *stampedClient
	ids     []string
	epochs  []cell.Epoch
	marks   []string // last heartbeat of each node
	next    int
}

func newChanger(c *cell.Cell, stamped *stampedClient, prefix string, nodes int) *changer {
	w := &changer{cell: c, stamped: stamped, marks: make([]string, nodes)}
	for i := range nodes {
		w.ids, w.epochs = append(w.ids, prefix+strconv.Itoa(i)), append(w.epochs, cell.NewEpoch())
	}
	return w
}

// changerService is what its nodes have, and no others.
const changerService = "probe"

func (w *changer) register(ctx context.Context) error {
	for i, id := range w.ids {
		n := freeslot.Node{ID: id, MaxConcurrency: 1, Services: []freeslot.Service{{Name: changerService}}}
		if _, err := w.cell.Register(ctx, n, w.epochs[i]); err != nil {
			return err
		}
	}
	return nil
}

// run makes one change every interval until the end, node after node.
func (w *changer) run(ctx context.Context, end time.Time, interval time.Duration) ([]change, error) {
	pace, err := measure.NewPacer(ctx)
	if err != nil {
		return nil, err
	}
	defer pace.Close()
	var made []change
	job := &freeslot.Job{Service: changerService}
	for due := time.Now(); due.Before(end) && time.Now().Before(end); w.next++ {
		i := w.next % len(w.ids)
		id := cell.NewJobID(0)
		for kind := range changeKinds {
			// Spread, so that it keeps no step with anything else.
			due = due.Add(interval/2 + rand.N(interval))
			if err := pace.Wait(ctx, due); err != nil {
				return nil, err
			}
			ch, err := w.change(ctx, i, kind, id, job)
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", changeNames[kind], w.ids[i], err)
			}
			made = append(made, ch)
		}
	}
	return made, nil
}

func (w *changer) change(ctx context.Context, i, kind int, id string, job *freeslot.Job) (change, error) {
	node, epoch := w.ids[i], w.epochs[i]
	ch := change{node: node, kind: kind}
	var err error
	switch kind {
	case changeHeartbeat:
		w.marks[i] = fmt.Sprintf(`{"n":%d}`, w.next)
		_, err = w.cell.Heartbeat(ctx, cell.Heartbeat{Node: node, Epoch: epoch, Resources: []byte(w.marks[i])})
	case changeFull:
		ch.used = 1
		var p cell.Placement
		p, err = w.cell.Submit(ctx, cell.Submission{JobID: id, Tenant: "bench", Job: job, Candidates: []string{node}})
		if err == nil && !p.Assigned {
			err = fmt.Errorf("refused: %v", p.Refusals)
		}
	case changeFree:
		_, err = w.cell.Complete(ctx, cell.Completion{Node: node, Epoch: epoch, Attempt: cell.Attempt{Job: id, N: 1}, State: freeslot.StateSucceeded})
	}
	ch.mark, ch.atNS = w.marks[i], w.stamped.atNS.Load()
	if err == nil && ch.atNS == 0 {
		err = errors.New("redis did not tell the time")
	}
	return ch, err
}

// collect finds for each change when the observer saw it.
func (w *changer) collect(ctx context.Context, o *childProcess, made []change) (all [changeKinds]*hdrhistogram.Histogram, unseen int, err error) {
	// What was made last must have come, or never will.
	if err := measure.SleepUntil(ctx, time.Now().Add(settleLimit/10)); err != nil {
		return all, 0, err
	}
	sights, err := query[[]sight](o, "sights")
	if err != nil {
		return all, 0, err
	}
	all, unseen = match(made, sights)
	return all, unseen, nil
}

// stampSlack is by how much a sight may seem to be before its change: clocks count microseconds.
const stampSlack = 100 * time.Microsecond

// sighted is a change and when it was seen.
type sighted struct {
	change
	atNS int64
}

// match says how long each change took to be seen, and how many were not.
func match(made []change, sights []sight) (all [changeKinds]*hdrhistogram.Histogram, unseen int) {
	for kind := range all {
		all[kind] = measure.NewHistogram()
	}
	seen, missed := sightings(made, sights)
	for _, s := range seen {
		measure.Record(all[s.kind], time.Duration(s.atNS-s.change.atNS))
	}
	return all, len(missed)
}

// sightings takes the changes and the sights of each node in their order. A change is seen with the first sight
// that shows it, or a later change of its node: a comparison with Redis brings the latest state alone.
func sightings(made []change, sights []sight) (seen []sighted, missed []change) {
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
			seen = append(seen, sighted{change: ch, atNS: s.AtNS})
		}
		of[s.Node] = left[shown+1:]
	}
	for _, left := range of {
		missed = append(missed, left...)
	}
	return seen, missed
}
