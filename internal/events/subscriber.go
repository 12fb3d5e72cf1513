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

	"github.com/freeslot/freeslot/internal/process/logging"
)

// queueLimit bounds the messages that wait for the reader. A message that finds the queue full is
// dropped, with a reset: resynchronising costs the reader less than a long backlog of old
// heartbeats.
const queueLimit = 8192

// The pauses before a refused subscription (no permission, too many clients) is repeated: 50 ms at
// first, a second in the long run.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
)

// Subscriber receives the messages of one channel, for one reader. After every possible loss of
// messages there is a reset.
type Subscriber struct {
	client  rueidis.Client
	channel string
	sharded bool
	master  string // the channel's last known server; used by run alone
	log     *zap.Logger

	handle   func(message string) // instead of messages, unless nil
	reset    func()               // instead of resets, unless nil
	messages chan string
	resets   chan struct{}
	dropped  atomic.Uint64
	// subscribed is true from the confirmation of a subscription to its end.
	subscribed atomic.Bool

	start  sync.Once
	cancel context.CancelFunc
	ctx    context.Context
	done   sync.WaitGroup
}

// NewSubscriber makes a subscriber on client, which the caller keeps and closes, and must use only
// for subscribers. It does no I/O. If sharded is true, it receives messages of SPUBLISH, otherwise
// of PUBLISH. client is then a cluster's; the subscribers of several channels can share it.
func NewSubscriber(client rueidis.Client, channel string, sharded bool, log *zap.Logger) *Subscriber {
	ctx, cancel := context.WithCancel(context.Background())
	return &Subscriber{
		client: client, channel: channel, sharded: sharded, log: log, ctx: ctx, cancel: cancel,
		messages: make(chan string, queueLimit), resets: make(chan struct{}, 1),
	}
}

// Handle makes the subscriber call message with each message, in the order of publication, instead
// of putting it into Messages. It calls reset, unless that is nil, instead of putting a token into
// Resets. Neither must wait or use Redis: that would hold up everything that the connection
// receives. Call Handle before Start.
func (s *Subscriber) Handle(message func(string), reset func()) {
	s.handle, s.reset, s.messages = message, reset, nil
}

// Messages returns the messages in the order of publication.
func (s *Subscriber) Messages() <-chan string { return s.messages }

// Resets returns a channel that gets a token after each subscription or resubscription, and when
// the queue was full: messages may have been lost before it. Messages that are in the queue at a
// resubscription are older than its reset.
func (s *Subscriber) Resets() <-chan struct{} { return s.resets }

// Dropped returns the number of messages that found the queue full.
func (s *Subscriber) Dropped() uint64 { return s.dropped.Load() }

// Subscribed returns false while Redis refuses the subscription, or has ended it: no messages
// arrive then. It stays true while a broken connection is replaced.
func (s *Subscriber) Subscribed() bool { return s.subscribed.Load() }

// Start subscribes and stays subscribed until Stop. It returns at once; the first reset means that
// the subscription is confirmed.
func (s *Subscriber) Start(context.Context) error {
	s.start.Do(func() { s.done.Go(s.run) })
	return nil
}

// Stop ends the reception and waits for that. The server keeps sending until the client is closed.
// Stop may be called twice, and on a subscriber that was never started.
func (s *Subscriber) Stop(context.Context) error {
	s.cancel()
	s.done.Wait()
	return nil
}

func (s *Subscriber) run() {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstRetry, lastRetry
	if s.sharded {
		wait.InitialInterval = firstShardRetry
	}
	ended := logging.NewRepeated(s.log, "events.subscription_ended")
	for s.ctx.Err() == nil {
		subscribed, err := s.receive()
		if s.ctx.Err() != nil {
			return
		}
		if subscribed {
			wait.Reset()
		}
		ended.Warn("", zap.String("channel", s.channel), zap.Error(err))
		select {
		case <-time.After(wait.NextBackOff()):
		case <-s.ctx.Done():
		}
	}
}

// errUnsubscribed ends a sharded subscription whose slot moves or whose master steps down. Other
// subscriptions would end with it only after an UNSUBSCRIBE, which no code here sends.
var errUnsubscribed = errors.New("unsubscribed by the server")

func (s *Subscriber) receive() (subscribed bool, err error) {
	if s.sharded {
		return s.receiveShard()
	}
	return s.receiveFrom(s.ctx, s.client, s.client.B().Subscribe().Channel(s.channel).Build(), func() {})
}

// receiveFrom receives messages and resubscribes after a broken connection. It ends with ctx, on
// errors that do not concern the connection, and when the server unsubscribes. It calls
// onSubscribed after each confirmation.
func (s *Subscriber) receiveFrom(
	ctx context.Context, c rueidis.Client, subscribe rueidis.Completed, onSubscribed func(),
) (subscribed bool, err error) {
	var confirmed atomic.Bool
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(sub rueidis.PubSubSubscription) {
		if sub.Kind == "subscribe" || sub.Kind == "ssubscribe" {
			confirmed.Store(true)
			s.subscribed.Store(true)
			if s.reset != nil {
				s.reset()
			} else {
				signal(s.resets)
			}
			onSubscribed()
		}
	})
	defer s.subscribed.Store(false)
	if err = c.Receive(ctx, subscribe, s.deliver); err == nil {
		err = errUnsubscribed
	}
	return confirmed.Load(), err
}

// deliver gets one message after the other. It must not wait, because other channels share the
// connection.
func (s *Subscriber) deliver(m rueidis.PubSubMessage) {
	if s.handle != nil {
		s.handle(m.Message)
		return
	}
	select {
	case s.messages <- m.Message:
	default:
		s.dropped.Add(1)
		signal(s.resets)
	}
}

// signal puts a token into a channel with room for one. A token that is there already serves for
// this signal, too.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
