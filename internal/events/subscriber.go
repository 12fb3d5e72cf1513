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
// dropped: the reader sees the gap in the revisions and resynchronises, which
// costs less than applying a long backlog of old heartbeats.
const queueLimit = 8192

// A subscription that Redis refuses (no permission, too many clients) is tried
// again after 50 ms at first and after a second in the long run.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
)

// Subscriber receives the messages of one channel on a client that does nothing
// else. It is for one reader.
type Subscriber struct {
	client  rueidis.Client
	channel string
	log     *zap.Logger

	messages chan string
	resets   chan struct{}
	dropped  atomic.Uint64

	start  sync.Once
	stop   sync.Once
	cancel context.CancelFunc
	ctx    context.Context
	done   sync.WaitGroup
}

// NewSubscriber makes a subscriber on client, which stays the caller's and must
// not be used for anything else. It does no I/O.
func NewSubscriber(client rueidis.Client, channel string, log *zap.Logger) *Subscriber {
	ctx, cancel := context.WithCancel(context.Background())
	return &Subscriber{
		client: client, channel: channel, log: log, ctx: ctx, cancel: cancel,
		messages: make(chan string, queueLimit), resets: make(chan struct{}, 1),
	}
}

// Messages delivers the messages in the order of their publication.
func (s *Subscriber) Messages() <-chan string { return s.messages }

// Resets fires after each (re)subscription: messages may have been lost before it.
func (s *Subscriber) Resets() <-chan struct{} { return s.resets }

// Dropped is the number of messages that found the queue full.
func (s *Subscriber) Dropped() uint64 { return s.dropped.Load() }

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
	for s.ctx.Err() == nil {
		subscribed, err := s.receive()
		if s.ctx.Err() != nil {
			return
		}
		if subscribed {
			wait.Reset()
		}
		s.log.Warn("events.subscription_ended", zap.String("channel", s.channel), zap.Error(err))
		select {
		case <-time.After(wait.NextBackOff()):
		case <-s.ctx.Done():
		}
	}
}

// receive resubscribes by itself; it ends only with the subscriber, for errors
// that are not about the connection, or by an UNSUBSCRIBE that nobody here sends.
func (s *Subscriber) receive() (subscribed bool, err error) {
	var confirmed atomic.Bool
	ctx := rueidis.WithOnSubscriptionHook(s.ctx, func(rueidis.PubSubSubscription) {
		confirmed.Store(true)
		select {
		case s.resets <- struct{}{}:
		default: // one is waiting already, and stands for this one too
		}
	})
	err = s.client.Receive(ctx, s.client.B().Subscribe().Channel(s.channel).Build(), s.deliver)
	if err == nil {
		err = errors.New("unsubscribed by the server")
	}
	return confirmed.Load(), err
}

// deliver runs on the connection's reader, which must never wait.
func (s *Subscriber) deliver(m rueidis.PubSubMessage) {
	select {
	case s.messages <- m.Message:
	default:
		s.dropped.Add(1)
	}
}
