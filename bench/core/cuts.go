package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/core/result"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cache/locked"
	"github.com/freeslot/freeslot/internal/cell"
)

const (
	cutNodes     = 200
	cutWriters   = 4
	cutObservers = 2
	cutInterval  = 25 * time.Millisecond
)

func runCuts(ctx context.Context, b *bench) (err error) {
	s, err := b.startRedis(ctx, noAOF)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	var observers []*childProcess
	defer func() { err = errors.Join(err, endAll(observers)) }()
	for range cutObservers {
		o, err := startReady(observerMode, s.URL())
		if err != nil {
			return err
		}
		observers = append(observers, o)
	}
	rounds, span := sized(b, 6, 1), sized(b, 5*time.Second, 500*time.Millisecond)
	b.say("%d goroutines on a connection each make random changes to %d nodes: heartbeats, drains, jobs, completions, other profiles, restarts, departures, and an operator's HSET behind the scripts' back.", cutWriters, cutNodes)
	b.say("Meanwhile a connection drawn at random from CLIENT LIST is killed every %s: commands, subscriptions and trackers of %d replicas in processes of their own, and the writers'.", cutInterval, cutObservers)
	b.say("%d rounds of %s. After each every agent sends one heartbeat, and the caches are held against what Redis has, field by field, for at most %s.", rounds, span, settleLimit)
	var total cutFigures
	t := result.Table{First: "Round", Columns: []result.Column{
		{Name: "changes", Unit: result.Number},
		{Name: "calls that failed", Unit: result.Number},
		{Name: "connections killed", Unit: result.Number},
		{Name: "caches agree after", Unit: result.Milliseconds},
		{Name: "nodes that differ in the end", Unit: result.Number},
	}}
	for round := range rounds {
		f, err := cutRound(ctx, b, s, observers, span)
		if err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		t.Rows = append(t.Rows, result.Row{Name: strconv.Itoa(round + 1), Values: result.Values(
			float64(f.changes), float64(f.failed), float64(f.killed), rounded(f.agreed.Seconds()*1000), float64(f.differ))})
		total.changes, total.killed, total.differ = total.changes+f.changes, total.killed+f.killed, total.differ+f.differ
	}
	if total.killed == 0 || total.changes == 0 {
		return fmt.Errorf("%d connections killed during %d changes: nothing was tried", total.killed, total.changes)
	}
	b.result.Tables = []result.Table{t}
	b.target(fmt.Sprintf("lost changes of %s, with %s connections cut at random", measure.Thousands(float64(total.changes)), measure.Thousands(float64(total.killed))),
		result.Number, result.Exactly, 0, float64(total.differ))
	return nil
}

type cutFigures struct {
	changes, failed, killed int64
	agreed                  time.Duration
	differ                  int
}

func cutRound(ctx context.Context, b *bench, s *server, observers []*childProcess, span time.Duration) (f cutFigures, err error) {
	window, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	var work sync.WaitGroup
	var changes, failed atomic.Int64
	errs := make([]error, cutWriters+1)
	for i := range cutWriters {
		work.Go(func() {
			w, err := newMutator(ctx, s, i)
			if err != nil {
				errs[i] = err
				return
			}
			defer w.close()
			for window.Err() == nil {
				if w.change(ctx) != nil {
					failed.Add(1)
					continue
				}
				changes.Add(1)
			}
			errs[i] = w.beat(ctx)
		})
	}
	work.Go(func() { f.killed, errs[cutWriters] = cutConnections(window, s) })
	work.Wait()
	if err := errors.Join(errs...); err != nil {
		return f, err
	}
	f.changes, f.failed = changes.Load(), failed.Load()
	begin := time.Now()
	for {
		var first string
		if f.differ, first, err = differences(ctx, s, observers); err != nil {
			return f, err
		}
		f.agreed = time.Since(begin)
		if f.differ > 0 && f.agreed > settleLimit {
			b.progress("%d nodes differ, such as (Redis first): %s", f.differ, first)
			return f, nil
		}
		if f.differ == 0 {
			return f, nil
		}
		if err := measure.SleepUntil(ctx, time.Now().Add(settlePoll)); err != nil {
			return f, err
		}
	}
}

// cutConnections kills one after the other until ctx ends. It spares the one that it uses itself.
func cutConnections(ctx context.Context, s *server) (killed int64, err error) {
	tick := time.NewTicker(cutInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return killed, nil
		case <-tick.C:
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), measure.CallTimeout)
		text, err := s.client.Do(call, s.client.B().Arbitrary("CLIENT", "LIST").Build()).ToString()
		own, idErr := s.client.Do(call, s.client.B().ClientId().Build()).AsInt64()
		if err = errors.Join(err, idErr); err != nil {
			cancel()
			return killed, fmt.Errorf("list connections: %w", err)
		}
		var ids []int64
		for line := range strings.Lines(text) {
			text, ok := strings.CutPrefix(line, "id=")
			number, _, _ := strings.Cut(text, " ")
			if id, err := strconv.ParseInt(number, 10, 64); ok && err == nil && id != own {
				ids = append(ids, id)
			}
		}
		if len(ids) > 0 {
			n, err := s.client.Do(call, s.client.B().ClientKill().Id(ids[rand.IntN(len(ids))]).Build()).AsInt64()
			if err != nil {
				cancel()
				return killed, fmt.Errorf("kill a connection: %w", err)
			}
			killed += n
		}
		cancel()
	}
}

// differences counts the nodes of which an observer thinks otherwise than Redis, and says one of them.
func differences(ctx context.Context, s *server, observers []*childProcess) (n int, first string, err error) {
	c, err := cell.New(cell.Config{}, s.client, zap.NewNop(), nil)
	if err != nil {
		return 0, "", err
	}
	truth, err := readAll(ctx, c)
	if err != nil {
		return 0, "", err
	}
	for _, o := range observers {
		have, err := query[[]cell.NodeState](o, "states")
		if err != nil {
			return 0, "", err
		}
		for i := range have {
			if string(have[i].Resources) == "null" { // which is how JSON has none
				have[i].Resources = nil
			}
		}
		different := make(map[string]bool)
		for _, d := range locked.Compare(truth, have) {
			different[d.Node] = true
			first = cmp.Or(first, d.String())
		}
		n += len(different)
	}
	return n, first, nil
}

// readAll is what Redis has.
func readAll(ctx context.Context, c *cell.Cell) ([]cell.NodeState, error) {
	found := make(map[string]cell.NodeState)
	for since := cell.Revision(0); ; {
		page, err := c.Changes(ctx, since, 1000)
		if err != nil {
			return nil, err
		}
		for _, n := range page.Nodes {
			delete(found, n.Node.ID)
			if !n.Gone && n.Broken == nil {
				found[n.Node.ID] = n
			}
		}
		if !page.More {
			break
		}
		since = page.Next
	}
	out := make([]cell.NodeState, 0, len(found))
	for _, n := range found {
		out = append(out, n)
	}
	return out, nil
}

// mutator makes random changes to the nodes that are its own, on a connection of its own.
type mutator struct {
	server *server
	cell   *cell.Cell
	index  int
	epochs map[int]cell.Epoch
	jobs   map[int][]string
}

func newMutator(ctx context.Context, s *server, index int) (*mutator, error) {
	client, err := s.commands("writer")
	if err != nil {
		return nil, err
	}
	c, err := newCell(ctx, client)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &mutator{
		server: &server{Server: s.Server, client: client}, cell: c, index: index,
		epochs: make(map[int]cell.Epoch), jobs: make(map[int][]string),
	}, nil
}

func (m *mutator) close() {
	stopCell(m.cell)
	m.server.client.Close()
}

func (m *mutator) change(ctx context.Context) error {
	i := rand.IntN(cutNodes/cutWriters)*cutWriters + m.index
	n := benchNode(i, benchPools)
	n.ID, n.MaxConcurrency = "cut-"+strconv.Itoa(i), 2
	if m.epochs[i] == "" {
		return m.register(ctx, i, n, cell.NewEpoch())
	}
	switch rand.IntN(20) {
	case 0:
		n.Labels["build"] = strconv.Itoa(rand.IntN(1000))
		return m.register(ctx, i, n, m.epochs[i])
	case 1:
		return m.register(ctx, i, n, cell.NewEpoch())
	case 2:
		_, err := m.cell.Deregister(ctx, n.ID, m.epochs[i])
		delete(m.epochs, i)
		return err
	case 3:
		return m.server.do(ctx, "HSET", m.cell.Layout().Node(n.ID), "labels", fmt.Sprintf(`{"operator":"%d"}`, rand.IntN(1000)))
	case 4, 5:
		_, err := m.cell.Heartbeat(ctx, cell.Heartbeat{Node: n.ID, Epoch: m.epochs[i], Status: freeslot.StatusDraining})
		return err
	case 6, 7, 8, 9, 10, 11:
		return m.submit(ctx, i, n.ID)
	case 12, 13, 14, 15:
		return m.complete(ctx, i, n.ID)
	default:
		_, err := m.cell.Heartbeat(ctx, cell.Heartbeat{Node: n.ID, Epoch: m.epochs[i], Resources: []byte(`{"n":` + strconv.Itoa(rand.IntN(1000)) + `}`)})
		return err
	}
}

// beat is each agent's next heartbeat. Slots in use between none and all are announced
// by nothing else.
func (m *mutator) beat(ctx context.Context) error {
	for i, epoch := range m.epochs {
		hb := cell.Heartbeat{Node: "cut-" + strconv.Itoa(i), Epoch: epoch}
		_, err := m.cell.Heartbeat(ctx, hb)
		if err != nil && !errors.Is(err, cell.ErrUnknownNode) && !errors.Is(err, cell.ErrSuperseded) {
			_, err = m.cell.Heartbeat(ctx, hb) // its connection may have been the last to be cut
			if err != nil && !errors.Is(err, cell.ErrUnknownNode) && !errors.Is(err, cell.ErrSuperseded) {
				return err
			}
		}
	}
	return nil
}

func (m *mutator) register(ctx context.Context, i int, n freeslot.Node, epoch cell.Epoch) error {
	m.epochs[i] = epoch // whether or not it fails: it may have been applied
	_, err := m.cell.Register(ctx, n, epoch)
	return err
}

func (m *mutator) submit(ctx context.Context, i int, node string) error {
	id := cell.NewJobID(0)
	m.jobs[i] = append(m.jobs[i], id)
	_, err := m.cell.Submit(ctx, cell.Submission{JobID: id, Tenant: "bench", Job: benchJob(), Candidates: []string{node}})
	return err
}

func (m *mutator) complete(ctx context.Context, i int, node string) error {
	if len(m.jobs[i]) == 0 {
		return nil
	}
	id := m.jobs[i][0]
	m.jobs[i] = m.jobs[i][1:]
	_, err := m.cell.Complete(ctx, cell.Completion{Node: node, Epoch: m.epochs[i], Attempt: cell.Attempt{Job: id, N: 1}, State: freeslot.StateSucceeded})
	return err
}
