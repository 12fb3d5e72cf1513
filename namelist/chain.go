package namelist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/internal/follow"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/chain"
	"github.com/freeslot/freeslot/internal/namelist/count"
)

// Chain decides by the rules of one chain. It is safe for concurrent use, and valid until its
// client closes.
type Chain struct {
	name    string
	client  *Client
	state   atomic.Pointer[chainState]
	failure atomic.Pointer[error] // of the last call for the chain; nil if it succeeded
	begun   time.Time
	counts  count.Rules // since begun

	follower chainFollower
}

// ChainStatus is the state of a chain in this client.
type ChainStatus struct {
	Chain string
	// Reason says why the chain decides nothing.
	Reason ChainReason
	// Version is the version that decides. Revision changes with every change of the chain.
	Version, Revision int64
	// Rules counts the rules of Version.
	Rules int
	// Shadow is true if another document is evaluated beside Version.
	Shadow bool
	// AsOf is when the chain was last known to be at Revision, by this process' clock. Stale is true
	// if that is three seconds ago.
	AsOf  time.Time
	Stale bool
}

// chainState is what readers see of a chain. It is immutable except for replaced.
type chainState struct {
	status  ChainStatus
	serving ruleset            // the zero value if status has a reason
	shadow  ruleset            // the zero value without one
	record  *lists.ChainRecord // nil if status has a reason
	// counted has the counters of the rules of serving, and then of its default.
	counted  *count.Set
	replaced chan struct{}
}

// ruleset is a compiled document with the lists that it asks.
type ruleset struct {
	chain *chain.Chain
	lists []*List
}

// Ask asks a list; see [chain.Lists].
func (r *ruleset) Ask(ctx context.Context, list int, id string) chain.Membership {
	return membership(r.lists[list].Check(ctx, id))
}

// peeking asks the lists of a ruleset in memory alone.
type peeking ruleset

// Ask asks a list; see [chain.Lists].
func (r *peeking) Ask(_ context.Context, list int, id string) chain.Membership {
	return membership(r.lists[list].Peek(id))
}

// shadowing asks the lists of a ruleset in memory, without counting: the lookups of a shadow are
// not the caller's.
type shadowing ruleset

// Ask asks a list; see [chain.Lists].
func (r *shadowing) Ask(_ context.Context, list int, id string) chain.Membership {
	var a Answer
	r.lists[list].peek(&a, id)
	return membership(a)
}

func membership(a Answer) (m chain.Membership) {
	m.Version, m.Revision, m.Stale = a.Version, a.Revision, a.Stale
	switch a.Verdict {
	case Yes:
		m.Truth = chain.True
	case No:
		m.Truth = chain.False
	default:
		m.Why = a.Reason.String()
	}
	return m
}

// Chain returns the chain with this name, and follows it and the lists that it asks from the first
// call on. It returns the same Chain in all calls. A name that no chain can have is unknown for
// ever.
func (c *Client) Chain(name string) *Chain {
	if one, ok := c.chains.Load(name); ok {
		return one.(*Chain)
	}
	one := &Chain{name: name, client: c, begun: time.Now()}
	status := ChainStatus{Chain: name, Reason: ChainReasonNotLoaded}
	bad := chain.ValidateName("chain", name) != nil
	if bad {
		status.Reason = ChainReasonChainUnknown
	}
	one.state.Store(&chainState{status: status, replaced: make(chan struct{})})
	if known, there := c.chains.LoadOrStore(name, one); there {
		return known.(*Chain)
	}
	if !bad {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.freshChains = append(c.freshChains, one)
		follow.Wake(c.added)
	}
	return one
}

// Name returns the chain's name.
func (c *Chain) Name() string { return c.name }

// Evaluate decides for a subject. It asks Redis only for ids that memory cannot decide, each for at
// most Config.Deadline. The first call waits until the chain is there, for at most Config.Deadline,
// and not beyond ctx.
func (c *Chain) Evaluate(ctx context.Context, s Subject) Decision {
	state := c.state.Load()
	if state.status.Reason == ChainReasonNotLoaded {
		state = c.first(ctx, state)
	}
	return c.decide(ctx, state, &state.serving, s)
}

// Peek decides like Evaluate, but without Redis: what memory cannot decide is unknown.
func (c *Chain) Peek(s Subject) Decision {
	state := c.state.Load()
	return c.decide(context.Background(), state, (*peeking)(&state.serving), s)
}

func (c *Chain) decide(ctx context.Context, state *chainState, asking chain.Lists, s Subject) (out Decision) {
	if state.serving.chain == nil {
		out.Reason, out.Stale = state.status.Reason, state.status.Stale
		return out
	}
	d := state.serving.chain.Evaluate(ctx, chain.Env{Lists: asking}, chain.Subject(s))
	out = Decision{
		Outcome: Outcome(d.Result), Variant: d.Variant, Value: d.Value, Rule: d.Rule, Kind: string(d.Kind),
		Reason: ChainReason(d.Reason),
		Doubt:  Doubt(d.Doubt), Stale: d.Stale || state.status.Stale, Version: d.Version, asked: d.Asked,
	}
	row := d.Index * count.RuleCells
	state.counted.Inc(row + outcomeCells[d.Result])
	if state.shadow.chain != nil {
		state.counted.Inc(row + state.compare(&d, s))
	}
	return out
}

// outcomeCells holds the counter of each result.
var outcomeCells = [...]int{
	chain.Undecided: count.Undecided, chain.Allowed: count.Allow, chain.Denied: count.Deny, chain.Varied: count.Variant,
}

// Counted returns how many decisions of this client each rule has made since the client's start.
// The default's are under "(default)". Rules that made none are absent; beyond 80 rules the others
// are under "other".
func (c *Chain) Counted() map[string]uint64 {
	all := make(map[string]uint64)
	for rule, counts := range c.counts.Totals() {
		all[rule] = counts.Decisions()
	}
	return all
}

// first waits for the first state of a chain, unless too many checks wait.
func (c *Chain) first(ctx context.Context, state *chainState) *chainState {
	if !c.client.asks.enter() {
		return state
	}
	defer c.client.asks.leave()
	ctx, cancel := context.WithTimeout(ctx, c.client.cfg.Deadline)
	defer cancel()
	for state.status.Reason == ChainReasonNotLoaded {
		select {
		case <-state.replaced:
			state = c.state.Load()
		case <-ctx.Done():
			return state
		case <-c.client.ctx.Done():
			return state
		}
	}
	return state
}

// compare returns the counter for the shadow's decision beside another one. The shadow calls no
// one: the caller's answer must not wait for it.
func (state *chainState) compare(d *chain.Decision, s Subject) int {
	shadow := (*shadowing)(&state.shadow)
	other := shadow.chain.Evaluate(context.Background(), chain.Env{Lists: shadow}, chain.Subject(s))
	switch {
	case other.Result == d.Result && other.Variant == d.Variant:
		return count.ShadowSame
	case other.Doubt.Why == ReasonNotLoaded.String():
		return count.ShadowUndecided
	default:
		return count.ShadowDifferent
	}
}

// Status returns the state of the chain in this client.
func (c *Chain) Status() ChainStatus { return c.state.Load().status }

// Attributes returns the names of the attributes that the serving version declares, sorted, and its
// number; 0 without one. A subject needs no others. Do not change names.
func (c *Chain) Attributes() (version int64, names []string) {
	state := c.state.Load()
	if state.serving.chain == nil {
		return 0, nil
	}
	return state.status.Version, state.serving.chain.Attributes()
}

// Lists returns the lists that the chain asks.
func (c *Chain) Lists() []*List { return slices.Clone(c.state.Load().serving.lists) }

// WaitReady waits until the chain decides, and all lists that it asks are ready; see
// [List.WaitReady]. Errors: the end of ctx, with the reason why the chain is not ready.
func (c *Chain) WaitReady(ctx context.Context) error {
	for {
		state := c.state.Load()
		if state.serving.chain != nil {
			for _, l := range state.serving.lists {
				if err := l.WaitReady(ctx); err != nil {
					return fmt.Errorf("chain %s: %w", c.name, err)
				}
			}
			if c.state.Load().status.Version == state.status.Version {
				return nil
			}
			continue
		}
		select {
		case <-state.replaced:
		case <-c.client.ctx.Done():
			return fmt.Errorf("chain %s: %w", c.name, ErrClosed)
		case <-ctx.Done():
			err := c.client.failure()
			if own := c.failure.Load(); own != nil {
				err = *own
			}
			return fmt.Errorf(
				"chain %s is not ready, %s: %w", c.name, state.status.Reason, errors.Join(context.Cause(ctx), err),
			)
		}
	}
}

// OnChange calls call with the current Status, and with each new one; some in between may be left
// out. If only AsOf differs, that is no change. The calls come one after the other from a goroutine
// of their own. call must not call Close. stop ends the calls, and does not wait for one under way.
func (c *Chain) OnChange(call func(ChainStatus)) (stop func()) {
	ctx, stop := context.WithCancel(c.client.ctx)
	c.client.spawn(func() {
		for last := (ChainStatus{}); ctx.Err() == nil; {
			state := c.state.Load()
			now := state.status
			if now.AsOf = last.AsOf; now != last {
				last = now
				call(state.status)
			}
			select {
			case <-state.replaced:
			case <-ctx.Done():
			}
		}
	})
	return stop
}
