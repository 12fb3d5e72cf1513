package history

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// loadTimeout bounds the reading of the last day, callTimeout the writing of a minute.
	loadTimeout = 5 * time.Second
	callTimeout = time.Second
	// loadAgain is how long a reading that failed is not repeated.
	loadAgain = 5 * time.Second
)

// Keeper takes the last day from Redis once, and writes the minutes that are this replica's to
// write.
type Keeper struct {
	history *History
	store   *Store
	replica string
	log     *zap.Logger

	start, stop sync.Once
	ctx         context.Context
	cancel      context.CancelFunc
	done        chan struct{}
	news        chan struct{} // has a token after a report
	last        int64         // when the last minute that is written or not ours began
	failed      bool
}

// NewKeeper makes a keeper of the history for the replica. It does no I/O.
func NewKeeper(h *History, s *Store, replica string, log *zap.Logger) *Keeper {
	k := &Keeper{history: h, store: s, replica: replica, log: log, done: make(chan struct{}), news: make(chan struct{}, 1)}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// Observe takes in reports, as History.Observe does.
func (k *Keeper) Observe(now int64, all []Report) {
	k.history.Observe(now, all)
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// Start starts the loop. It does not wait.
func (k *Keeper) Start(context.Context) error {
	k.start.Do(func() { go k.run() })
	return nil
}

// Stop ends the loop.
func (k *Keeper) Stop(ctx context.Context) error {
	k.start.Do(func() { close(k.done) })
	k.stop.Do(k.cancel)
	select {
	case <-k.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *Keeper) run() {
	defer close(k.done)
	for !k.load() {
		pause := time.NewTimer(loadAgain + rand.N(loadAgain))
		select {
		case <-pause.C:
		case <-k.ctx.Done():
			pause.Stop()
			return
		}
	}
	for {
		select {
		case <-k.news:
			k.write()
		case <-k.ctx.Done():
			return
		}
	}
}

func (k *Keeper) load() bool {
	ctx, cancel := context.WithTimeout(k.ctx, loadTimeout)
	defer cancel()
	minutes, err := k.store.Load(ctx)
	if err == nil {
		k.history.Restore(minutes)
	}
	return k.note(err)
}

func (k *Keeper) write() {
	due, newest := k.history.Due(k.replica, k.last)
	for _, m := range due {
		ctx, cancel := context.WithTimeout(k.ctx, callTimeout)
		err := k.store.Add(ctx, m)
		cancel()
		if !k.note(err) {
			return // repeated with the next report
		}
		k.last = m.AtMS
	}
	k.last = max(k.last, newest)
}

// note logs the first of several failures, and reports whether there was none.
func (k *Keeper) note(err error) bool {
	if err != nil && !k.failed && k.ctx.Err() == nil {
		k.log.Warn("history.not_kept", zap.Error(err))
	}
	k.failed = err != nil
	return err == nil
}
