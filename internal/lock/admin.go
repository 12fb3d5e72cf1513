package lock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// Admin shows and revokes locks, for operators. It holds no lock, has no loops, and needs no Stop.
// Its methods are safe for concurrent use.
type Admin struct {
	client rueidis.Client
	prefix string
	groups []keys
	// runner runs the scripts of all groups. From its own layout it uses only whether Redis is a
	// cluster.
	runner *script.Runner
}

// NewAdmin makes an Admin on client, which the caller keeps and closes. It does no I/O. An empty
// prefix means DefaultKeyPrefix.
func NewAdmin(client rueidis.Client, prefix string, cluster bool, log *zap.Logger) *Admin {
	a := &Admin{client: client, prefix: cmp.Or(prefix, DefaultKeyPrefix)}
	for _, layout := range layouts(a.prefix, cluster) {
		a.groups = append(a.groups, keys{layout: layout})
	}
	a.runner = script.NewRunner(script.Config{Layout: a.groups[0].layout, CallTimeout: callTimeout}, client, log, nil)
	return a
}

// State describes one lock.
type State struct {
	Key string
	// Holder names the holder, as set in its Options.Holder; empty for a free lock. Released is
	// true if the holder has given the lock back, but Config.AtLeast keeps it taken.
	Holder   string
	Released bool
	Token    int64
	Since    time.Time     // by Redis' clock
	Left     time.Duration // until its lease ends without another renewal; negative if the key never expires
	// Lease is how long it lasts after each renewal, and Renewed the time of the last one by Redis'
	// clock: at first the time at which it was taken. Renewed is zero while Granted or Released.
	Lease   time.Duration
	Renewed time.Time
	// Entries counts the entries of the holder, as of its last renewal.
	Entries int64
	// Granted is true while a waiter that was given the lock has not claimed it yet.
	Granted bool
	// Revoked holds the reason that an operator gave for revoking the lock.
	Revoked string
	// Waiting counts the tickets in the queue. Of an unfair lock, each waiting process has one.
	Waiting int64
	// Waiters holds the first tickets, in the order in which they get the lock; empty in a listing.
	Waiters []Waiter
	// Problem says what is wrong with a key that is not a lock of this layout.
	Problem string
}

// Waiter is one ticket in the queue of a lock.
type Waiter struct {
	Holder  string
	Process string
	// Silent is the time since the process last sent a beat; negative if Redis knows of none.
	Silent time.Duration
}

func (a *Admin) group(key string) keys { return a.groups[script.CellOf(key, len(a.groups))] }

// Get returns what is known of one lock, with its first waiters. A free lock has no holder.
func (a *Admin) Get(ctx context.Context, key string, waiters int) (State, error) {
	if problem := checkKey(key); problem != "" {
		return State{}, freeslot.Invalid("key", "%s", problem)
	}
	found, err := a.states(ctx, a.group(key), []string{key}, waiters)
	if err != nil {
		return State{}, err
	}
	return found[0], nil
}

// states runs state.lua for locks of one group.
func (a *Admin) states(ctx context.Context, g keys, names []string, waiters int) ([]State, error) {
	keys := make([]string, 1, 1+2*len(names))
	keys[0] = g.alive()
	for _, name := range names {
		keys = append(keys, g.held(name), g.queue(name))
	}
	values, err := a.runner.Call(ctx, scripts["state"], keys, []string{strconv.Itoa(max(1, waiters))}).ToArray()
	if err == nil && len(values) != len(names) {
		err = fmt.Errorf("%d answers for %d locks", len(values), len(names))
	}
	if err != nil {
		return nil, fmt.Errorf("state of locks: %w", err)
	}
	out := make([]State, len(names))
	for i, name := range names {
		if out[i], err = parseState(name, values[i], waiters); err != nil {
			return nil, fmt.Errorf("state of lock %q: answer of Redis: %w", name, err)
		}
	}
	return out, nil
}

// parseState reads one answer of state.lua.
func parseState(key string, value rueidis.RedisMessage, waiters int) (s State, err error) {
	values, err := value.ToArray()
	r := script.Reply{Values: values, Err: err}
	s.Key = key
	if len(values) == 2 {
		_, s.Problem = r.Text(), r.Text()
		return s, r.Err
	}
	now, acquisition := time.UnixMilli(r.Number()), r.Text()
	s.Holder, s.Since, s.Left = r.Text(), time.UnixMilli(r.Number()), time.Duration(r.Number())*time.Millisecond
	s.Lease = time.Duration(r.Number()) * time.Millisecond
	if token := r.Text(); token != "" {
		s.Token, err = strconv.ParseInt(token, 10, 64)
	}
	s.Entries, s.Granted, s.Revoked, s.Waiting = r.Number(), r.Text() == "1", r.Text(), r.Number()
	s.Released = acquisition == "-"
	if s.Token != 0 && !s.Granted && !s.Released && s.Left >= 0 {
		// Redis' clock counts time left in whole milliseconds, so the difference may be one too early.
		s.Renewed = later(s.Since, now.Add(s.Left-s.Lease))
	}
	for len(r.Values) > 0 && len(s.Waiters) < waiters {
		ticket, silent := r.Text(), r.Number()
		s.Waiters = append(s.Waiters, waiter(ticket, silent))
	}
	return s, cmp.Or(r.Err, err)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// waiter parses a ticket: process:number lease holder.
func waiter(ticket string, silentMS int64) Waiter {
	process, rest, _ := strings.Cut(ticket, ":")
	_, rest, _ = strings.Cut(rest, " ")
	_, holder, _ := strings.Cut(rest, " ")
	return Waiter{Holder: holder, Process: process, Silent: time.Duration(silentMS) * time.Millisecond}
}

// List returns about limit locks that are held or awaited, in no order, and the cursor of the next
// page, which is empty at the end. It reads what managers of this release note of locks that were
// held or awaited for a second, and then these locks. A page can be empty before the end. A lock
// that is taken or given back meanwhile may be missing, and a lock can be listed twice.
func (a *Admin) List(ctx context.Context, cursor string, limit int) (locks []State, next string, err error) {
	first, after, err := parseCursor(cursor, len(a.groups))
	if err != nil {
		return nil, "", err
	}
	listed, err := a.listed(ctx, first, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list locks: %w", err)
	}
	locks = []State{}
	for i, entries := range listed {
		g, names := a.groups[first+i], make([]string, 0, len(entries))
		for _, e := range entries[:min(len(entries), limit)] {
			limit--
			next = strconv.Itoa(first+i) + "@" + strconv.FormatInt(int64(e.Score), 10)
			if checkKey(e.Member) == "" && a.group(e.Member) == g { // else it is no lock of this layout
				names = append(names, e.Member)
			}
		}
		for some := range slices.Chunk(names, callItems) {
			states, err := a.states(ctx, g, some, 0)
			if err != nil {
				return nil, "", fmt.Errorf("list locks: %w", err)
			}
			locks = append(locks, slices.DeleteFunc(states, func(s State) bool {
				return s.Token == 0 && s.Waiting == 0 && s.Problem == ""
			})...)
		}
		if limit == 0 {
			return locks, next, nil
		}
	}
	return locks, "", nil
}

// listed returns the noted locks of the groups from first on, each with the score by which a page
// can continue.
func (a *Admin) listed(ctx context.Context, first int, after string, limit int) ([][]rueidis.ZScore, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	groups := a.groups[first:]
	cmds := make(rueidis.Commands, len(groups))
	for i, g := range groups {
		from := a.client.B().Zrange().Key(g.listed()).Min(after).Max("+inf").Byscore()
		cmds[i] = from.Limit(0, int64(limit)).Withscores().Build()
		after = "-inf"
	}
	out := make([][]rueidis.ZScore, len(groups))
	for i, answer := range a.client.DoMulti(ctx, cmds...) {
		var err error
		if out[i], err = answer.AsZScores(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// parseCursor parses group@score, and returns the least score of the page.
func parseCursor(cursor string, groups int) (group int, after string, err error) {
	if cursor == "" {
		return 0, "-inf", nil
	}
	first, score, ok := strings.Cut(cursor, "@")
	group, err = strconv.Atoi(first)
	_, notNumber := strconv.ParseUint(score, 10, 64)
	if !ok || err != nil || notNumber != nil || group < 0 || group >= groups {
		return 0, "", freeslot.Invalid("cursor", "is %q, expected one of the page before", cursor)
	}
	return group, "(" + score, nil
}

// Revocation says what an operator wants to end, and why.
type Revocation struct {
	Key string
	// Token is the token of the hold that was seen; 0 means any hold.
	Token            int64
	Operator, Reason string
	// Now deletes the lock at once. Without it, the holder's context ends at its next check or
	// renewal, and the lock is free when the holder unlocks it, or its lease ends.
	Now bool
}

// Revoke ends a hold, records that in the audit log, and returns the token of the hold. Errors: an
// *freeslot.Error not_found if the lock is free, and conflict if it is held with another token.
func (a *Admin) Revoke(ctx context.Context, r Revocation) (token int64, err error) {
	if problem := checkKey(r.Key); problem != "" {
		return 0, freeslot.Invalid("key", "%s", problem)
	}
	g, seen, now := a.group(r.Key), "", "0"
	if r.Token != 0 {
		seen = strconv.FormatInt(r.Token, 10)
	}
	if r.Now {
		now = "1"
	}
	values, err := a.runner.Call(
		ctx, scripts["revoke"], []string{g.held(r.Key), g.audit()}, []string{r.Key, seen, r.Operator, r.Reason, now},
	).ToArray()
	if err != nil {
		return 0, fmt.Errorf("revoke lock %q: %w", r.Key, err)
	}
	out := script.Reply{Values: values}
	switch code := out.Number(); code {
	case codeDone:
		token = out.Number()
	case codeBusy:
		return 0, &freeslot.Error{Code: freeslot.CodeNotFound, Field: "key", Message: fmt.Sprintf("lock %q is free", r.Key)}
	case codeTaken:
		return 0, &freeslot.Error{
			Code: freeslot.CodeConflict, Field: "token",
			Message: fmt.Sprintf("token is %d, and lock %q is held with %s: its holder has changed", r.Token, r.Key, out.Text()),
		}
	case codeBadKey:
		return 0, &freeslot.Error{Code: freeslot.CodeConflict, Field: "key", Message: out.Text()}
	default:
		out.Err = fmt.Errorf("code %d is unknown", code)
	}
	if out.Err != nil {
		return 0, fmt.Errorf("revoke lock %q: answer of Redis: %w", r.Key, out.Err)
	}
	return token, nil
}

// Audited is one entry of the audit log: a lock that an operator revoked.
type Audited struct {
	At               time.Time // by Redis' clock
	Key, Holder      string
	Token            int64
	Operator, Reason string
	Now              bool
}

// Audit returns the last entries of the audit log, newest first. Redis keeps about 1,000 of them;
// on a cluster, about 1,000 for each tag.
func (a *Admin) Audit(ctx context.Context, limit int) ([]Audited, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cmds := make(rueidis.Commands, len(a.groups))
	for i, g := range a.groups {
		cmds[i] = a.client.B().Xrevrange().Key(g.audit()).End("+").Start("-").Count(int64(limit)).Build()
	}
	var all []Audited
	for _, answer := range a.client.DoMulti(ctx, cmds...) {
		entries, err := answer.AsXRange()
		if err != nil {
			return nil, fmt.Errorf("audit log of locks: %w", err)
		}
		for _, e := range entries {
			ms, _, _ := strings.Cut(e.ID, "-")
			at, errTime := strconv.ParseInt(ms, 10, 64)
			token, errToken := strconv.ParseInt(e.FieldValues["token"], 10, 64)
			if err := cmp.Or(errTime, errToken); err != nil {
				return nil, fmt.Errorf("audit log of locks: entry %s: %w", e.ID, err)
			}
			all = append(all, Audited{
				At: time.UnixMilli(at), Key: e.FieldValues["lock"], Holder: e.FieldValues["holder"], Token: token,
				Operator: e.FieldValues["operator"], Reason: e.FieldValues["reason"], Now: e.FieldValues["now"] == "1",
			})
		}
	}
	slices.SortStableFunc(all, func(x, y Audited) int { return y.At.Compare(x.At) })
	return all[:min(len(all), limit)], nil
}
