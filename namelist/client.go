package namelist

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/follow"
	"github.com/freeslot/freeslot/internal/loopback"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/count"
	"github.com/freeslot/freeslot/internal/process/ending"
	"github.com/freeslot/freeslot/internal/process/output"
)

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("namelist: the client is closed")

// Client follows lists and answers from them. It is safe for concurrent use.
type Client struct {
	cfg Config
	id  string // names the client in reports
	// incarnation is another one in each process. Its counters begin at 0, at begun.
	incarnation string
	begun       time.Time
	log         *zap.Logger
	metrics     *metrics
	cache       *cache
	asks        asks
	// disk and chainDisk are nil without a folder.
	disk      *follow.Disk[*snapshot]
	chainDisk *follow.Disk[*chainState]
	source    atomic.Pointer[source] // nil until the control server was reached

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	closing sync.RWMutex // held for reading while a goroutine begins
	loops   sync.WaitGroup
	close   sync.Once

	lists  sync.Map // name -> *List
	chains sync.Map // name -> *Chain

	// added holds a token when there are new lists or chains, look when all are due for a look.
	added, look chan struct{}

	mu sync.Mutex
	// The follower does not know the fresh lists and chains yet.
	fresh       []*List  // guarded by mu
	freshChains []*Chain // guarded by mu
	err         error    // guarded by mu; the error of the last call to the control server
}

// Open makes a client, which connects by itself and never gives up. Open waits for nothing. The
// first check of a list waits, for at most Config.Deadline; see also [List.WaitReady]. Errors: a
// *freeslot.Error that names every bad field, which includes a SnapshotDir in which no file can be
// made.
func Open(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.SnapshotDir != "" {
		if err := output.TryFolder(cfg.SnapshotDir); err != nil {
			return nil, freeslot.Invalid(
				"snapshot_dir", "is %q, expected a folder in which files can be made: %v", cfg.SnapshotDir, err,
			)
		}
	}
	if plain := loopback.Plain(cfg.URL); plain != "" && cfg.Token != "" {
		cfg.Logger.Warn(
			"namelist.plain", zap.String("url", plain), zap.String("reason", "the token goes there in the clear; use https://"),
		)
	}
	c := newClient(cfg)
	c.start(func(ctx context.Context) (source, error) {
		if cfg.URL != "" {
			return openHTTP(cfg)
		}
		return openRedis(ctx, cfg)
	})
	return c, nil
}

func newClient(cfg Config) *Client {
	var random [6]byte
	_, _ = rand.Read(random[:]) // it never fails
	incarnation := hex.EncodeToString(random[:])
	c := &Client{
		cfg: cfg, id: cfg.ClientName + "-" + incarnation, incarnation: incarnation, begun: time.Now(), log: cfg.Logger,
		metrics: newMetrics(cfg.Registerer),
		cache:   newCache(cfg.MaxBytes / 4), asks: asks{pending: make(map[askKey]*ask)},
		added: make(chan struct{}, 1), look: make(chan struct{}, 1),
	}
	if cfg.Registerer != nil {
		c.register(cfg.Registerer)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if cfg.SnapshotDir != "" {
		c.disk = newSnapshots(cfg.SnapshotDir, cfg.KeyPrefix, cfg.Logger)
		c.chainDisk = newChainSnapshots(cfg.SnapshotDir, cfg.KeyPrefix, cfg.Logger)
	}
	return c
}

func (c *Client) start(open func(context.Context) (source, error)) {
	f := newFollower(c)
	c.loops.Go(func() { f.loop(open) })
	if c.disk != nil {
		c.loops.Go(func() { c.disk.Run(c.ctx) })
		c.loops.Go(func() { c.chainDisk.Run(c.ctx) })
	}
}

// Close ends the client; checks that wait for Redis become unknown. It waits for a call of
// OnChange, for the last snapshot, and until Redis knows that switches need not wait for this
// client, but not beyond the end of ctx. It may be called twice.
func (c *Client) Close(ctx context.Context) (err error) {
	c.close.Do(func() {
		c.closing.Lock() // nothing begins after this
		c.cancel()
		c.closing.Unlock()
		err = ending.Await(ctx, "close client of lists", func() {
			c.loops.Wait()
			if on := c.source.Load(); on != nil {
				c.withdraw(ctx, *on)
				(*on).close()
			}
		})
	})
	return err
}

// withdraw takes the client's reports back, once the follower has ended. It does not wait for a
// server that does not answer: that server drops the reports by itself.
func (c *Client) withdraw(ctx context.Context, on source) {
	if c.failure() != nil {
		return
	}
	all := make(map[string]lists.ClientReport)
	c.lists.Range(func(name, l any) bool {
		if l.(*List).follower.reported.Birth != "" {
			all[name.(string)] = c.left(l.(*List))
		}
		return true
	})
	chains := make(map[string]lists.ClientReport)
	c.chains.Range(func(name, of any) bool {
		if of.(*Chain).follower.reported {
			chains[lists.ChainMark(name.(string))] = lists.ClientReport{Counts: c.countedBy(of.(*Chain))}
		}
		return true
	})
	err := errors.Join(
		c.report(ctx, on, all, lists.ReportLists), c.report(ctx, on, chains, chainReportsAtOnce),
	)
	if err != nil {
		c.log.Warn("namelist.reports_left", zap.Error(err))
	}
}

// report tells the control server what the client has of lists or chains, in parts of that many.
func (c *Client) report(ctx context.Context, on source, all map[string]lists.ClientReport, atOnce int) error {
	for names := range slices.Chunk(slices.Collect(maps.Keys(all)), atOnce) {
		part := make(map[string]lists.ClientReport, len(names))
		for _, name := range names {
			part[name] = all[name]
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		err := on.report(ctx, c.id, part)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// spawn starts a goroutine, unless the client closes.
func (c *Client) spawn(f func()) bool {
	c.closing.RLock()
	defer c.closing.RUnlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.loops.Go(f)
	return true
}

// List returns the list with this name, and follows it from the first call on. It returns the same
// List in all calls. A name that no list can have answers unknown for ever.
func (c *Client) List(name string) *List {
	if l, ok := c.lists.Load(name); ok {
		return l.(*List)
	}
	l := &List{name: name, client: c, counts: count.NewSet(count.Cells)}
	why := ReasonNotLoaded
	bad := lists.ValidateName("list", name) != nil
	if bad {
		why = ReasonListUnknown
	}
	l.snapshot.Store(&snapshot{why: why, status: Status{List: name, Reason: why}, replaced: make(chan struct{})})
	if known, there := c.lists.LoadOrStore(name, l); there {
		return known.(*List)
	}
	if !bad {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fresh = append(c.fresh, l)
		follow.Wake(c.added)
	}
	return l
}

// lookSoon schedules a look at all lists.
func (c *Client) lookSoon() { follow.Wake(c.look) }

// failure returns the error of the last call to the control server, or nil.
func (c *Client) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Client) setFailure(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// publish gives out a new snapshot.
func (c *Client) publish(l *List, p *snapshot) {
	close(l.snapshot.Swap(p).replaced)
	if c.disk != nil && p.why == ReasonNone && !p.stale && p.ready {
		c.disk.Changed(l.name, p)
	}
}

// callTimeout bounds a call for a head or a mark, blockTimeout a call for a block.
const (
	callTimeout  = 2 * time.Second
	blockTimeout = 10 * time.Second
)
