package console

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/socket"
	"github.com/freeslot/freeslot/internal/wire"
)

const (
	// callPause is the time that one call to a cell takes up: there are at most five a second.
	callPause = time.Second / 5
	// mostPause is how long one topic holds up the others. A topic whose calls take up more pays for
	// them while others are computed, and comes less often: within putOff times as long once.
	mostPause = time.Second
	putOff    = 3
	// computeTimeout bounds the computation of a topic.
	computeTimeout = 2 * time.Second
	// maxFrame is the largest frame, in bytes.
	maxFrame = 768 << 10
)

// Sources is what topics are made from. All fields are required.
type Sources struct {
	// Ask answers a GET of the API for a caller.
	Ask func(ctx context.Context, who *identity.Principal, target string) (status int, body []byte)
	// Findings returns what is wrong, as of at most a quarter of a minute ago, for few calls.
	Findings func() finding.Report
	// Fleet returns what is known without asking.
	Fleet func() Fleet
	// Look and Nodes look at the cache, without asking. Nodes calls see for each node, in any order.
	Look  func() Look
	Nodes func(see func(n *Node))
	// Node returns a node as GET /v1/nodes/{id} has it, except its connection, without asking; false
	// if there is none.
	Node func(id string) (any, bool)
	// Now returns the time by Redis' clock, as far as it is known.
	Now func() time.Time
}

// sink gets the frames of topics. It must not block, and must not change a frame.
type sink interface {
	put(topic string, frame []byte) socket.Outcome
	// waits reports whether the topic's last frame was not sent yet.
	waits(topic string) bool
}

// hub computes topics: each once for all its viewers, and only while there are any. One goroutine
// computes what is known in this process, and another one what needs calls to Redis, so that an
// outage of Redis does not hold up the former.
type hub struct {
	sources Sources
	metrics *metrics
	cancel  context.CancelFunc
	running sync.WaitGroup
	// wake tells a goroutine that it has a new topic: the one that asks Redis by wake[1].
	wake [2]chan struct{}

	mu     sync.Mutex // guards the fields that follow, and fields of topics
	topics map[topicKey]*topic
	// seq counts the frames of all topics.
	seq uint64
	// turn counts computations. turns holds the last one for each tenant that has topics.
	turn  uint64
	turns map[string]uint64
	// found is the last report of findings, and replicas the last list of replicas.
	found    *findingsNow
	replicas []Replica
	// roster is what topics that tell changes are made from.
	roster *roster
}

// topic is a topic with viewers. hub.mu guards all fields but key, kind and who.
type topic struct {
	key     topicKey
	kind    *kind
	who     identity.Principal // one of the viewers; they all see the same
	viewers map[sink]*given
	due     time.Time
	frame   []byte // the last one; nil before the first
	made    told   // the last frames of a topic that tells changes, also for viewers who come later
	goodMS  int64  // when it was computed last without an error
}

// given is what a viewer has of a topic that tells changes. hub.mu guards it. Frames replace one
// another while they wait, so each is relative to what the viewer has for sure.
type given struct {
	// has is the last change that was sent for sure, put the last one of the last frame.
	has, put uint64
	at       time.Time // of the last frame
}

func newHub(m *metrics) *hub {
	return &hub{
		metrics: m, wake: [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)},
		topics: make(map[topicKey]*topic), turns: make(map[string]uint64), roster: newRoster(),
	}
}

func (h *hub) start(sources Sources) {
	h.sources = sources
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	for _, asks := range []bool{false, true} {
		h.running.Go(func() { h.run(ctx, asks) })
	}
}

// stop waits until nothing is computed any more.
func (h *hub) stop() {
	if h.cancel != nil {
		h.cancel()
	}
	h.running.Wait()
}

func lane(asks bool) int {
	if asks {
		return 1
	}
	return 0
}

// watch gives a viewer a topic, from the last frame on.
func (h *hub) watch(v sink, key topicKey, k *kind, who *identity.Principal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[key]
	if t == nil {
		t = h.add(key, k, who)
		if k.by != "" && h.topics[topicKey{name: k.by}] == nil {
			h.add(topicKey{name: k.by}, findings, who)
		}
	}
	g := &given{}
	t.viewers[v] = g
	switch {
	case k.changes != nil && t.goodMS > 0:
		h.give(t, v, g, t.made)
	case t.frame != nil:
		v.put(key.name, t.frame)
	}
}

// add makes a topic, which is due at once. The caller holds mu.
func (h *hub) add(key topicKey, k *kind, who *identity.Principal) *topic {
	t := &topic{key: key, kind: k, who: *who, viewers: make(map[sink]*given)}
	h.topics[key] = t
	h.rouse(k.asks)
	return t
}

func (h *hub) rouse(asks bool) {
	select {
	case h.wake[lane(asks)] <- struct{}{}:
	default: // it is awake already
	}
}

// leave takes a topic from a viewer. The topic stays until it is due, for viewers who come back.
// One that was never computed goes at once: a page that names others again and again would fill
// memory.
func (h *hub) leave(v sink, key topicKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[key]
	if t == nil {
		return
	}
	if delete(t.viewers, v); len(t.viewers) == 0 && t.due.IsZero() {
		delete(h.topics, key)
	}
}

// run computes topics when they are due, and leaves Redis the time that its calls take up.
func (h *hub) run(ctx context.Context, asks bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var paid time.Time // when all calls so far have had their time
	for {
		t, wait := h.next(asks)
		if t != nil {
			took := time.Duration(h.compute(ctx, t)) * callPause
			now := time.Now()
			if paid.Before(now) {
				paid = now
			}
			paid = paid.Add(took)
			wait = min(paid.Sub(now), mostPause)
			if took > mostPause {
				h.delay(t, now.Add(putOff*took))
			}
		}
		timer.Reset(wait)
		// A new topic shortens the wait for the next one to be due, and never the pause after calls.
		wake := h.wake[lane(asks)]
		if t != nil {
			wake = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
	}
}

// delay makes a topic due at a time, or later.
func (h *hub) delay(t *topic, due time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.due.Before(due) {
		t.due = due
	}
}

// idle is how long a goroutine without topics sleeps, unless one comes.
const idle = time.Hour

// next returns the topic to compute now, or how long there is none. Tenants take turns, and within
// one the topic that is due first comes first. Topics without viewers go when they are due.
func (h *hub) next(asks bool) (found *topic, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, wait := time.Now(), idle
	tenants := make(map[string]bool)
	for key, t := range h.topics {
		if t.kind.asks != asks {
			tenants[key.tenant] = true
			continue
		}
		switch {
		case t.due.After(now):
			wait = min(wait, t.due.Sub(now))
		case !h.wanted(t):
			delete(h.topics, key)
			if t.kind == findings {
				h.found, h.replicas = nil, nil
			}
			continue
		case found == nil || h.earlier(t, found):
			found = t
		}
		tenants[key.tenant] = true
	}
	for tenant := range h.turns {
		if !tenants[tenant] {
			delete(h.turns, tenant)
		}
	}
	if found != nil {
		h.turn++
		h.turns[found.key.tenant] = h.turn
		found.due = now.Add(cmp.Or(found.kind.every, period))
	}
	return found, wait
}

func (h *hub) wanted(t *topic) bool {
	if t.kind != findings {
		return len(t.viewers) > 0
	}
	for _, other := range h.topics {
		if other.kind.by == t.key.name && len(other.viewers) > 0 {
			return true
		}
	}
	return false
}

func (h *hub) earlier(a, b *topic) bool {
	if a.key.tenant != b.key.tenant {
		return h.turns[a.key.tenant] < h.turns[b.key.tenant]
	}
	return a.due.Before(b.due)
}

// frame is what a page gets about a topic.
type frame struct {
	Topic string          `json:"topic"`
	Seq   uint64          `json:"seq"`
	AtMS  int64           `json:"at_ms"`
	Data  json.RawMessage `json:"data,omitempty"`
	Error *frameError     `json:"error,omitempty"`
	// GoodMS is when the topic could be computed last, beside an error.
	GoodMS int64 `json:"good_ms,omitempty"`
}

type frameError struct {
	Code    freeslot.Code `json:"code"`
	Message string        `json:"message"`
}

// compute computes a topic, sends it to its viewers, and returns how many calls to a cell it took.
func (h *hub) compute(ctx context.Context, t *topic) (calls int) {
	ctx, cancel := context.WithTimeout(ctx, computeTimeout)
	defer cancel()
	name, _, _ := strings.Cut(t.key.name, ":")
	h.metrics.computed.WithLabelValues(name).Inc()
	if t.kind.changes != nil {
		h.tell(t)
		return 0
	}
	data, calls, err := t.kind.compute(ctx, h, t)
	if t.kind == findings {
		h.keepFindings(data, err)
		return calls
	}
	f := frame{Topic: t.key.name, AtMS: h.sources.Now().UnixMilli()}
	if err == nil {
		f.Data, err = json.Marshal(data)
	}
	if err == nil && len(f.Data) > maxFrame {
		err = &freeslot.Error{Code: freeslot.CodePayloadTooLarge, Message: "this is too much for the live view"}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	f.Seq = h.seq
	if err == nil {
		t.goodMS = f.AtMS
	} else {
		e := wire.AsError(err)
		f.Data, f.Error, f.GoodMS = nil, &frameError{e.Code, e.Message}, t.goodMS
	}
	t.frame = encode(&f)
	for v := range t.viewers {
		v.put(t.key.name, t.frame)
	}
	return calls
}

// tell tells all viewers of a topic what has changed.
func (h *hub) tell(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Topics of one roster share a look.
	if time.Since(h.roster.at) >= fleetPeriod/2 {
		h.roster.look(h.sources.Look(), h.sources.Nodes)
	}
	t.goodMS = h.sources.Now().UnixMilli()
	t.made = make(told)
	for v, g := range t.viewers {
		h.give(t, v, g, t.made)
	}
}

// change is a frame with what has changed since some change.
type change struct {
	frame   []byte
	through uint64
	empty   bool
}

// told are frames of one moment, by the change that they are relative to.
type told map[uint64]change

// give sends a viewer what has changed since what it has. The caller holds mu. A frame without news
// shows that the replica still looks, and comes once a period.
func (h *hub) give(t *topic, v sink, g *given, made told) {
	if !v.waits(t.key.name) {
		g.has = g.put
	}
	p, there := made[g.has]
	if !there {
		h.seq++
		head := frame{Topic: t.key.name, Seq: h.seq, AtMS: h.sources.Now().UnixMilli()}
		p.frame, p.through, p.empty = t.kind.changes(h, head, g.has)
		made[g.has] = p
	}
	now := time.Now()
	if p.empty && now.Sub(g.at) < period {
		return
	}
	if v.put(t.key.name, p.frame) != socket.Dropped {
		g.put, g.at = p.through, now
	}
}

// keepFindings makes the overview due if there are news for it.
func (h *hub) keepFindings(data any, err error) {
	if err != nil {
		return // the overview goes on with the last report, which says how old it is
	}
	found := data.(findingsNow)
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.found == nil
	h.found = &found
	if found.replicas != nil { // otherwise the last list is the best that there is
		h.replicas = found.replicas
	}
	if first {
		for _, t := range h.topics {
			if t.kind.by == findingsTopic {
				t.due = time.Time{}
			}
		}
		h.rouse(false)
	}
}

func (h *hub) lastFindings() (*findingsNow, []Replica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.found, h.replicas
}

// refusal returns the frame about a topic that a viewer does not get.
func (h *hub) refusal(name string, err *freeslot.Error) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	return encode(&frame{
		Topic: name, Seq: h.seq, AtMS: h.sources.Now().UnixMilli(), Error: &frameError{err.Code, err.Message},
	})
}

func encode(f *frame) []byte {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // its parts were marshalled before
	}
	return text
}
