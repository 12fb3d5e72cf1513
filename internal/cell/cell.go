package cell

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var sources embed.FS

// scripts are all called by EVALSHA, also the read-only ones: miniredis takes TIME for a write,
// which EVALSHA_RO refuses.
var scripts = script.MustLoad(sources)

// Scripts returns the scripts of this package. The caller must not change the map.
func Scripts() script.Set { return scripts }

var (
	// ErrUnknownNode is returned by Heartbeat when no node of this name is registered: Redis lost
	// it, or an operator removed it. Register again.
	ErrUnknownNode = errors.New("node is not registered")
	// ErrSuperseded is returned when another epoch of the node has registered. The caller must stop
	// its handlers and exit.
	ErrSuperseded = errors.New("another agent has registered under this node id")
	// ErrRepliesGone is returned by KeepReplies when the stream is gone. Open it again, and read
	// the records of all outstanding jobs.
	ErrRepliesGone = errors.New("reply stream is gone")
	// ErrNotSent is returned, joined with the context's error, by Submit and Complete if the caller
	// gave up while its item was still queued. Submit also returns it, joined with that error, if
	// the call before it got no answer. Nothing was changed.
	ErrNotSent = script.ErrNotSent
	// ErrStopped is returned by calls to a cell that was stopped or never started.
	ErrStopped = script.ErrStopped
	// ErrNotReplicated is returned by calls that wait for Redis' replicas, if too few of them
	// confirmed in time. The master has what was written, and may still lose it.
	ErrNotReplicated = script.ErrNotReplicated
)

// Defaults of Config.
const (
	DefaultHeartbeatLimit = 8 * time.Second
	DefaultCallTimeout    = time.Second
	DefaultRetention      = time.Hour
	DefaultDeadRetention  = 72 * time.Hour
	DefaultDeadLimit      = 10_000
	DefaultQueueLimit     = 4096
	DefaultWaitingLimit   = 100_000
	DefaultKeyRetention   = 24 * time.Hour

	batchItems     = 64
	batchBytes     = 1 << 20
	batchLoops     = 2 // the most calls of an operation under way at once; 3 measured no better
	callsOfFew     = 8 // the same for calls with few jobs, see batch
	tombstonesKept = 1000
	moveRetention  = 2 * time.Minute // the least retention of a job that has moved
)

// streamTTL is how long a replica's stream lives after it was last renewed. Tests set it once,
// before they make cells, so that their streams outlive any test.
var streamTTL = 30 * time.Second

// Config configures a cell. The zero value of each field means its default.
type Config struct {
	// Layout names the keys. The zero value is DefaultPrefix without a tag.
	Layout Layout
	// Index is the cell's number among the cells of the system, from 0.
	Index int
	// Cells is the number of cells in the system. 0 means 1.
	Cells int
	// Servers is the number of standalone servers that share the cells: cell i is on server i mod
	// Servers. It is 1 on a cluster. 0 means 1.
	Servers int
	// HeartbeatLimit is how long a node may be silent before it gets no more jobs.
	HeartbeatLimit time.Duration
	// CallTimeout bounds every call to Redis that has no deadline of its own.
	CallTimeout time.Duration
	// Retention is how long the record of a terminal job is kept.
	Retention time.Duration
	// RetentionBytes bounds the bytes that the records of terminal jobs take in this cell. Dead jobs
	// take at most half of it. 0 means no limit.
	RetentionBytes int64
	// DeadRetention is how long the record of a dead job is kept, if that is longer than Retention.
	DeadRetention time.Duration
	// DeadLimit bounds the dead jobs of this cell: the oldest go first.
	DeadLimit int
	// QueueLimit bounds the items that wait for the next call of an operation. Further callers wait
	// for room until their context ends.
	QueueLimit int
	// WaitingLimit bounds the jobs of one class that wait for a slot. Further ones are refused.
	WaitingLimit int
	// KeyRetention is how long an idempotency key names its job, counted from the submission. A
	// client's key is kept at least until its job has ended.
	KeyRetention time.Duration
	// Acknowledge says which servers must have a job before it counts as accepted.
	Acknowledge script.Acknowledge
	// Scripts says what to do if Redis has lost the scripts.
	Scripts script.Missing
}

// WithDefaults returns a copy of c with zero fields replaced by their defaults.
func (c Config) WithDefaults() Config {
	if c.Layout.Prefix == "" {
		c.Layout.Prefix = DefaultPrefix
	}
	c.Cells, c.Servers = max(c.Cells, 1), max(c.Servers, 1)
	if c.HeartbeatLimit == 0 {
		c.HeartbeatLimit = DefaultHeartbeatLimit
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = DefaultCallTimeout
	}
	if c.Retention == 0 {
		c.Retention = DefaultRetention
	}
	if c.DeadRetention == 0 {
		c.DeadRetention = DefaultDeadRetention
	}
	if c.DeadLimit == 0 {
		c.DeadLimit = DefaultDeadLimit
	}
	if c.QueueLimit == 0 {
		c.QueueLimit = DefaultQueueLimit
	}
	if c.WaitingLimit == 0 {
		c.WaitingLimit = DefaultWaitingLimit
	}
	if c.Acknowledge.Timeout == 0 {
		c.Acknowledge.Timeout = script.DefaultReplicationTimeout
	}
	if c.KeyRetention == 0 {
		c.KeyRetention = DefaultKeyRetention
	}
	return c
}

// Validate returns an error that names the first bad field.
func (c Config) Validate() error {
	if err := freeslot.ValidateName("key_prefix", c.Layout.Prefix); err != nil {
		return err
	}
	if c.Layout.Tag != "" {
		if err := freeslot.ValidateName("tag", c.Layout.Tag); err != nil {
			return err
		}
	}
	if c.Cells > MaxCells || c.Index < 0 || c.Index >= MaxCells {
		return fmt.Errorf("cell %d of %d, expected at most %d cells", c.Index, c.Cells, MaxCells)
	}
	if c.Servers > c.Cells {
		return fmt.Errorf("servers is %d, expected at most one for each of the %d cells", c.Servers, c.Cells)
	}
	if c.RetentionBytes < 0 {
		return fmt.Errorf("retention_bytes is %d, expected at least 1 (0 means no limit)", c.RetentionBytes)
	}
	if c.DeadLimit < 0 {
		return fmt.Errorf("dead_limit is %d, expected at least 1 (0 means %d)", c.DeadLimit, DefaultDeadLimit)
	}
	if c.QueueLimit < 0 {
		return fmt.Errorf("queue_limit is %d, expected at least 1 (0 means %d)", c.QueueLimit, DefaultQueueLimit)
	}
	if c.WaitingLimit < 0 {
		return fmt.Errorf("waiting_limit is %d, expected at least 1 (0 means %d)", c.WaitingLimit, DefaultWaitingLimit)
	}
	if err := c.Acknowledge.Validate(); err != nil {
		return err
	}
	for name, d := range map[string]time.Duration{
		"heartbeat_limit": c.HeartbeatLimit, "call_timeout": c.CallTimeout, "retention": c.Retention,
		"dead_retention": c.DeadRetention,
		"key_retention":  c.KeyRetention,
	} {
		if d < time.Millisecond {
			return fmt.Errorf("%s is %s, expected at least 1ms", name, d)
		}
	}
	return nil
}

// Cell runs the scripts of one cell. It is safe for concurrent use. Submit, EnqueueAll and Complete
// need Start; all other methods work without it.
type Cell struct {
	cfg     Config
	layout  Layout
	client  rueidis.Client
	log     *zap.Logger
	runner  *script.Runner
	scripts script.Set
	reader  profileReader
	// unreadable logs the nodes whose records cannot be read, by id.
	unreadable *logging.Repeated
	// clock is the last reading of this cell's Redis clock taken for a move; nil before the first.
	clock atomic.Pointer[clockReading]
	// tombstones is tombstonesKept. Tests set it lower.
	tombstones int

	submits     *script.Batch[encodedSubmission, Placement]
	enqueues    *script.Batch[encodedSubmission, Placement]
	completions *script.Batch[Completion, CompletionOutcome]

	start, stop sync.Once
	// stopping is closed by Stop, and stopped once no loop runs any more.
	stopping, stopped chan struct{}
	loops             sync.WaitGroup
}

// Runner returns the runner for scripts of features in this cell.
func (c *Cell) Runner() *script.Runner { return c.runner }

// Layout returns the names of the cell's keys.
func (c *Cell) Layout() Layout { return c.layout }

// HeartbeatLimit returns how long a node may be silent before it gets no more jobs.
func (c *Cell) HeartbeatLimit() time.Duration { return c.cfg.HeartbeatLimit }

// AcknowledgeReplicas returns how many of Redis' replicas must have a job before it counts as
// accepted. 0 means none.
func (c *Cell) AcknowledgeReplicas() int { return c.cfg.Acknowledge.Replicas }

// ReplicasOnline returns how many replicas keep up with the cell's master, as far as the master
// knows. Errors: from Redis.
func (c *Cell) ReplicasOnline(ctx context.Context) (int, error) { return c.runner.ReplicasOnline(ctx) }

// ReplicasBehind is [script.Runner.ReplicasBehind] of the cell's master.
func (c *Cell) ReplicasBehind(ctx context.Context, limit time.Duration) ([]string, error) {
	return c.runner.ReplicasBehind(ctx, limit)
}

// Confirm waits until Redis' replicas have everything that any process wrote to the cell before. It
// returns at once if no replica has to confirm. Errors: ErrNotReplicated.
func (c *Cell) Confirm(ctx context.Context) error { return c.runner.Confirm(ctx) }

// Index returns the cell's number.
func (c *Cell) Index() int { return c.cfg.Index }

// NewJobID returns a new job id of this cell.
func (c *Cell) NewJobID() string { return NewJobID(c.cfg.Index) }

// clockReading is a reading of a cell's clock: at the local time at, or before, it showed ms.
type clockReading struct {
	ms int64
	at time.Time
}
