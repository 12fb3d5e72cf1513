package source

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cron"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/script"
)

const (
	callTimeout = 2 * time.Second
	// MaxAssigned is the most lists that have a source.
	MaxAssigned = 1000
	// tries is how often a change is made again after another one came in between.
	tries = 20
)

// Codes that put_source returns.
const (
	codeDone   = 1
	codeDiffer = 3
	codeGone   = 4
	codeFull   = 5
)

// Store keeps which list has which source, on the control server. It is safe for concurrent use.
// Its methods return a *freeslot.Error (invalid_argument, not_found, conflict, overloaded), or an
// error of Redis.
type Store struct {
	control *namelist.Control
	runner  *script.Runner
	sources string // the key of all lists with a source
}

// NewStore makes a store on a client of the control server. It does no I/O.
func NewStore(control *namelist.Control, client rueidis.Client, log *zap.Logger) *Store {
	layout := control.Layout()
	return &Store{
		control: control, sources: layout.Key("lists:sources", ""),
		runner: script.NewRunner(script.Config{Layout: layout, CallTimeout: callTimeout}, client, log, nil),
	}
}

func (s *Store) key(list string) string { return s.runner.Layout().Key("lists:source", list) }

// Get returns a list's assignment. Errors: not_found.
func (s *Store) Get(ctx context.Context, list string) (Assignment, error) {
	if err := namelist.ValidateName("list", list); err != nil {
		return Assignment{}, err
	}
	text, err := s.runner.Do(ctx, "list_source", s.runner.B().Get().Key(s.key(list)).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return Assignment{}, &freeslot.Error{Code: freeslot.CodeNotFound, Message: "list " + list + " has no source"}
	}
	if err != nil {
		return Assignment{}, fmt.Errorf("source of list %s: %w", list, err)
	}
	return decode(text)
}

// All returns the assignments of all lists, by list, those that are due first. It leaves out what
// it cannot read.
func (s *Store) All(ctx context.Context) (lists []string, all []Assignment, err error) {
	names, err := s.runner.Do(
		ctx, "list_sources", s.runner.B().Zrange().Key(s.sources).Min("0").Max("-1").Build(),
	).AsStrSlice()
	if err != nil || len(names) == 0 {
		return nil, nil, err
	}
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = s.key(name)
	}
	texts, err := s.runner.Do(ctx, "list_sources", s.runner.B().Mget().Key(keys...).Build()).ToArray()
	if err != nil {
		return nil, nil, fmt.Errorf("sources of lists: %w", err)
	}
	for i := range texts {
		text, _ := texts[i].ToString()
		if a, err := decode(text); err == nil {
			lists, all = append(lists, names[i]), append(all, a)
		}
	}
	return lists, all, nil
}

// Set gives a list a source, or changes its times. The history stays.
func (s *Store) Set(ctx context.Context, list string, want Assignment) (Assignment, error) {
	var found freeslot.FieldErrors
	found.Add(freeslot.ValidateName("source", want.Source))
	if want.Cron != "" {
		_, err := cron.Parse(want.Cron, want.TimeZone)
		found.Add(err)
	} else if want.TimeZone != "" {
		found.Addf("time_zone", "is %q without cron", want.TimeZone)
	}
	if err := found.Err(); err != nil {
		return Assignment{}, err
	}
	h, err := s.control.Head(ctx, list)
	if err != nil {
		return Assignment{}, err
	}
	return s.change(ctx, list, func(a *Assignment, nowMS int64) error {
		if a.raw == "" || a.birth != h.Birth || a.Source != want.Source {
			a.mark, a.held = mark{}, mark{}
			if a.Running != nil { // it must neither serve nor record what the source before has
				run := *a.Running
				run.Result, run.Why, run.TookMS = Failed, "the list was given another source", nowMS-run.AtMS
				a.end(run)
			}
		}
		if a.birth != h.Birth {
			a.Running, a.Runs = nil, []Run{}
		}
		a.Source, a.Cron, a.TimeZone, a.Author, a.Note = want.Source, want.Cron, want.TimeZone, want.Author, want.Note
		a.birth, a.SetMS, a.NextMS = h.Birth, nowMS, a.next(nowMS)
		return nil
	})
}

// Unset takes a list's source away. A run that is under way changes nothing any more.
func (s *Store) Unset(ctx context.Context, list string) error {
	a, err := s.Get(ctx, list)
	for range tries {
		if err != nil && a.raw == "" {
			return err
		}
		var code int64
		if code, _, a.raw, err = s.put(ctx, list, a.raw, "", "inf"); err != nil || code == codeDone {
			return err
		}
	}
	return moving(list)
}

// Ask has a source run for a list now; by is who asks. Errors: conflict if it runs.
func (s *Store) Ask(ctx context.Context, list, by string) (Assignment, error) {
	if _, err := s.Get(ctx, list); err != nil {
		return Assignment{}, err
	}
	return s.change(ctx, list, func(a *Assignment, nowMS int64) error {
		if a.raw == "" {
			return &freeslot.Error{Code: freeslot.CodeNotFound, Message: "list " + list + " has no source"}
		}
		if a.Running != nil && a.Running.LeaseMS > nowMS {
			return &freeslot.Error{
				Code:    freeslot.CodeConflict,
				Message: fmt.Sprintf("source %s runs for list %s already, on replica %s", a.Source, list, a.Running.Replica),
			}
		}
		a.NextMS, a.asked, a.AskedBy = nowMS, true, by
		return nil
	})
}

// Due is a list that is to be looked at.
type Due struct {
	List string
	// At holds the time in ms at which it became due, as Redis writes it. Each change of the list's
	// assignment changes At, except a change within the same millisecond.
	At string
}

// Due returns the lists that are to be looked at, and Redis' time in ms.
func (s *Store) Due(ctx context.Context) (lists []Due, nowMS int64, err error) {
	reply, err := s.runner.Call(
		ctx, scripts["due_sources"], []string{s.sources}, []string{strconv.Itoa(MaxAssigned)},
	).AsStrSlice()
	if err != nil || len(reply)%2 == 0 {
		return nil, 0, fmt.Errorf("due sources of lists: %w", err)
	}
	for pair := range slices.Chunk(reply[1:], 2) {
		lists = append(lists, Due{pair[0], pair[1]})
	}
	nowMS, err = strconv.ParseInt(reply[0], 10, 64)
	return lists, nowMS, err
}

// errLost is returned by a change of a run that no longer holds its list.
var errLost = &freeslot.Error{Code: freeslot.CodeConflict, Message: "the run is over, or another replica has taken it"}

// change changes a list's assignment by f, which may run several times. f sees the zero Assignment
// where there is none.
func (s *Store) change(
	ctx context.Context, list string, f func(a *Assignment, nowMS int64) error,
) (Assignment, error) {
	before, err := s.Get(ctx, list)
	raw := before.raw // also if it is unreadable
	if err != nil && raw == "" && freeslot.CodeOf(err) != freeslot.CodeNotFound {
		return before, err
	}
	nowMS, err := s.now(ctx)
	if err != nil {
		return Assignment{}, err
	}
	for range tries {
		a := Assignment{Runs: []Run{}}
		if raw != "" {
			if a, err = decode(raw); err != nil {
				a = Assignment{Runs: []Run{}, raw: raw} // the next Set mends it
			}
		}
		if err := f(&a, nowMS); err != nil {
			return a, err
		}
		text, err := a.encode()
		if err != nil {
			return a, err
		}
		code, at, now, err := s.put(ctx, list, raw, text, a.look())
		switch {
		case err != nil:
			return a, err
		case code == codeDone:
			a.raw = text
			return a, nil
		case code == codeGone:
			return a, &freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is no list " + list}
		case code == codeFull:
			return a, &freeslot.Error{
				Code: freeslot.CodeOverloaded, Message: fmt.Sprintf("%d lists have a source already", MaxAssigned),
			}
		}
		raw, nowMS = now, at
	}
	return Assignment{}, moving(list)
}

// look returns when the list is looked at again, in ms.
func (a *Assignment) look() string {
	if at := a.dueMS(); at > 0 {
		return strconv.FormatInt(at, 10)
	}
	return "inf" // it stays in the set, which lists all
}

func (s *Store) put(
	ctx context.Context, list, seen, text, look string,
) (code, nowMS int64, state string, err error) {
	keys := []string{s.sources, s.key(list), namelist.IndexKey(s.runner.Layout())}
	args := []string{list, seen, text, look, strconv.Itoa(MaxAssigned)}
	r := script.ReadReply(s.runner.Call(ctx, scripts["put_source"], keys, args))
	if code, nowMS = r.Number(), r.Number(); code == codeDiffer {
		state = r.Text()
	}
	if r.Err != nil {
		r.Err = fmt.Errorf("source of list %s: %w", list, r.Err)
	}
	return code, nowMS, state, r.Err
}

func (s *Store) now(ctx context.Context) (int64, error) {
	reply, err := s.runner.Do(ctx, "time", s.runner.B().Time().Build()).AsIntSlice()
	if err != nil || len(reply) != 2 || reply[0] > math.MaxInt64/1000 {
		return 0, fmt.Errorf("redis' time: %w", err)
	}
	return reply[0]*1000 + reply[1]/1000, nil
}

func moving(list string) error {
	return &freeslot.Error{
		Code: freeslot.CodeConflict, Message: "the source of list " + list + " changes all the time; try again",
	}
}
