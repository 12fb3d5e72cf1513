package openfeature

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-feature/go-sdk/openfeature"

	"github.com/freeslot/freeslot/namelist"
)

// initPatience bounds Init, and InitWithContext if its context has no deadline.
const initPatience = 10 * time.Second

// eventQueue is how many events wait for OpenFeature before changes wait, too.
const eventQueue = 16

// Provider is a provider of OpenFeature. It is safe for concurrent use.
type Provider struct {
	client *namelist.Client
	named  []string // the chains that must decide
	events chan openfeature.Event

	ctx    context.Context // ends with Shutdown
	cancel context.CancelFunc
	flags  sync.Map // name -> *flag; the chains that are watched

	mu     sync.Mutex
	chains map[string]namelist.ChainStatus // guarded by mu; the last status of each watched chain
	state  openfeature.EventType           // guarded by mu; empty until Init has ended

	// stopping is not mu: an evaluation must not wait for an event that no one takes.
	stopping sync.Mutex
	stops    []func() // guarded by stopping
}

// flag is a chain that is watched.
type flag struct {
	chain *namelist.Chain
	// told is kept since most decisions have the same metadata, and OpenFeature copies it for its
	// caller.
	told atomic.Pointer[told]
}

// told is the metadata of decisions of one version without a doubt, by rule. It is immutable.
type told struct {
	version int64
	byRule  map[string]openfeature.FlagMetadata
}

var (
	_ openfeature.FeatureProvider          = (*Provider)(nil)
	_ openfeature.ContextAwareStateHandler = (*Provider)(nil)
	_ openfeature.EventHandler             = (*Provider)(nil)
)

// New returns a provider of a client's chains. Init waits until the named chains decide, and the
// provider's state follows them; other chains can be evaluated, too. The client stays the caller's,
// who closes it after the provider's shutdown.
func New(client *namelist.Client, chains ...string) *Provider {
	p := &Provider{
		client: client, named: chains, events: make(chan openfeature.Event, eventQueue),
		chains: make(map[string]namelist.ChainStatus),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Metadata returns the name of the provider.
func (p *Provider) Metadata() openfeature.Metadata { return openfeature.Metadata{Name: "freeslot"} }

// Hooks returns none.
func (p *Provider) Hooks() []openfeature.Hook { return nil }

// EventChannel returns the channel of the provider's events.
func (p *Provider) EventChannel() <-chan openfeature.Event { return p.events }

// Init is InitWithContext with a deadline of 10 s.
func (p *Provider) Init(of openfeature.EvaluationContext) error {
	return p.InitWithContext(context.Background(), of)
}

// InitWithContext waits until the chains that New names decide and their lists are ready, for at
// most 10 s if ctx has no deadline. Errors: the end of ctx, with the reason; the provider becomes
// ready later, once the chains decide.
func (p *Provider) InitWithContext(ctx context.Context, _ openfeature.EvaluationContext) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, initPatience)
		defer cancel()
	}
	var err error
	for _, name := range p.named {
		if err = p.client.Chain(name).WaitReady(ctx); err != nil {
			break
		}
	}
	p.mu.Lock()
	if p.state = openfeature.ProviderReady; err != nil {
		p.state = openfeature.ProviderError
	}
	p.mu.Unlock()
	for _, name := range p.named {
		p.flag(name)
	}
	return err
}

// Shutdown is ShutdownWithContext.
func (p *Provider) Shutdown() { _ = p.ShutdownWithContext(context.Background()) } // it never fails

// ShutdownWithContext ends the events. It does not close the client.
func (p *Provider) ShutdownWithContext(context.Context) error {
	p.cancel()
	p.stopping.Lock()
	defer p.stopping.Unlock()
	for _, stop := range p.stops {
		stop()
	}
	p.stops = nil
	return nil
}

// flag returns a chain, and follows it for the events from the first call on.
func (p *Provider) flag(name string) *flag {
	if f, known := p.flags.Load(name); known {
		return f.(*flag)
	}
	fresh := &flag{chain: p.client.Chain(name)}
	if f, known := p.flags.LoadOrStore(name, fresh); known {
		return f.(*flag)
	}
	stop := fresh.chain.OnChange(p.changed)
	p.stopping.Lock()
	defer p.stopping.Unlock()
	if p.ctx.Err() != nil {
		stop()
	} else {
		p.stops = append(p.stops, stop)
	}
	return fresh
}

// changed takes over a status of a chain, and sends the events that it makes. The calls for one
// chain come one after the other.
func (p *Provider) changed(now namelist.ChainStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, known := p.chains[now.Chain]
	p.chains[now.Chain] = now
	loaded := known && was.Reason != namelist.ChainReasonNotLoaded
	if loaded && (was.Version != now.Version || was.Reason != now.Reason) {
		p.send(openfeature.ProviderConfigChange, openfeature.ProviderEventDetails{
			Message: fmt.Sprintf("chain %s is at version %d", now.Chain, now.Version), FlagChanges: []string{now.Chain},
		})
	}
	state, why := p.stateNow()
	if state != p.state {
		p.state = state
		p.send(state, why)
	}
}

// stateNow returns the state that the named chains make. The caller holds mu.
func (p *Provider) stateNow() (state openfeature.EventType, why openfeature.ProviderEventDetails) {
	state = openfeature.ProviderReady
	for _, name := range p.named {
		s, known := p.chains[name]
		switch {
		case !known:
			return p.state, why
		case s.Reason != namelist.ChainReasonNone:
			why.Message, why.ErrorCode = fmt.Sprintf("chain %s: %s", name, s.Reason), openfeature.GeneralCode
			return openfeature.ProviderError, why
		case s.Stale:
			state, why.Message = openfeature.ProviderStale, fmt.Sprintf("no news of chain %s since %s", name, s.AsOf)
		}
	}
	return state, why
}

func (p *Provider) send(what openfeature.EventType, details openfeature.ProviderEventDetails) {
	select {
	case p.events <- openfeature.Event{
		ProviderName: p.Metadata().Name, EventType: what, ProviderEventDetails: details,
	}:
	case <-p.ctx.Done():
	}
}

// BooleanEvaluation evaluates a chain as a boolean.
func (p *Provider) BooleanEvaluation(
	ctx context.Context, flag string, otherwise bool, of openfeature.FlattenedContext,
) openfeature.BoolResolutionDetail {
	return evaluate(ctx, p, flag, otherwise, of, func(d namelist.Decision) (bool, bool) {
		if d.Outcome != namelist.OutcomeVariant {
			return d.Outcome == namelist.OutcomeAllow, true
		}
		return decode[bool](d.Value)
	})
}

// StringEvaluation evaluates a chain as a string.
func (p *Provider) StringEvaluation(
	ctx context.Context, flag, otherwise string, of openfeature.FlattenedContext,
) openfeature.StringResolutionDetail {
	return evaluate(ctx, p, flag, otherwise, of, func(d namelist.Decision) (string, bool) {
		if d.Outcome == namelist.OutcomeVariant && d.Value == nil {
			return d.Variant, true
		}
		return decode[string](d.Value)
	})
}

// FloatEvaluation evaluates a chain as a float64.
func (p *Provider) FloatEvaluation(
	ctx context.Context, flag string, otherwise float64, of openfeature.FlattenedContext,
) openfeature.FloatResolutionDetail {
	return evaluate(ctx, p, flag, otherwise, of, func(d namelist.Decision) (float64, bool) {
		return decode[float64](d.Value)
	})
}

// IntEvaluation evaluates a chain as an int64. A number with a fraction is another type.
func (p *Provider) IntEvaluation(
	ctx context.Context, flag string, otherwise int64, of openfeature.FlattenedContext,
) openfeature.IntResolutionDetail {
	return evaluate(ctx, p, flag, otherwise, of, func(d namelist.Decision) (int64, bool) {
		if n, ok := decode[int64](d.Value); ok {
			return n, true
		}
		f, ok := decode[float64](d.Value) // such as 10.0
		return int64(f), ok && f == float64(int64(f)) && -1<<53 <= f && f <= 1<<53
	})
}

// ObjectEvaluation evaluates a chain as a map[string]any or []any. In it a whole number is an int,
// any other number a float64.
func (p *Provider) ObjectEvaluation(
	ctx context.Context, flag string, otherwise any, of openfeature.FlattenedContext,
) openfeature.InterfaceResolutionDetail {
	return evaluate(ctx, p, flag, otherwise, of, func(d namelist.Decision) (any, bool) {
		dec := json.NewDecoder(bytes.NewReader(d.Value))
		dec.UseNumber()
		var object any
		if dec.Decode(&object) != nil {
			return nil, false
		}
		switch object.(type) {
		case map[string]any, []any:
			return numbers(object), true
		default:
			return nil, false
		}
	})
}

// numbers replaces each json.Number, in place where possible.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		f, _ := v.Float64() // beyond a float64 it is infinite
		return f
	case map[string]any:
		for name := range v {
			v[name] = numbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	}
	return v
}

// decode decodes a variant's value. A missing value is of no type.
func decode[T any](value json.RawMessage) (out T, ok bool) {
	return out, value != nil && json.Unmarshal(value, &out) == nil
}

// evaluate asks a chain. value returns the decision's value, unless it has another type. It gets a
// copy: a pointer would move each decision to the heap.
func evaluate[T any](
	ctx context.Context, p *Provider, name string, otherwise T, of openfeature.FlattenedContext,
	value func(namelist.Decision) (T, bool),
) openfeature.GenericResolutionDetail[T] {
	f := p.flag(name)
	key, _ := of[openfeature.TargetingKey].(string)
	d := f.chain.Evaluate(ctx, namelist.Subject{Key: key, Attributes: of})
	out := openfeature.GenericResolutionDetail[T]{Value: otherwise}
	out.FlagMetadata = f.metadata(&d)
	if d.Outcome == namelist.OutcomeUnknown {
		out.Reason, out.ResolutionError = openfeature.ErrorReason, unknown(name, &d)
		return out
	}
	got, ok := value(d)
	if !ok {
		out.Reason = openfeature.ErrorReason
		out.ResolutionError = openfeature.NewTypeMismatchResolutionError(
			fmt.Sprintf("chain %s decides %s %s, which is no %T", name, d.Outcome, d.Variant, otherwise),
		)
		return out
	}
	out.Value, out.Reason, out.Variant = got, reason(&d, f.chain), d.Variant
	if d.Outcome != namelist.OutcomeVariant {
		out.Variant = d.Outcome.String()
	}
	return out
}

// metadata returns a decision's metadata, which the caller must not change.
func (f *flag) metadata(d *namelist.Decision) openfeature.FlagMetadata {
	certain := !d.Stale && d.Doubt == (namelist.Doubt{})
	was := f.told.Load()
	if was == nil || was.version != d.Version {
		was = &told{version: d.Version}
	}
	if known := was.byRule[d.Rule]; certain && known != nil {
		return known
	}
	out := openfeature.FlagMetadata{"chain_version": d.Version}
	if d.Rule != "" {
		out["rule"] = d.Rule
	}
	if certain {
		all := map[string]openfeature.FlagMetadata{d.Rule: out}
		maps.Copy(all, was.byRule)
		f.told.Store(&told{version: d.Version, byRule: all}) // what another goroutine adds meanwhile is made again
		return out
	}
	if d.Stale {
		out["stale"] = true
	}
	if d.Doubt != (namelist.Doubt{}) {
		out["doubt"] = d.Doubt.String()
	}
	return out
}

func reason(d *namelist.Decision, chain *namelist.Chain) openfeature.Reason {
	switch {
	case d.Reason == namelist.ChainReasonDefault && chain.Status().Rules == 0:
		return openfeature.StaticReason
	case d.Reason == namelist.ChainReasonDefault:
		return openfeature.DefaultReason
	case d.Kind == "percentage":
		return openfeature.SplitReason
	default:
		return openfeature.TargetingMatchReason
	}
}

// unknown returns the error of a decision whose outcome is unknown.
func unknown(flag string, d *namelist.Decision) openfeature.ResolutionError {
	message := fmt.Sprintf("chain %s: %s", flag, d.Reason)
	if d.Doubt != (namelist.Doubt{}) {
		message += ": " + d.Doubt.String()
	}
	switch {
	case d.Reason == namelist.ChainReasonChainUnknown:
		return openfeature.NewFlagNotFoundResolutionError(message)
	case d.Reason == namelist.ChainReasonNotLoaded:
		return openfeature.NewProviderNotReadyResolutionError(message)
	case d.Reason == namelist.ChainReasonFormat:
		return openfeature.NewParseErrorResolutionError(message)
	case d.Doubt.Attribute == "key":
		return openfeature.NewTargetingKeyMissingResolutionError(message)
	case d.Doubt.Attribute != "":
		return openfeature.NewInvalidContextResolutionError(message)
	default:
		return openfeature.NewGeneralResolutionError(message)
	}
}
