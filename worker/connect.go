package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	gatewayclient "github.com/freeslot/freeslot/internal/gateway/client"
	"github.com/freeslot/freeslot/internal/process/logging"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/retry"
	"github.com/freeslot/freeslot/internal/script"
)

// attemptTimeout bounds one attempt to connect and to register, including the wait for scripts.
const attemptTimeout = 15 * time.Second

// connect opens the store and registers the node. While Redis or the gateway cannot be reached it
// tries again, until ctx ends or the worker is stopped. It returns the last attempt's error. An
// event is logged in one attempt only.
func (w *Worker) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	node := zap.String(logging.FieldNode, w.cfg.Node.ID)
	pauses := retry.Pauses()
	for first := true; ; first = false {
		err := w.connectOnce(ctx)
		if err == nil {
			w.starts.Over(node)
			return nil
		}
		if w.cfg.ExitUnreachable || ctx.Err() != nil || !isUnreachable(err) {
			return err
		}
		w.starts.Failed(
			err, node, zap.String(logging.FieldReason, "the node is not registered yet, and tries again until it is"),
		)
		if first {
			watching.Go(func() {
				select {
				case <-w.stop:
					cancel()
				case <-ctx.Done():
				}
			})
		}
		if !retry.Wait(ctx, pauses.NextBackOff()) {
			return err
		}
	}
}

// connectOnce makes one attempt. After an error it leaves nothing behind.
func (w *Worker) connectOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	// Each attempt is an incarnation of its own: an earlier one whose answer was lost may have
	// registered the node. A gateway asks for the epoch.
	w.epoch = cell.NewEpoch()
	var err error
	if w.store, w.closeStore, err = w.open(ctx); err == nil {
		if err = w.register(ctx); err == nil {
			return nil
		}
		err = errors.Join(err, w.unregister(err), w.closeStore(context.WithoutCancel(ctx)))
	}
	w.opened.undo()
	return err
}

// attemptRegisterer remembers the metrics of an attempt, so that the next attempt can register its
// own.
type attemptRegisterer struct {
	prometheus.Registerer
	made []prometheus.Collector
}

func (r *attemptRegisterer) Register(c prometheus.Collector) error {
	err := r.Registerer.Register(c)
	if err == nil {
		r.made = append(r.made, c)
	}
	return err
}

func (r *attemptRegisterer) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err) // as MustRegister does
		}
	}
}

func (r *attemptRegisterer) undo() {
	for _, c := range r.made {
		r.Unregister(c)
	}
	r.made = nil
}

// isUnreachable reports whether an error may pass by itself: there is no answer, or the answer of a
// server that cannot serve yet.
func isUnreachable(err error) bool {
	if several, ok := errors.AsType[gatewayclient.Errors](err); ok {
		return !slices.ContainsFunc(several, gatewayclient.IsRefusal) && slices.ContainsFunc(several, isUnreachable)
	}
	if refusal, ok := errors.AsType[*freeslot.Error](err); ok {
		passing := refusal.Code == freeslot.CodeUnavailable || refusal.Code == freeslot.CodeOverloaded
		return passing && !errors.Is(err, gatewayclient.ErrNoGateway) && !redisclient.IsUntrusted(err)
	}
	return redisclient.IsAway(err) || errors.Is(err, script.ErrMissing)
}
