package pool

import (
	"context"
	"errors"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

// pauseTries is how often a change of what is paused is tried beside other changes.
const pauseTries = 16

// Pause makes paused all that is paused; seen is as in Change, and nil or empty ends all
// pauses. action is for the history: "pause service asr". The rest of the configuration stays what it is, and where there is none that of the
// replicas' files goes on to count. Errors: as Apply.
func (s *Store) Pause(ctx context.Context, seen uint64, paused *selection.Paused, action, author, note string) (Outcome, error) {
	if err := validate(&selection.Config{Paused: paused}).Err(); err != nil {
		return Outcome{}, err
	}
	return s.putPaused(ctx, edit{seen: seen, paused: []byte(paused.Text()), entry: ConfigEntry{Action: action, Author: author, Note: note}})
}

// ChangePaused has edit change what is paused, and tries again with what is paused then where
// somebody else was faster: so changes of others stay. It returns what is paused after it.
// A configuration in Redis that is not valid is a *freeslot.Error with the code conflict: nothing that
// is changed beside it would come into force. Other errors as those of Pause and of Read.
func (s *Store) ChangePaused(ctx context.Context, edit func(*selection.Paused), action, author, note string) (Outcome, *selection.Paused, error) {
	for try := 0; ; try++ {
		doc, err := s.Read(ctx)
		if err != nil {
			return Outcome{}, nil, err
		}
		if doc.Problem != nil {
			return Outcome{}, nil, &freeslot.Error{
				Code: freeslot.CodeConflict, Field: root,
				Message: "the configuration in Redis is not valid, so that no change of it comes into force: " + doc.Problem.Error(),
			}
		}
		paused := doc.Paused.Normal()
		edit(paused)
		paused = paused.Normal()
		out, err := s.Pause(ctx, doc.Version, paused, action, author, note)
		var conflict *ConflictError
		if !errors.As(err, &conflict) || try == pauseTries || ctx.Err() != nil {
			return out, paused, err
		}
	}
}

// pausedThen is what an entry of the history says was paused: nil where it says nothing, or
// an operator edited it, so that a rollback leaves alone what is paused now.
func pausedThen(text string) *selection.Paused {
	if len(text) == 0 {
		return nil
	}
	paused, err := DecodePaused([]byte(text))
	switch {
	case err != nil:
		return nil
	case paused == nil:
		return &selection.Paused{}
	default:
		return paused
	}
}
