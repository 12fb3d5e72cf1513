package lock

import (
	"context"

	"github.com/freeslot/freeslot/internal/lock"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

type (
	// Manager makes locks, and renews and watches the ones that are held. Methods:
	//
	//	Start(ctx) error               connects, and refuses a Redis that cannot be trusted with locks; ctx bounds the start alone
	//	Stop(ctx) error                ends the contexts of all holds and all waiting with ErrClosed; the leases run out
	//	Get(Config) (*Lock, error)     makes a lock, without I/O
	//	Settle(ctx) error              waits until Redis has answered to each Unlock, or its lease is over; for before Stop
	Manager = lock.Manager
	// Options says how a Manager reaches Redis. Only RedisURL is required.
	Options = lock.Options
	// Access says how the process proves its identity to Redis, and how the servers prove theirs.
	Access = redisclient.Access
	// TLS holds the TLS settings that a rediss:// URL cannot express.
	TLS = redisclient.TLS

	// Config describes one lock. Only Key is required.
	Config = lock.Config
	// Recovery says what the watchdog does about a holder that is stalled, or has held for too
	// long.
	Recovery = lock.Recovery
	// Alarm says which checks of a hold fail; see Options.OnAlarm.
	Alarm = lock.Alarm

	// Lock is one lock. It is renewed as long as the process lives, even if the goroutine that
	// holds it hangs, or ends without Unlock. So prefer Do, which always unlocks, and bound what
	// may hang by Config.MaxHold or by the context that you lock with. Methods:
	//
	//	Lock(ctx) (*Held, error)                waits until ctx ends; ctx and its deadline bound the hold, too
	//	TryLock(ctx, wait) (*Held, error)       waits for wait at most; 0 or less is one look. A *HeldError says who has it
	//	Do(ctx, func(ctx, token) error) error   locks, runs the function, and unlocks after its return or panic
	//	Config() Config                         what Get was called with, with its defaults
	Lock = lock.Lock
	// Held is one entry of a lock that is held. Methods:
	//
	//	Context() context.Context   ends with the hold; context.Cause says why. Check it before each write
	//	Token() int64               the fencing token
	//	Left() time.Duration        until the hold ends if no further renewal is confirmed
	//	Beat()                      shows progress; needed only with Config.BeatTimeout
	//	Unlock(ctx) error           takes this entry back; the last one gives the lock back, also if ctx has ended
	Held = lock.Held
	// HeldError says who holds a lock that was not acquired. It matches ErrNotAcquired.
	HeldError = lock.HeldError
	// KeyError is returned if a key of the lock holds something else. Nothing was overwritten.
	KeyError = lock.KeyError

	// Fence is a script that Redis runs only for the newest holder of a lock. Methods:
	//
	//	Run(ctx, client, fence, token, keys, args) (rueidis.RedisMessage, error)   ErrStale for an older holder
	//	Source() string                                                            for other clients of Redis
	Fence = lock.Fence
)

// Errors returned by calls.
var (
	// ErrNotAcquired is returned when the lock was not acquired in time.
	ErrNotAcquired = lock.ErrNotAcquired
	// ErrQueueFull is returned when too many acquisitions wait for one lock. It matches
	// ErrNotAcquired.
	ErrQueueFull = lock.ErrQueueFull
	// ErrNotHeld is returned by Unlock if this entry was already unlocked.
	ErrNotHeld = lock.ErrNotHeld
	// ErrLost is returned by Unlock after the lock was lost. It matches the cause, too.
	ErrLost = lock.ErrLost
	// ErrClosed is returned by calls on a manager that was stopped, and is the cause of contexts
	// that Stop ended.
	ErrClosed = lock.ErrClosed
	// ErrNotStarted is returned by calls on a manager that was not started.
	ErrNotStarted = lock.ErrNotStarted
	// ErrStale is returned by Fence.Run for a token that is lower than one seen before.
	ErrStale = lock.ErrStale
)

// Causes of the end of a holder's context, besides ErrClosed and the cause of the context that the
// lock was taken with.
var (
	// ErrExpired: the lease ended before a renewal was confirmed.
	ErrExpired = lock.ErrExpired
	// ErrGone: Redis no longer has the lock.
	ErrGone = lock.ErrGone
	// ErrTaken: Redis names another holder.
	ErrTaken = lock.ErrTaken
	// ErrRevoked: an operator revoked it.
	ErrRevoked = lock.ErrRevoked
	// ErrMaxHold: the hold lasted for Config.MaxHold.
	ErrMaxHold = lock.ErrMaxHold
	// ErrStalled: the holder called no Beat for Config.BeatTimeout.
	ErrStalled = lock.ErrStalled
	// ErrUnlocked: the last entry was unlocked.
	ErrUnlocked = lock.ErrUnlocked
)

// ErrDisconnected is in Alarm.Err if the check of the connection failed. It ends no hold.
var ErrDisconnected = lock.ErrDisconnected

// Values of Config.Recovery.
const (
	// RecoverCancel ends the context; the lock stays until its lease is over. It is the default.
	RecoverCancel = lock.RecoverCancel
	// RecoverRelease ends the context and gives the lock back at once.
	RecoverRelease = lock.RecoverRelease
	// RecoverAlarm only raises the alarm.
	RecoverAlarm = lock.RecoverAlarm
)

// Values of Alarm.Check, which may list several, separated by commas.
const (
	CheckRenewal    = lock.CheckRenewal
	CheckState      = lock.CheckState
	CheckHolder     = lock.CheckHolder
	CheckConnection = lock.CheckConnection
)

// Defaults and bounds of Config and Options.
const (
	DefaultLease          = lock.DefaultLease
	MinLease              = lock.MinLease
	MaxLease              = lock.MaxLease
	DefaultWatchdogPeriod = lock.DefaultWatchdogPeriod
	DefaultAlertThreshold = lock.DefaultAlertThreshold
	DefaultLiveness       = lock.DefaultLiveness
	DefaultKeyPrefix      = lock.DefaultKeyPrefix
	MinMargin             = lock.MinMargin
	MaxKeyBytes           = lock.MaxKeyBytes
)

// New makes a manager. It does no I/O. Errors: an *freeslot.Error that names every bad option.
func New(opts Options) (*Manager, error) { return lock.New(opts) }

// NewFence puts the check of the token in front of a Lua script. The script uses KEYS and ARGV as
// it would without the check.
func NewFence(lua string) *Fence { return lock.NewFence(lua) }

// WithoutOwner returns ctx without the holds that it belongs to: locking with it waits even for a
// lock that the caller holds.
func WithoutOwner(ctx context.Context) context.Context { return lock.WithoutOwner(ctx) }
