package namelist

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var files embed.FS

var scripts = script.MustLoad(files)

// callTimeout bounds a call to Redis that has no deadline of its own.
const callTimeout = 2 * time.Second

// Codes that scripts return.
const (
	codeDone   = 1
	codeRepeat = 2 // this very call did it before
	codeDiffer = 3 // the list is not as the caller saw it
	codeGone   = 4 // there is no such list
	codeFull   = 5 // a limit is reached
)

var errMemory = &freeslot.Error{
	Code:    freeslot.CodeOverloaded,
	Message: "redis has no memory left for changes of lists; raise maxmemory or remove other data",
}

// Control manages lists for all processes: the records, versions and edits on the control server.
// It has no loops and needs no Stop. It is safe for concurrent use.
//
// Its methods return a *freeslot.Error: invalid_argument; not_found; conflict, which says who does
// what since when; or overloaded. Any other error comes from Redis, and the change may have been
// made.
type Control struct {
	runner *script.Runner
	k      keys
	limits limits
}

// limits bounds edits; tests have smaller ones.
type limits struct{ edits, urgent, log int64 }

// NewControl makes a control on a ready client of the control server, which the caller keeps and
// closes. It does no I/O. reg may be nil; a second control on the same registerer panics.
func NewControl(
	client rueidis.Client, prefix string, cluster bool, log *zap.Logger, reg prometheus.Registerer,
) *Control {
	layout := ControlLayout(prefix, cluster)
	return &Control{
		runner: script.NewRunner(script.Config{Layout: layout, CallTimeout: callTimeout}, client, log, reg),
		k:      keys{layout}, limits: limits{MaxEdits, MaxUrgent, LogEntries},
	}
}

// Layout returns the names of the control server's cell, for [Channel].
func (c *Control) Layout() script.Layout { return c.k.layout }

// Head returns what readers must know of a list.
func (c *Control) Head(ctx context.Context, list string) (Head, error) {
	h, err := c.head(ctx, list)
	if err == nil && !h.exists() {
		err = notFound(list)
	}
	return h, err
}

// head works like Head, but also returns the head of a tombstone, and of a list that never existed.
func (c *Control) head(ctx context.Context, list string) (Head, error) {
	if err := ValidateName("list", list); err != nil {
		return Head{}, err
	}
	d, err := c.delta(ctx, list, headOnly, false)
	return d.Head, err
}

// Heads returns a page of lists in the order of their names: up to limit that keep accepts, from
// the first name behind after. A nil keep accepts all.
func (c *Control) Heads(ctx context.Context, after string, limit int, keep func(*Head) bool) (out []Head, err error) {
	names, err := c.marked(ctx)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, chain := ChainOf(name)
		return chain
	})
	slices.Sort(names)
	from, found := slices.BinarySearch(names, after)
	if found {
		from++
	}
	for _, name := range names[from:] {
		if len(out) == limit {
			break
		}
		h, err := c.head(ctx, name)
		if err != nil {
			return nil, err
		}
		if h.exists() && (keep == nil || keep(&h)) { // it may be gone by now
			out = append(out, h)
		}
	}
	return out, nil
}

// marked returns the names in the index: lists, and marks of chains.
func (c *Control) marked(ctx context.Context) ([]string, error) {
	names, err := c.runner.Do(ctx, "lists_index", c.runner.B().Hkeys().Key(c.k.index()).Build()).AsStrSlice()
	if err != nil {
		return nil, fmt.Errorf("names of lists: %w", err)
	}
	return names, nil
}

func (h *Head) exists() bool { return h.Birth != "" && h.State != Deleted }

func notFound(list string) error {
	return &freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is no list " + list}
}

// conflict returns the error that the list's present state does not allow what.
func (h *Head) conflict(what string) *freeslot.Error {
	is := "is in state " + string(h.State)
	switch {
	case h.Op.ID != "":
		is = fmt.Sprintf("is held by operation %s (%s) of %s", h.Op.ID, h.Op.Kind, h.Op.Holder)
	case h.State == Frozen:
		is = "is frozen"
	}
	if h.Op.Why != "" {
		is += ", " + h.Op.Why + ","
	}
	if !h.Op.Since.IsZero() {
		is += " since " + h.Op.Since.UTC().Format(time.RFC3339)
	}
	return &freeslot.Error{
		Code: freeslot.CodeConflict, Message: fmt.Sprintf("%s is refused: list %s %s", what, h.Name, is),
	}
}

// serving returns the number of the version that answers; 0 means none.
func (h *Head) serving() int64 {
	if h.Serving == nil {
		return 0
	}
	return h.Serving.Number
}

// AnyVersion stands for the version that a caller saw, if the caller does not mind which one
// serves.
const AnyVersion = -1

func (h *Head) saw(serving int64) error {
	if is := h.serving(); serving != AnyVersion && serving != is {
		return &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "serving",
			Message: fmt.Sprintf("list %s serves version %d, and not %d any more", h.Name, is, serving),
		}
	}
	return nil
}

// change is what a step writes.
type change struct {
	mode string // "", "quiet" or "fresh"
	// fields and versions hold pairs; see step.lua.
	fields, versions []string
	// watched holds versions that must not change meanwhile: number and JSON alternate.
	watched []string
	quota   *Quota
}

// tries is how often a step is decided again after the list has changed meanwhile.
const tries = 20

// step changes a list. decide sees the head, and returns what to write; nil means nothing. If the
// list changes before that is written, decide runs again.
func (c *Control) step(ctx context.Context, what, list string, decide func(h *Head) (*change, error)) (Head, error) {
	h, err := c.head(ctx, list)
	if err != nil {
		return h, err
	}
	for range tries {
		ch, err := decide(&h)
		if err != nil || ch == nil {
			return h, err
		}
		code, now, err := c.stepOnce(ctx, &h, ch)
		if err != nil {
			return h, fault(what, list, err)
		}
		if h = now; code != codeDiffer {
			return h, nil
		}
	}
	return h, h.conflict(what)
}

// stepOnce runs step.lua.
func (c *Control) stepOnce(ctx context.Context, saw *Head, ch *change) (code int64, h Head, err error) {
	list := saw.Name
	d, decision, more := c.decision(ctx)
	args := []string{
		list, c.k.change(list), random128(), ch.mode, saw.raw, number(int64(len(ch.watched))), number(int64(len(ch.fields))),
		decision, ch.quota.ids(), ch.quota.most(),
	}
	args = slices.Concat(args, ch.watched, ch.fields, ch.versions)
	r := script.ReadReply(c.runner.Call(ctx, scripts["step"], append(c.k.all(list), more...), args))
	code = r.Number()
	if code == codeUndecided && r.Err == nil {
		return code, *saw, undecided(d.ID, r.Text())
	}
	if code == codeBeyond && r.Err == nil {
		return code, *saw, &QuotaError{r.Number(), ch.quota.Most}
	}
	at := redisTime(&r)
	h = readHead(&r, list, at)
	if r.Err == nil && code != codeDiffer {
		d.carriedOut()
	}
	if r.Err == nil && code != codeDone && code != codeRepeat && code != codeDiffer {
		r.Err = fmt.Errorf("code %d of redis is unknown", code)
	}
	return code, h, noMemory(r.Err)
}

// noMemory adds a code to the error of a Redis that is full.
func noMemory(err error) error {
	var refused *rueidis.RedisError
	if errors.As(err, &refused) && strings.HasPrefix(refused.Error(), "OOM ") {
		return errMemory
	}
	return err
}

// Create makes a list, as a draft.
func (c *Control) Create(ctx context.Context, list string, s Spec) (Head, error) {
	if err := c.CheckSpec(ctx, list, s); err != nil {
		return Head{}, err
	}
	s = s.withDefaults()
	return c.step(ctx, "create", list, func(h *Head) (*change, error) {
		if h.exists() {
			return nil, &freeslot.Error{Code: freeslot.CodeConflict, Message: "there is a list " + list + " already"}
		}
		fields := []string{
			"birth", random128(), "form", string(s.Form), "seed", random128()[:16], "server", s.Server, "expected",
			number(s.Expected),
			"state", string(Draft), "serving", "0", "next", "0", "number", number(h.Number), "edited", "0", "floor", "0",
		}
		return &change{mode: "fresh", fields: slices.Concat(fields, s.fields(), s.Owner.fields())}, nil
	})
}

// CheckSpec returns the error that Create has with a list that is not there yet.
func (c *Control) CheckSpec(ctx context.Context, list string, s Spec) error {
	s = s.withDefaults()
	var found freeslot.FieldErrors
	found.Add(ValidateName("list", list))
	s.validate(&found)
	if s.Server != "" && len(found) == 0 {
		servers, err := c.Servers(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(servers, func(x Server) bool { return x.Name == s.Server }) {
			found.Addf("server", "is %q, which is no list server", s.Server)
		}
	}
	return found.Err()
}

// Set changes the settings of a list.
func (c *Control) Set(ctx context.Context, list string, s Settings) (Head, error) {
	s = s.withDefaults()
	return c.step(ctx, "settings", list, func(h *Head) (*change, error) {
		if !h.exists() {
			return nil, notFound(list)
		}
		var found freeslot.FieldErrors
		if s.validate(&found, h.Expected); len(found) > 0 {
			return nil, found.Err()
		}
		if !ruleOf(h.State).set {
			return nil, h.conflict("settings")
		}
		return &change{fields: s.fields()}, nil
	})
}

// Freeze stops all changes of a list, which continues to serve.
func (c *Control) Freeze(ctx context.Context, list string, by By) (Head, error) {
	return c.stop(ctx, "freeze", list, AnyVersion, by, Frozen, func(r rule) bool { return r.freeze })
}

// Unfreeze undoes Freeze.
func (c *Control) Unfreeze(ctx context.Context, list string) (Head, error) {
	return c.step(ctx, "unfreeze", list, func(h *Head) (*change, error) {
		switch {
		case !h.exists():
			return nil, notFound(list)
		case !ruleOf(h.State).unfreeze:
			return nil, h.conflict("unfreeze")
		}
		return &change{fields: idle(Active)}, nil
	})
}

// Delete begins the end of a list: it answers unknown from now on. serving is the version that the
// caller saw, or AnyVersion. Delete is refused while a live client uses the list or a chain asks
// it, unless forced. FinishDelete ends it, once list servers hold nothing of it.
func (c *Control) Delete(ctx context.Context, list string, serving int64, force bool, by By) (Head, error) {
	if !force {
		chains, err := c.askedBy(ctx, list)
		if err != nil {
			return Head{}, err
		}
		if len(chains) > 0 {
			return Head{}, &freeslot.Error{Code: freeslot.CodeConflict, Message: fmt.Sprintf(
				"delete is refused: list %s is asked by chain %s; force deletes it all the same", list,
				strings.Join(chains, ", "))}
		}
		live, _, err := c.Clients(ctx, list)
		if err != nil {
			return Head{}, err
		}
		if len(live) > 0 {
			return Head{}, &freeslot.Error{Code: freeslot.CodeConflict, Message: fmt.Sprintf(
				"delete is refused: list %s is used by %d live clients, the first is %s; force deletes it all the same", list,
				len(live), live[0].ID)}
		}
	}
	return c.stop(ctx, "delete", list, serving, by, Deleting, func(r rule) bool { return r.remove })
}

func (c *Control) stop(
	ctx context.Context, what, list string, serving int64, by By, state State, allowed func(rule) bool,
) (Head, error) {
	var found freeslot.FieldErrors
	if by.validate(&found); len(found) > 0 {
		return Head{}, found.Err()
	}
	return c.step(ctx, what, list, func(h *Head) (*change, error) {
		switch {
		case !h.exists():
			return nil, notFound(list)
		case !allowed(ruleOf(h.State)):
			return nil, h.conflict(what)
		}
		return &change{fields: append(idle(state), "why", by.why(), "@since", "0")}, h.saw(serving)
	})
}

// FinishDelete replaces a list that is being deleted with a tombstone. The tombstone keeps the
// highest version number, so that a list that is made again continues behind it.
func (c *Control) FinishDelete(ctx context.Context, list string) error {
	_, err := c.step(ctx, "delete", list, func(h *Head) (*change, error) {
		switch {
		case !h.exists():
			return nil, notFound(list)
		case h.State != Deleting:
			return nil, h.conflict("the end of a delete")
		}
		return &change{
			mode: "fresh", fields: []string{"birth", h.Birth, "state", string(Deleted), "number", number(h.Number)},
		}, nil
	})
	return err
}

// Server is a list server: it holds segments of lists.
type Server struct {
	Name string `json:"name"`
	// Addresses holds URLs without credentials: each process has its own credentials.
	Addresses []string `json:"addresses"`
	// MaxBytes bounds what lists take; with 0, only the bound of 70 % of maxmemory applies.
	MaxBytes int64 `json:"max_bytes,omitzero"`
}

// PutServer adds or changes a list server.
func (c *Control) PutServer(ctx context.Context, s Server) error {
	if err := freeslot.ValidateName("name", s.Name); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := c.runner.Do(
		ctx, "lists_servers", c.runner.B().Hset().Key(c.k.servers()).FieldValue().FieldValue(s.Name, string(text)).Build(),
	).Error(); err != nil {
		return fmt.Errorf("write list server %s: %w", s.Name, noMemory(err))
	}
	return nil
}

// Servers returns all list servers, in the order of their names.
func (c *Control) Servers(ctx context.Context) ([]Server, error) {
	all, err := c.runner.Do(ctx, "lists_servers", c.runner.B().Hgetall().Key(c.k.servers()).Build()).AsStrMap()
	if err != nil {
		return nil, fmt.Errorf("list servers: %w", err)
	}
	out := make([]Server, 0, len(all))
	for name, text := range all {
		var s Server
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return nil, fmt.Errorf("list server %s: %w", name, err)
		}
		s.Name = name
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func random128() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
