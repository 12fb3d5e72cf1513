package events

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/redis/rueidis"
	"go.uber.org/zap"
)

// queueLimit bounds the messages that wait for the reader. What does not fit is
// dropped with a reset: the reader resynchronises, which costs less than applying
// a long backlog of old heartbeats.
const queueLimit = 8192

// A subscription that Redis refuses (no permission, too many clients) is tried
// again after 50 ms at first and after a second in the long run.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
)

// Subscriber receives the messages of one channel. It is for one reader. After
// every possible loss of messages there is a reset.
type Subscriber struct {
	client  rueidis.Client
	channel string
	sharded bool
	master  string // the channel's server, as far as known; the goroutine's own
	log     *zap.Logger

	messages chan string
	resets   chan struct{}
	dropped  atomic.Uint64
	// subscribed is true from the confirmation of a subscription to the end of what receives by it.
	subscribed atomic.Bool

	start  sync.Once
	stop   sync.Once
	cancel context.CancelFunc
	ctx    context.Context
	done   sync.WaitGroup
}

// NewSubscriber makes a subscriber on client, which stays the caller's and must
// not be used for anything but subscribers. It does no I/O. sharded is for what
// SPUBLISH sends: client is then a cluster's, which the subscribers of several
// channels may share. Without it the messages are those of PUBLISH.
func NewSubscriber(client rueidis.Client, channel string, sharded bool, log *zap.Logger) *Subscriber {
	ctx, cancel := context.WithCancel(context.Background())
	return &Subscriber{
		client: client, channel: channel, sharded: sharded, log: log, ctx: ctx, cancel: cancel,
		messages: make(chan string, queueLimit), resets: make(chan struct{}, 1),
	}
}

// Messages delivers the messages in the order of their publication.
func (s *Subscriber) Messages() <-chan string { return s.messages }

// Resets fires after each (re)subscription, and when the queue was full: messages
// may have been lost before it. Those that wait when a subscription stands anew
// are older than its reset.
func (s *Subscriber) Resets() <-chan struct{} { return s.resets }

// Dropped is the number of messages that found the queue full.
func (s *Subscriber) Dropped() uint64 { return s.dropped.Load() }

// Subscribed is false while Redis refuses the subscription, or has ended it: nothing is heard then. A connection that
// breaks is replaced without a word.
func (s *Subscriber) Subscribed() bool { return s.subscribed.Load() }

// Start subscribes and stays subscribed until Stop. It returns at once; the first
// Reset tells that the subscription stands.
func (s *Subscriber) Start(context.Context) error {
	s.start.Do(func() {
		s.done.Add(1)
		go func() { defer s.done.Done(); s.run() }()
	})
	return nil
}

// Stop ends the reception and waits. The server goes on sending, to nobody, until
// the client is closed. It tolerates a subscriber that was never started, and
// being called twice.
func (s *Subscriber) Stop(context.Context) error {
	s.stop.Do(s.cancel)
	s.done.Wait()
	return nil
}

func (s *Subscriber) run() {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstRetry, lastRetry
	if s.sharded {
		wait.InitialInterval = firstShardRetry
	}
	searching := false
	for s.ctx.Err() == nil {
		subscribed, err := s.receive()
		if s.ctx.Err() != nil {
			return
		}
		if subscribed {
			wait.Reset()
		}
		// The search for a new master takes many attempts, of which one is news.
		known := searching && !subscribed
		if searching = s.sharded && !subscribed; !known {
			s.log.Warn("events.subscription_ended", zap.String("channel", s.channel), zap.Error(err))
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-s.ctx.Done():
		}
	}
}

// errUnsubscribed is what ends a sharded subscription whose slot moves or whose
// master steps down. To others it happens by an UNSUBSCRIBE that nobody here sends.
var errUnsubscribed = errors.New("unsubscribed by the server")

func (s *Subscriber) receive() (subscribed bool, err error) {
	if s.sharded {
		return s.receiveShard()
	}
	return s.receiveFrom(s.ctx, s.client, s.client.B().Subscribe().Channel(s.channel).Build(), func() {})
}

// receiveFrom resubscribes by itself; it ends with ctx, for errors that are not
// about the connection, and when the server unsubscribes. It calls stands each time
// that the subscription does.
func (s *Subscriber) receiveFrom(ctx context.Context, c rueidis.Client, subscribe rueidis.Completed, stands func()) (subscribed bool, err error) {
	var confirmed atomic.Bool
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(sub rueidis.PubSubSubscription) {
		if sub.Kind == "subscribe" || sub.Kind == "ssubscribe" {
			confirmed.Store(true)
			s.subscribed.Store(true)
			s.reset()
			stands()
		}
	})
	defer s.subscribed.Store(false)
	if err = c.Receive(ctx, subscribe, s.deliver); err == nil {
		err = errUnsubscribed
	}
	return confirmed.Load(), err
}

// deliver is called one message after the other and must not wait: others share
// the connection.
func (s *Subscriber) deliver(m rueidis.PubSubMessage) {
	select {
	case s.messages <- m.Message:
	default:
		s.dropped.Add(1)
		s.reset()
	}
}

func (s *Subscriber) reset() {
	select {
	case s.resets <- struct{}{}:
	default: // one is waiting already, and stands for this one too
	}
}
