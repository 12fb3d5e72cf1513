package audit

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var sources embed.FS

var scripts = script.MustLoad(sources)

const (
	// oldAfter is more than any change takes.
	oldAfter = 5 * time.Minute
	// pageEntries is how many entries one call reads, and mostPages is how many calls one read
	// makes: a filter may match few of them.
	pageEntries = 500
	mostPages   = 20
)

// store keeps entries in Redis.
type store struct {
	runner *script.Runner
	keys   keys
	kept   string
}

func newStore(first *script.Runner, kept int) *store {
	first.Add(scripts)
	return &store{runner: first, keys: keysOf(first.Layout()), kept: strconv.Itoa(kept)}
}

func (s *store) begin(ctx context.Context, e *Entry) error {
	return s.write(ctx, scripts["begin"], e, strconv.FormatInt(oldAfter.Milliseconds(), 10))
}

func (s *store) end(ctx context.Context, e *Entry) error {
	return s.write(ctx, scripts["end"], e)
}

func (s *store) write(ctx context.Context, by *script.Script, e *Entry, more ...string) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	at, args := s.keys.of(identity.Role(e.Role)), []string{e.ID, string(text), s.kept}
	return s.runner.Call(ctx, by, []string{at.open, at.ended}, append(args, more...)).Error()
}

func (s *store) read(ctx context.Context, f Filter, cursor string, limit int) (page []Entry, next string, err error) {
	at, err := decodeCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	if cursor == "" {
		if page, err = s.open(ctx, f); err != nil {
			return nil, "", err
		}
	}
	ended := s.newMerge(at, f.SinceMS)
	for {
		e, more, err := ended.next(ctx)
		switch {
		case err != nil:
			return nil, "", err
		case !more:
			return page, ended.cursor(), nil
		}
		if e.ID != "" && f.matches(&e) {
			page = append(page, e)
		}
		if len(page) >= limit {
			return page, ended.cursor(), nil
		}
	}
}

// open returns the changes without an end, the newest first.
func (s *store) open(ctx context.Context, f Filter) (page []Entry, err error) {
	for _, half := range []shelf{s.keys.operators, s.keys.tenants} {
		all, err := s.runner.Do(ctx, "audit", s.runner.B().Hgetall().Key(half.open).Build()).AsStrMap()
		if err != nil {
			return nil, err
		}
		for _, value := range all {
			_, text, _ := strings.Cut(value, " ")
			e, ok := decode(text)
			if time.Since(time.UnixMilli(e.AtMS)) < oldAfter {
				e.Outcome = OutcomeUnderWay
			}
			if ok && f.matches(&e) {
				page = append(page, e)
			}
		}
	}
	slices.SortFunc(page, func(a, b Entry) int { return cmp.Compare(b.ID, a.ID) })
	return page, nil
}

// decode returns false for what another release or a person has written.
func decode(text string) (e Entry, ok bool) {
	if json.Unmarshal([]byte(text), &e) != nil || e.ID == "" {
		return Entry{}, false
	}
	e.Outcome = cmp.Or(e.Outcome, OutcomeUnknown)
	return e, true
}
