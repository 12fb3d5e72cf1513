package registry

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/follow"
	"github.com/freeslot/freeslot/internal/script"
)

const (
	// hubQueue bounds the messages that wait for the consumer. If the queue is full, a message is
	// dropped and counts as lost: the consumer then looks at all its services.
	hubQueue = 8192
	// subscribeChunk is the largest number of channels in one command.
	subscribeChunk = 256
	// subscribeTimeout bounds one command.
	subscribeTimeout = 2 * time.Second
	// mastersEvery is how often a cluster is asked for its masters. mastersSoon is how soon it is
	// asked after a subscription has ended unexpectedly.
	mastersEvery = 5 * time.Second
	mastersSoon  = 100 * time.Millisecond
	// The waits before a broken connection is replaced.
	firstReconnect = 20 * time.Millisecond
	lastReconnect  = 2 * time.Second
)

// hub holds the subscriptions of a process to any number of channels, over one connection to each
// server. It is safe for concurrent use.
//
// In each channel, messages come in the order of their publication. Subscribed names channels whose
// subscription is new or renewed: messages may have been lost before.
type hub struct {
	client  rueidis.Client
	cluster bool
	log     *zap.Logger
	// explain is the conn's.
	explain func(error, script.Role) error
	// masters returns the masters of a cluster.
	masters func(context.Context) ([]events.Master, error)

	messages chan hubMessage
	// lost has a token when messages were dropped, fresh when subscribed has names.
	lost, fresh, moved chan struct{}

	ctx   context.Context
	loops sync.WaitGroup

	mu         sync.Mutex
	channels   map[string]*hubChannel // guarded by mu
	links      map[string]*link       // guarded by mu; by address, "" on a server
	subscribed map[string]struct{}    // guarded by mu; not taken yet
}

type hubMessage struct{ channel, text string }

// hubChannel is one wanted subscription.
type hubChannel struct {
	slot int
	link *link // nil while its master is unknown
}

// link is the connection to one server.
type link struct {
	h    *hub
	addr string
	poke chan struct{}
	end  context.CancelFunc

	add, drop map[string]int // guarded by h.mu; channels to subscribe to, and to leave, with their slots
}

func newHub(ctx context.Context, on *conn, log *zap.Logger) *hub {
	return &hub{
		client: on.commands, cluster: on.cluster, explain: on.explain, log: log, ctx: ctx,
		masters:  events.ClusterMasters(on.commands),
		messages: make(chan hubMessage, hubQueue), lost: make(chan struct{}, 1), fresh: make(chan struct{}, 1),
		moved:    make(chan struct{}, 1),
		channels: make(map[string]*hubChannel), links: make(map[string]*link), subscribed: make(map[string]struct{}),
	}
}

// start starts the hub, which ends with its context; wait waits for that.
func (h *hub) start() {
	if h.cluster {
		h.loops.Go(h.route)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.linkTo("")
}

func (h *hub) wait() { h.loops.Wait() }

// want subscribes to a channel; slot is its hash slot on a cluster.
func (h *hub) want(channel string, slot int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.channels[channel] != nil {
		return
	}
	c := &hubChannel{slot: slot}
	h.channels[channel] = c
	if !h.cluster {
		c.attach(channel, h.links[""])
		return
	}
	for _, other := range h.channels {
		if other.slot == slot && other.link != nil {
			c.attach(channel, other.link)
			return
		}
	}
	follow.Wake(h.moved)
}

// leave ends a subscription.
func (h *hub) leave(channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.channels[channel]; c != nil {
		c.detach(channel)
		delete(h.channels, channel)
		delete(h.subscribed, channel)
	}
}

// taken returns the channels whose subscription is new or renewed since the last call.
func (h *hub) taken() map[string]struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.subscribed
	h.subscribed = make(map[string]struct{})
	return out
}

// attach gives a channel to a link. The caller holds mu.
func (c *hubChannel) attach(channel string, l *link) {
	c.link = l
	delete(l.drop, channel)
	l.add[channel] = c.slot
	follow.Wake(l.poke)
}

// detach takes a channel from its link. The caller holds mu.
func (c *hubChannel) detach(channel string) {
	if l := c.link; l != nil {
		c.link = nil
		delete(l.add, channel)
		l.drop[channel] = c.slot
		follow.Wake(l.poke)
	}
}

// linkTo returns the link to a server, and makes it if there is none. The caller holds mu.
func (h *hub) linkTo(addr string) *link {
	if l := h.links[addr]; l != nil {
		return l
	}
	ctx, cancel := context.WithCancel(h.ctx)
	l := &link{
		h: h, addr: addr, poke: make(chan struct{}, 1), end: cancel, add: make(map[string]int), drop: make(map[string]int),
	}
	h.links[addr] = l
	h.loops.Go(func() {
		defer cancel()
		l.run(ctx)
	})
	return l
}

// route repeatedly gives each channel of a cluster to the master that has its slot.
func (h *hub) route() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.moved:
			timer.Reset(mastersSoon)
			continue
		case <-timer.C:
		}
		timer.Reset(mastersEvery)
		ctx, cancel := context.WithTimeout(h.ctx, subscribeTimeout)
		masters, err := h.masters(ctx)
		cancel()
		if err != nil {
			timer.Reset(time.Second)
			continue
		}
		h.assign(masters)
	}
}

// assign moves channels to the links of their masters, and ends links without channels.
func (h *hub) assign(masters []events.Master) {
	owner := func(slot int) string {
		for _, m := range masters {
			for _, r := range m.Slots {
				if int(r.First) <= slot && slot <= int(r.Last) {
					return m.Addr
				}
			}
		}
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	owners, used := make(map[int]string), make(map[string]bool)
	for name, c := range h.channels {
		addr, known := owners[c.slot]
		if !known {
			addr = owner(c.slot)
			owners[c.slot] = addr
		}
		if addr == "" {
			continue // it stays where it is
		}
		used[addr] = true
		if c.link == nil || c.link.addr != addr {
			c.detach(name)
			c.attach(name, h.linkTo(addr))
		}
	}
	for addr, l := range h.links {
		if !used[addr] {
			l.end()
			delete(h.links, addr)
		}
	}
}

// deliver handles one message after the other, in the goroutine that reads the connection.
func (h *hub) deliver(m rueidis.PubSubMessage) {
	select {
	case h.messages <- hubMessage{channel: m.Channel, text: m.Message}:
	default:
		follow.Wake(h.lost)
	}
}

// run keeps a connection up.
func (l *link) run(ctx context.Context) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstReconnect, lastReconnect
	for first := true; ; first = false {
		begun := time.Now()
		err := l.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if first || time.Since(begun) > lastReconnect {
			l.h.log.Warn(
				"registry.subscription_ended", zap.String("addr", l.addr), zap.Error(l.h.explain(err, script.RoleRegistry)),
			)
			wait.Reset()
		}
		follow.Wake(l.h.moved)
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
			return
		}
	}
}

var errNoNode = errors.New("the client does not know the node")

// session runs one connection: it subscribes to all channels of the link, and to channels that are
// added.
func (l *link) session(ctx context.Context) error {
	client := l.h.client
	if l.h.cluster {
		if client = l.h.client.Nodes()[l.addr]; client == nil {
			return errNoNode
		}
	}
	l.restart()
	c, release := client.Dedicate()
	defer release()
	defer c.Close()
	broken := c.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: l.h.deliver, OnSubscription: l.onSubscription})
	for {
		if err := l.settle(ctx, c); err != nil {
			return err
		}
		select {
		case <-l.poke:
		case err := <-broken:
			return errors.Join(errors.New("the connection has ended"), err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// restart makes a new connection subscribe to all channels.
func (l *link) restart() {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	clear(l.drop)
	for name, c := range l.h.channels {
		if c.link == l {
			l.add[name] = c.slot
		}
	}
}

// onSubscription notices that a cluster's server has ended a subscription because its slot moves.
func (l *link) onSubscription(s rueidis.PubSubSubscription) {
	if s.Kind != "sunsubscribe" {
		return
	}
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	c := l.h.channels[s.Channel]
	if _, asked := l.drop[s.Channel]; c != nil && c.link == l && !asked {
		c.link = nil
		follow.Wake(l.h.moved)
	}
}

// settle subscribes to what was added and leaves what was dropped.
func (l *link) settle(ctx context.Context, c rueidis.DedicatedClient) error {
	l.h.mu.Lock()
	add, drop := l.add, l.drop
	l.add, l.drop = make(map[string]int), make(map[string]int)
	l.h.mu.Unlock()
	sharded := l.h.cluster
	for _, names := range chunks(add) {
		cmd := c.B().Subscribe().Channel(names...).Build()
		if sharded {
			cmd = c.B().Ssubscribe().Channel(names...).Build()
		}
		if err := l.do(ctx, c, cmd); err != nil {
			return err
		}
		l.confirm(names)
	}
	for _, names := range chunks(drop) {
		cmd := c.B().Unsubscribe().Channel(names...).Build()
		if sharded {
			cmd = c.B().Sunsubscribe().Channel(names...).Build()
		}
		if err := l.do(ctx, c, cmd); err != nil {
			return err
		}
	}
	return nil
}

func (l *link) do(ctx context.Context, c rueidis.DedicatedClient, cmd rueidis.Completed) error {
	ctx, cancel := context.WithTimeout(ctx, subscribeTimeout)
	defer cancel()
	return c.Do(ctx, cmd).Error()
}

func (l *link) confirm(names []string) {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	for _, name := range names {
		if c := l.h.channels[name]; c != nil && c.link == l {
			l.h.subscribed[name] = struct{}{}
		}
	}
	follow.Wake(l.h.fresh)
}

// chunks splits the channels into commands: each has channels of one slot, and not too many.
func chunks(channels map[string]int) [][]string {
	bySlot := make(map[int][]string)
	for name, slot := range channels {
		bySlot[slot] = append(bySlot[slot], name)
	}
	var out [][]string
	for _, names := range bySlot {
		out = slices.AppendSeq(out, slices.Chunk(names, subscribeChunk))
	}
	return out
}
