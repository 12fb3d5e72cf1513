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

	"github.com/freeslot/freeslot"
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
	mostPages   = 10
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
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.runner.Call(ctx, scripts["begin"], []string{s.keys.open, s.keys.ended}, []string{
		e.ID, string(text), strconv.FormatInt(oldAfter.Milliseconds(), 10), s.kept,
	}).Error()
}

func (s *store) end(ctx context.Context, e *Entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.runner.Call(
		ctx, scripts["end"], []string{s.keys.open, s.keys.ended}, []string{e.ID, string(text), s.kept},
	).Error()
}

func (s *store) read(ctx context.Context, f Filter, cursor string, limit int) (page []Entry, next string, err error) {
	end := "+"
	if cursor == "" {
		if page, err = s.open(ctx, f); err != nil {
			return nil, "", err
		}
	} else if end, err = exclusive(cursor); err != nil {
		return nil, "", err
	}
	for range mostPages {
		entries, err := s.runner.Do(ctx, "audit", s.runner.B().Xrevrange().
			Key(s.keys.ended).End(end).Start("-").Count(pageEntries).Build()).AsXRange()
		if err != nil {
			return nil, "", err
		}
		for _, at := range entries {
			next, end = at.ID, "("+at.ID
			if e, ok := decode(at.FieldValues["entry"]); ok && f.matches(&e) {
				page = append(page, e)
			}
			if len(page) >= limit {
				return page, next, nil
			}
		}
		if len(entries) < pageEntries {
			return page, "", nil
		}
	}
	return page, next, nil
}

// exclusive returns the end of a range that begins before the cursor, which is a stream's id.
func exclusive(cursor string) (string, error) {
	ms, seq, ok := strings.Cut(cursor, "-")
	_, errMS := strconv.ParseUint(ms, 10, 64)
	_, errSeq := strconv.ParseUint(seq, 10, 64)
	if !ok || errMS != nil || errSeq != nil {
		return "", freeslot.Invalid("cursor", "is %.40q, expected one of the page before", cursor)
	}
	return "(" + cursor, nil
}

// open returns the changes without an end, the newest first.
func (s *store) open(ctx context.Context, f Filter) (page []Entry, err error) {
	all, err := s.runner.Do(ctx, "audit", s.runner.B().Hgetall().Key(s.keys.open).Build()).AsStrMap()
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
