package v1

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/follow"
	"github.com/freeslot/freeslot/internal/process/ending"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/selection"
)

// Defaults of a Bridge.
const (
	// DefaultEvery is the pause between two looks at a service, DefaultFind the pause between two
	// searches for services.
	DefaultEvery = 2 * time.Second
	DefaultFind  = 30 * time.Second
	// DefaultInterval is the interval of heartbeats of the first version's providers; a provider is
	// silent after three of them.
	DefaultInterval = 30 * time.Second
	// DefaultBeat is how often written instances beat, for old consumers.
	DefaultBeat = 10 * time.Second
)

// store lists the methods of *registry.Store that a bridge calls.
type store interface {
	Services(ctx context.Context) ([]string, error)
	Revision(ctx context.Context, service string) (int64, error)
	Instances(ctx context.Context, service, cursor string) (page []registry.Detail, next string, now time.Time, err error)
	PutCopies(ctx context.Context, service string, copies []registry.Copy) error
	RemoveCopies(ctx context.Context, service string, ids []string) error
}

// Config says how a bridge works. Zero durations mean the defaults.
type Config struct {
	// Self is the name of this replica.
	Self string
	// KeyPrefix is the first version's prefix, and may be empty; Prefix is the second version's.
	KeyPrefix, Prefix string
	// WriteBack is true to write instances of the second version into the first version's keys.
	WriteBack                   bool
	Every, Find, Interval, Beat time.Duration
}

// Bridge copies instances between the versions. Its methods are safe for concurrent use.
type Bridge struct {
	cfg   Config
	db    db
	store store
	log   *zap.Logger

	start, stop sync.Once
	ctx         context.Context // ends with Stop
	cancel      context.CancelFunc
	loops       sync.WaitGroup

	mu sync.Mutex // guards what follows
	// share says which services this replica follows; nil means none, or all if alone is set.
	share *selection.Share
	alone bool
	found []string // services of the first version; nil before the first search
}

// New makes a bridge on client, which the caller keeps and closes. It does no I/O.
func New(cfg Config, client rueidis.Client, s store, log *zap.Logger) *Bridge {
	or := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	or(&cfg.Every, DefaultEvery)
	or(&cfg.Find, DefaultFind)
	or(&cfg.Interval, DefaultInterval)
	or(&cfg.Beat, DefaultBeat)
	b := &Bridge{cfg: cfg, db: db{client, newKeys(cfg.KeyPrefix, cfg.Prefix)}, store: s, log: log}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Start starts both loops.
func (b *Bridge) Start(context.Context) error {
	b.start.Do(func() {
		b.loops.Go(func() { b.loop(b.cfg.Find, b.find) })
		following := make(map[string]*service)
		b.loops.Go(func() { b.loop(b.cfg.Every, func() { b.round(following) }) })
	})
	return nil
}

// Stop ends the loops and waits. It can be called on a bridge that was never started, and twice.
func (b *Bridge) Stop(ctx context.Context) (failed error) {
	b.stop.Do(func() {
		b.cancel()
		failed = ending.Await(ctx, "stop the bridge to the registry's first version", b.loops.Wait)
	})
	return failed
}

// SetReplicas sets the names of the replicas. Before the first call this one follows no service.
func (b *Bridge) SetReplicas(names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.share, b.alone = selection.NewShare(b.cfg.Self, names), slices.Equal(names, []string{b.cfg.Self})
}

func (b *Bridge) loop(every time.Duration, once func()) {
	p := follow.NewPoller(every, every, func(context.Context) error {
		once()
		return nil
	})
	p.Wake() // the first time is now
	p.Run(b.ctx)
}

// find searches for services. Every replica does that, so that each knows what a lost replica
// followed.
func (b *Bridge) find() {
	found, err := b.db.services(b.ctx)
	if err != nil {
		b.failed("find services", err)
		return
	}
	b.mu.Lock()
	b.found = append([]string{}, found...)
	b.mu.Unlock()
}

// round looks at each service of this replica's share. It forgets services that have left the
// share: old scores do not tell who lives now.
func (b *Bridge) round(following map[string]*service) {
	own := b.own(following)
	for name := range following {
		if _, found := slices.BinarySearch(own, name); !found {
			delete(following, name)
		}
	}
	for _, name := range own {
		if following[name] == nil {
			following[name] = &service{name: name, refused: make(map[string]bool)}
		}
		ctx, cancel := context.WithTimeout(b.ctx, 5*callTimeout)
		err := b.poll(ctx, following[name])
		cancel()
		if err != nil {
			b.failed("look at "+name, err)
		}
	}
}

// own returns the services of this replica's share, sorted. A followed service stays until it is
// empty: a search does not find it once its last instance has gone, but its copies are left.
func (b *Bridge) own(following map[string]*service) []string {
	b.mu.Lock()
	all, share, alone := slices.Clone(b.found), b.share, b.alone
	b.mu.Unlock()
	if share == nil && !alone {
		return nil
	}
	if b.cfg.WriteBack {
		ctx, cancel := context.WithTimeout(b.ctx, callTimeout)
		defer cancel()
		names, err := b.store.Services(ctx)
		if err != nil {
			b.failed("list services", err)
		}
		all = append(all, names...)
	}
	for name, s := range following {
		if !s.empty {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(name string) bool { return !alone && !share.Has(name) })
}

func (b *Bridge) failed(what string, err error) {
	if b.ctx.Err() == nil {
		b.log.Warn("registry.v1_failed", zap.String("what", what), zap.Error(err))
	}
}
