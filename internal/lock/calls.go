package lock

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var files embed.FS

var scripts = script.MustLoad(files)

// callItems is the largest number of items in one call.
const callItems = 256

// acquireItem is one lock to take or to queue for.
type acquireItem struct {
	a *acquisition
	// wait is true to queue for a lock that is held.
	wait  bool
	place string
}

// acquired is the result of an acquireItem.
type acquired struct {
	sent time.Duration // when the call was sent, by uptime
	code int
	// token is the token of a lock that was taken.
	token int64
	// place is the place in the queue. The fields below describe the holder.
	place, holder string
	since         time.Time
	left          time.Duration // negative if the lock never expires
	err           error
}

// Codes that scripts return.
const (
	codeBusy    = 0
	codeGone    = 0 // of renew
	codeDone    = 1
	codeFull    = 2 // of acquire
	codeTaken   = 2 // of renew
	codeBadKey  = 3
	codeRevoked = 4
)

// acquire runs acquire.lua.
func (g *group) acquire(ctx context.Context, items []acquireItem) ([]acquired, error) {
	keys := []string{g.keys.token(), g.keys.alive()}
	args := g.args()
	for _, it := range items {
		keys = append(keys, g.keys.held(it.a.cfg.Key), g.keys.queue(it.a.cfg.Key))
		how := "t"
		if it.wait {
			how = "w"
		}
		if it.a.cfg.Fair {
			how = "f" + how
		}
		args = append(
			args, it.a.cfg.Key, strconv.FormatUint(it.a.number, 10), milliseconds(it.a.cfg.Lease), it.a.holder, how, it.place,
		)
	}
	sent, replies, err := g.call(ctx, scripts["acquire"], keys, args, len(items), g.m.opts.Replicas > 0)
	if err != nil {
		return nil, err
	}
	out := make([]acquired, len(items))
	for i, reply := range replies {
		r := script.Reply{Values: reply}
		got := acquired{sent: sent, code: int(r.Number())}
		switch got.code {
		case codeDone:
			got.token = r.Number()
		case codeBusy:
			got.place, got.holder = r.Text(), r.Text()
			got.since = time.UnixMilli(r.Number())
			got.left = time.Duration(r.Number()) * time.Millisecond
		case codeFull:
			got.err = ErrQueueFull
		case codeBadKey:
			got.err = &KeyError{Text: r.Text()}
		default:
			r.Err = fmt.Errorf("code %d is unknown", got.code)
		}
		if r.Err != nil {
			return nil, fmt.Errorf("acquire: answer of Redis: %w", r.Err)
		}
		out[i] = got
	}
	return out, nil
}

// releaseItem is one acquisition to end.
type releaseItem struct {
	a      *acquisition
	reason string
	keep   time.Duration
	// heir is a waiter of this process. It gets the lock at once, or enters the queue before the
	// hand-over.
	heir *acquisition
	pass bool
	// recovers is true for the release of a recovery, until its outcome is counted.
	recovers bool
}

// released is the result of a releaseItem.
type released struct {
	sent time.Duration
	// had is true if the acquisition held the lock.
	had bool
	// others counts the tickets in the queue that belong to other processes, or to other waiters of
	// this process.
	others int64
	// token is set if the heir got the lock, place if it entered the queue.
	token int64
	place string
	err   error
}

// release runs release.lua.
func (g *group) release(ctx context.Context, items []releaseItem) ([]released, error) {
	keys := []string{g.keys.token(), g.keys.alive()}
	args := g.args()
	for _, it := range items {
		keys = append(keys, g.keys.held(it.a.cfg.Key), g.keys.queue(it.a.cfg.Key))
		ticket := ""
		if it.a.ticket.Load() {
			ticket = it.a.ticketText()
		}
		heir, how, lease, holder := "", "", "", ""
		if it.heir != nil {
			heir, how = strconv.FormatUint(it.heir.number, 10), "queue"
			lease, holder = milliseconds(it.heir.cfg.Lease), it.heir.holder
			if it.pass {
				how = "now"
			}
		}
		args = append(args, it.a.cfg.Key, quoted(it.a.cfg.Key), strconv.FormatUint(it.a.number, 10), ticket,
			quoted(it.a.holder), it.reason, milliseconds(it.keep), heir, how, lease, holder)
	}
	sent, replies, err := g.call(ctx, scripts["release"], keys, args, len(items), false)
	if err != nil {
		return nil, err
	}
	out := make([]released, len(items))
	var kept []*acquisition
	for i, reply := range replies {
		r := script.Reply{Values: reply}
		got := released{sent: sent}
		switch code := r.Number(); code {
		case codeDone:
			if items[i].keep >= noteAfter {
				kept = append(kept, items[i].a)
			}
			got.had, got.others = true, r.Number()
			if token := r.Text(); token != "" {
				got.token, r.Err = strconv.ParseInt(token, 10, 64)
			}
			got.place = r.Text()
		case codeBusy:
		case codeBadKey:
			got.err = &KeyError{Text: r.Text()}
		default:
			r.Err = fmt.Errorf("code %d is unknown", code)
		}
		if r.Err != nil {
			return nil, fmt.Errorf("release: answer of Redis: %w", r.Err)
		}
		out[i] = got
	}
	if len(kept) > 0 {
		g.logDoubt("lock.note_failed", g.note(ctx, kept))
	}
	return out, nil
}

// renewed is Redis' answer about a hold.
type renewed struct {
	sent, answered time.Duration // by uptime
	code           int
	left           time.Duration // negative if the lock never expires
	// text names the other holder, or gives the reason of the operator who revoked the lock.
	text string
}

// renew runs renew.lua. With look it changes nothing. While a hash slot migrates, Redis refuses
// calls whose keys are on two servers, so renew then asks in smaller calls.
func (g *group) renew(ctx context.Context, items []*acquisition, look bool) ([]renewed, error) {
	out, err := g.renewOnce(ctx, items, look)
	var answer *rueidis.RedisError
	if !errors.As(err, &answer) || !answer.IsTryAgain() || len(items) == 1 {
		return out, err
	}
	half := len(items) / 2
	first, err := g.renew(ctx, items[:half], look)
	if err != nil {
		return nil, err
	}
	second, err := g.renew(ctx, items[half:], look)
	return append(first, second...), err
}

func (g *group) renewOnce(ctx context.Context, items []*acquisition, look bool) ([]renewed, error) {
	keys, args := make([]string, len(items)), make([]string, 0, 4*len(items))
	for i, a := range items {
		keys[i] = g.keys.held(a.cfg.Key)
		lease := milliseconds(a.cfg.Lease)
		if look {
			lease = "0"
		}
		args = append(args, a.id(), strconv.FormatInt(a.token, 10), lease, strconv.Itoa(word(a.state.Load()).count()))
	}
	sent := uptime()
	values, err := g.run(ctx, scripts["renew"], keys, args, g.m.opts.Replicas > 0 && !look)
	if err == nil && len(values) != len(items) {
		err = fmt.Errorf("%d answers for %d locks", len(values), len(items))
	}
	if err != nil {
		return nil, fmt.Errorf("renew: %w", err)
	}
	out := make([]renewed, len(items))
	answered := uptime()
	for i := range items {
		reply, err := values[i].ToArray()
		r := script.Reply{Values: reply, Err: err}
		got := renewed{sent: sent, answered: answered, code: int(r.Number())}
		switch got.code {
		case codeDone:
			got.left = time.Duration(r.Number()) * time.Millisecond
		case codeGone:
		case codeTaken, codeBadKey, codeRevoked:
			got.text = r.Text()
		default:
			r.Err = errors.Join(r.Err, fmt.Errorf("code %d is unknown", got.code))
		}
		if r.Err != nil {
			return nil, fmt.Errorf("renew: answer of Redis: %w", r.Err)
		}
		out[i] = got
	}
	return out, nil
}

// call runs acquire or release. Their answers begin with the counter of tokens.
func (g *group) call(
	ctx context.Context, s *script.Script, keys, args []string, items int, replicated bool,
) (sent time.Duration, replies [][]rueidis.RedisMessage, err error) {
	sent = uptime()
	values, err := g.run(ctx, s, keys, args, replicated)
	if err == nil && len(values) != 1+items {
		err = fmt.Errorf("%d answers for %d locks", len(values)-1, items)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", s.Name(), err)
	}
	counter, err := values[0].AsInt64()
	if err != nil {
		return 0, nil, fmt.Errorf("%s: counter of tokens: %w", s.Name(), err)
	}
	g.saw(sent, counter)
	replies = make([][]rueidis.RedisMessage, items)
	for i := range replies {
		if replies[i], err = values[1+i].ToArray(); err != nil {
			return 0, nil, fmt.Errorf("%s: answer of Redis: %w", s.Name(), err)
		}
	}
	return sent, replies, nil
}

// badKey begins a script's error about a key of the whole group.
const badKey = "BADKEY "

// run calls a script. With replicated it also waits for Redis' replicas.
func (g *group) run(
	ctx context.Context, s *script.Script, keys, args []string, replicated bool,
) ([]rueidis.RedisMessage, error) {
	call := g.runner.Call
	if replicated {
		call = g.runner.CallReplicated
	}
	values, err := call(ctx, s, keys, args).ToArray()
	if answer, ok := rueidis.IsRedisErr(err); ok && strings.HasPrefix(answer.Error(), badKey) {
		return nil, &KeyError{Text: strings.TrimPrefix(answer.Error(), badKey)}
	}
	return values, err
}

// args returns the arguments that acquire and release begin with.
func (g *group) args() []string {
	return []string{g.keys.layout.Prefix, g.keys.layout.TagPart(), g.process, milliseconds(g.m.opts.Liveness)}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// quoted returns text as JSON, for the notice of a release.
func quoted(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic("lock: a text is no JSON: " + err.Error())
	}
	return string(data)
}
