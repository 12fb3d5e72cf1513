package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
)

const (
	readBlock = 5 * time.Second
	// readLimit is the largest number of entries in one read. An entry can bring several jobs.
	readLimit = 512
	// keepInterval is how often the stream is renewed and trimmed.
	keepInterval = time.Second
	// A read or an opening that failed is repeated after a pause.
	shortestRetry = 50 * time.Millisecond
	longestRetry  = 2 * time.Second
	// syncShare is the number of agents that are asked for a heartbeat at a time, with syncPause in
	// between: 10,000 agents within a second.
	syncShare = 100
	syncPause = 10 * time.Millisecond
)

// hub reads this gateway's stream in one cell, and hands the entries to the sessions. All nodes of
// the cell behind this gateway share the stream.
type hub struct {
	handler *Handler
	cell    Cell
	// tried is closed after the first attempt to open the stream.
	tried chan struct{}
	// read is the position in the stream up to which it is trimmed; "" is its start.
	read atomic.Pointer[string]
	// shared lets the cell's sessions share calls.
	shared *shared
}

// hub returns the hub of a cell, which begins with the first session there. It returns nil once the
// handler has stopped.
func (h *Handler) hub(c Cell) *hub {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.hubs[c]; b != nil || h.hubs == nil {
		return b
	}
	b := &hub{handler: h, cell: c, tried: make(chan struct{}), shared: newShared(h, c)}
	h.hubs[c] = b
	h.running.Go(b.run)
	return b
}

// stopHubs waits for the hubs, whose context has ended, and deletes their streams. If ctx ends
// first, the remaining streams are left to their TTL.
func (h *Handler) stopHubs(ctx context.Context) {
	h.mu.Lock()
	hubs := h.hubs
	h.hubs = nil
	h.mu.Unlock()
	h.running.Wait()
	var closing sync.WaitGroup
	for c := range hubs {
		closing.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			if err := c.CloseGateway(ctx, h.cfg.Replica); err != nil {
				h.log.Warn("gateway.not_closed", zap.Error(err))
			}
		})
	}
	closing.Wait()
}

// run opens the stream, and opens it again whenever it is gone, until the handler stops.
func (b *hub) run() {
	life, tried := b.handler.calls, sync.OnceFunc(func() { close(b.tried) })
	missed := false // an agent that sent a heartbeat before the stream opened may have missed deliveries
	for pause := shortestRetry; life.Err() == nil; missed = true {
		err := b.call(life, func(ctx context.Context) error { return b.cell.OpenGateway(ctx, b.handler.cfg.Replica) })
		tried()
		if err != nil {
			b.failed(life, "open_gateway", &pause, err)
			continue
		}
		pause = shortestRetry
		round, end := context.WithCancel(life)
		b.read.Store(new(string))
		var reading sync.WaitGroup
		reading.Go(func() { b.deliveries(round) })
		if missed {
			b.sync(round)
		}
		b.keep(round)
		end()
		reading.Wait()
	}
	b.shared.beats.rest()
	b.shared.ends.rest()
}

// keep renews and trims the stream. It returns once the stream is gone, or ctx has ended.
func (b *hub) keep(ctx context.Context) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := b.call(ctx, func(ctx context.Context) error {
			return b.cell.KeepGateway(ctx, b.handler.cfg.Replica, *b.read.Load())
		})
		switch {
		case errors.Is(err, cell.ErrGatewayGone):
			b.handler.log.Warn("gateway.reopened")
			return
		case err != nil && ctx.Err() == nil:
			b.unanswered("keep_gateway", err)
		}
	}
}

func (b *hub) call(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx)
}

func (b *hub) unanswered(call string, err error) {
	b.handler.unanswered.Warn(call, zap.String("call", call), zap.Error(err))
}

// failed logs an error, and waits for a pause that grows.
func (b *hub) failed(ctx context.Context, call string, pause *time.Duration, err error) {
	if ctx.Err() != nil {
		return
	}
	b.unanswered(call, err)
	wait(ctx, *pause/2+rand.N(*pause/2))
	*pause = min(2**pause, longestRetry)
}

// deliveries reads the stream from its start.
func (b *hub) deliveries(ctx context.Context) {
	after := ""
	for pause := shortestRetry; ctx.Err() == nil; {
		found, err := b.cell.GatewayDispatches(ctx, b.handler.cfg.Replica, after, readBlock, readLimit)
		if err != nil {
			b.failed(ctx, "gateway_dispatches", &pause, err)
			continue
		}
		pause = shortestRetry
		if len(found) == 0 {
			continue
		}
		b.deliver(found)
		position := strings.Clone(found[len(found)-1].ID) // a part of the reply would keep all of it
		after = position
		b.read.Store(&position)
	}
}

// deliver hands entries to their sessions. It drops entries for sessions that have ended: the first
// heartbeat of the node's next session names what they were about.
func (b *hub) deliver(found []cell.GatewayDispatch) {
	h, own, dropped := b.handler, map[*session][]cell.Dispatch{}, 0
	h.mu.Lock()
	for i := range found {
		d := &found[i]
		s := h.live[d.Session]
		if s == nil || s.node != d.Node {
			dropped++
			continue
		}
		own[s] = append(own[s], d.Dispatch)
	}
	h.mu.Unlock()
	h.metrics.dropped.Add(float64(dropped))
	for s, found := range own {
		s.deliver(found)
	}
}

// sync asks all agents of the cell for a heartbeat. Its answer names what the stream did not bring.
func (b *hub) sync(ctx context.Context) {
	b.handler.mu.Lock()
	var all []*session
	for _, s := range b.handler.live {
		if s.hub == b {
			all = append(all, s)
		}
	}
	b.handler.mu.Unlock()
	for i, s := range all {
		if i > 0 && i%syncShare == 0 {
			wait(ctx, syncPause)
		}
		s.sync()
	}
}
