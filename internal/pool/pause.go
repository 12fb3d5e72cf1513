package pool

import (
	"context"
	"errors"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

// pauseTries bounds how often a change of the pauses is tried again after a conflict.
const pauseTries = 16

// Pause replaces everything that is paused by paused; nil or empty ends all pauses. seen is as in
// Change. action is a remark for the history, such as "pause service asr". The rest of the
// configuration stays as it is: without a document the replicas' own files stay in force. Errors:
// as Apply.
func (s *Store) Pause(
	ctx context.Context, seen uint64, paused *selection.Paused, action, author, note string,
) (Outcome, error) {
	if err := validate(&selection.Config{Paused: paused}).Err(); err != nil {
		return Outcome{}, err
	}
	return s.putPaused(
		ctx, edit{seen: seen, paused: []byte(paused.Text()), entry: ConfigEntry{Action: action, Author: author, Note: note}},
	)
}

// ChangePaused lets edit change what is paused, and returns what is paused afterwards. If another
// change came first, it calls edit again with what is paused then, so no change is lost. If the
// configuration in Redis is not valid, the error is a *freeslot.Error with code conflict, because
// no change beside it would come into force. Other errors: as Pause and Read.
func (s *Store) ChangePaused(
	ctx context.Context, edit func(*selection.Paused), action, author, note string,
) (Outcome, *selection.Paused, error) {
	for try := 0; ; try++ {
		doc, err := s.Read(ctx)
		if err != nil {
			return Outcome{}, nil, err
		}
		if doc.Problem != nil {
			return Outcome{}, nil, &freeslot.Error{
				Code: freeslot.CodeConflict, Field: root,
				Message: "the configuration in Redis is not valid, so that no change of it comes into force: " +
					doc.Problem.Error(),
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

// pausedThen returns what was paused according to an entry of the history. It returns nil if the
// entry does not say, or an operator edited it; a rollback then leaves the present pauses alone.
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
