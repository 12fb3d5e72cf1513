package lock

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/events"
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
	runner  *script.Runner
	masters func(context.Context) ([]events.Master, error) // nil on a single server
}

// NewAdmin makes an Admin on client, which the caller keeps and closes. It does no I/O. An empty
// prefix means DefaultKeyPrefix.
func NewAdmin(client rueidis.Client, prefix string, cluster bool, log *zap.Logger) *Admin {
	a := &Admin{client: client, prefix: cmp.Or(prefix, DefaultKeyPrefix)}
	for _, layout := range layouts(a.prefix, cluster) {
		a.groups = append(a.groups, keys{layout: layout})
	}
	a.runner = script.NewRunner(script.Config{Layout: a.groups[0].layout, CallTimeout: callTimeout}, client, log, nil)
	if cluster {
		a.masters = events.ClusterMasters(client)
	}
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
	return a.state(ctx, key, waiters)
}

// state runs state.lua.
func (a *Admin) state(ctx context.Context, key string, waiters int) (State, error) {
	g := a.group(key)
	values, err := a.runner.Call(
		ctx, scripts["state"], []string{g.held(key), g.queue(key), g.alive()}, []string{strconv.Itoa(max(1, waiters))},
	).ToArray()
	if err != nil {
		return State{}, fmt.Errorf("state of lock %q: %w", key, err)
	}
	r := script.Reply{Values: values}
	s := State{Key: key}
	if first, _ := values[0].ToString(); first == "error" {
		_, s.Problem = r.Text(), r.Text()
		return s, r.Err
	}
	_ = r.Number()
	acquisition := r.Text()
	s.Holder, s.Since, s.Left = r.Text(), time.UnixMilli(r.Number()), time.Duration(r.Number())*time.Millisecond
	if token := r.Text(); token != "" {
		s.Token, err = strconv.ParseInt(token, 10, 64)
	}
	s.Entries, s.Granted, s.Revoked, s.Waiting = r.Number(), r.Text() == "1", r.Text(), r.Number()
	s.Released = acquisition == "-"
	for len(r.Values) > 0 && len(s.Waiters) < waiters {
		ticket, silent := r.Text(), r.Number()
		s.Waiters = append(s.Waiters, waiter(ticket, silent))
	}
	if r.Err != nil {
		err = r.Err
	}
	if err != nil {
		return State{}, fmt.Errorf("state of lock %q: answer of Redis: %w", key, err)
	}
	return s, nil
}

// waiter parses a ticket: process:number lease holder.
func waiter(ticket string, silentMS int64) Waiter {
	process, rest, _ := strings.Cut(ticket, ":")
	_, rest, _ = strings.Cut(rest, " ")
	_, holder, _ := strings.Cut(rest, " ")
	return Waiter{Holder: holder, Process: process, Silent: time.Duration(silentMS) * time.Millisecond}
}

// Bounds of a page of List. One scan looks at about scanCount keys of Redis. Few of them may be
// locks.
const (
	scanCount = 1000
	scanTime  = 2 * time.Second
)

// List returns about limit held locks, in no order, and the cursor of the next page, which is empty
// at the end. It looks at all keys of each master, so it takes long if Redis has many others. A
// page can be empty before the end. A lock that is taken or given back meanwhile may be missing,
// and a lock can be listed twice.
func (a *Admin) List(ctx context.Context, cursor string, limit int) (locks []State, next string, err error) {
	nodes, err := a.nodes(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("list locks: %w", err)
	}
	at, position, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	begin := time.Now()
	found := make(map[string]bool)
	addrs := slices.Sorted(maps.Keys(nodes))
	for len(found) < limit && time.Since(begin) < scanTime {
		if position == 0 || nodes[at] == nil { // skip a master that has gone: its locks are on another one
			i, done := slices.BinarySearch(addrs, at)
			if done {
				i++
			}
			if i == len(addrs) {
				at = ""
				break
			}
			at, position = addrs[i], 0
		}
		if position, err = a.scan(ctx, nodes[at], position, found); err != nil {
			return nil, "", fmt.Errorf("list locks: %w", err)
		}
	}
	if at != "" {
		next = strconv.FormatUint(position, 10) + "@" + at // position 0: this master is done
	}
	locks, err = a.states(ctx, slices.Sorted(maps.Keys(found)))
	return locks, next, err
}

// nodes returns the masters, which have the keys, by address.
func (a *Admin) nodes(ctx context.Context) (map[string]rueidis.Client, error) {
	if a.masters == nil {
		return map[string]rueidis.Client{"-": a.client}, nil
	}
	masters, err := a.masters(ctx)
	if err != nil {
		return nil, err
	}
	known, nodes := a.client.Nodes(), make(map[string]rueidis.Client, len(masters))
	for _, m := range masters {
		if nodes[m.Addr] = known[m.Addr]; nodes[m.Addr] == nil {
			return nil, fmt.Errorf("no connection to redis at %s yet", m.Addr)
		}
	}
	return nodes, nil
}

// parseCursor parses position@address.
func parseCursor(cursor string) (at string, position uint64, err error) {
	if cursor == "" {
		return "", 0, nil
	}
	number, at, ok := strings.Cut(cursor, "@")
	position, err = strconv.ParseUint(number, 10, 64)
	if !ok || at == "" || err != nil {
		return "", 0, freeslot.Invalid("cursor", "is %q, expected one of the page before", cursor)
	}
	return at, position, nil
}

// globs escapes the characters that have a meaning in a pattern of Redis.
var globs = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// scan adds the names of the locks that one SCAN finds.
func (a *Admin) scan(
	ctx context.Context, node rueidis.Client, position uint64, found map[string]bool,
) (next uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	start := a.prefix + ":held:"
	entry, err := node.Do(
		ctx, node.B().Scan().Cursor(position).Match(globs.Replace(start)+"*").Count(scanCount).Build(),
	).AsScanEntry()
	if err != nil {
		return 0, err
	}
	for _, key := range entry.Elements {
		name := strings.TrimPrefix(key, start)
		if a.masters != nil {
			_, name, _ = strings.Cut(name, "}:")
		}
		if checkKey(name) == "" && a.group(name).held(name) == key { // else it does not belong to this layout
			found[name] = true
		}
	}
	return entry.Cursor, nil
}

// states returns the locks among names that are held.
func (a *Admin) states(ctx context.Context, names []string) ([]State, error) {
	states, errs := make([]State, len(names)), make([]error, len(names))
	var asked sync.WaitGroup
	for i, name := range names {
		asked.Go(func() { states[i], errs[i] = a.state(ctx, name, 0) }) // the client puts these calls into few round trips
	}
	asked.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(states, func(s State) bool { return s.Token == 0 && s.Problem == "" }), nil
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
