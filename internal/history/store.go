package history

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot/internal/script"
)

const (
	// kept is how many minutes Redis keeps.
	kept  = "1440"
	field = "point"
)

// Store keeps the minutes of the last day in Redis. It is safe for concurrent use.
type Store struct {
	runner *script.Runner
	keys   keys
}

// NewStore makes a store on the first cell of a system. It does no I/O.
func NewStore(first *script.Runner) *Store {
	return &Store{runner: first, keys: keysOf(first.Layout())}
}

// Add writes a minute, unless that minute or a later one is there. It may be repeated.
func (s *Store) Add(ctx context.Context, m Minute) error {
	add := s.runner.B().Xadd().Key(s.keys.minutes).Maxlen().Exact().Threshold(kept).
		Id(strconv.FormatInt(m.AtMS, 10)+"-1").FieldValue().FieldValue(field, m.Text).Build()
	err := s.runner.Do(ctx, "history", add).Error()
	if err != nil && strings.Contains(err.Error(), "ID specified in XADD") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write a minute of the history: %w", err)
	}
	return nil
}

// Load returns the minutes of the last day, oldest first.
func (s *Store) Load(ctx context.Context) ([]Minute, error) {
	read := s.runner.B().Xrange().Key(s.keys.minutes).Start("-").End("+").Build()
	entries, err := s.runner.Do(ctx, "history", read).AsXRange()
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	minutes := make([]Minute, 0, len(entries))
	for _, e := range entries {
		at, _, _ := strings.Cut(e.ID, "-")
		ms, err := strconv.ParseInt(at, 10, 64)
		if text := e.FieldValues[field]; err == nil && text != "" {
			minutes = append(minutes, Minute{AtMS: ms, Text: text})
		}
	}
	return minutes, nil
}
