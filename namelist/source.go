package namelist

import (
	"context"
	"time"

	lists "github.com/freeslot/freeslot/internal/namelist"
)

// source is where a client gets lists from. It is safe for concurrent use.
type source interface {
	// follow calls heard with each event of a list, in their order, until stop. Neither follow nor
	// heard may block. An event with a zero Revision means that events may have been lost.
	follow(list string, heard func(lists.Event)) (stop func())
	// look returns the mark of each list, and Redis' time.
	poll(ctx context.Context, names []string, history bool) (marks []lists.Mark, is string, at time.Time, err error)
	// delta returns the head of a list, and a page of its edits after a revision.
	delta(ctx context.Context, list string, after int64) (lists.Delta, error)
	// block returns the wire form of a block of a version's filter.
	block(ctx context.Context, list string, v *lists.Version, index uint32) ([]byte, error)
	// whole returns all ids of a version, with the expiry of each in Unix ms, 0 for never.
	whole(ctx context.Context, list string, v *lists.Version) (map[string]int64, error)
	// ask reads ids from their segments of a version, in their order.
	ask(ctx context.Context, list string, v *lists.Version, questions []question) []found
	// chain reads a chain. follow and poll know a chain by its mark; see [lists.ChainMark].
	chain(ctx context.Context, chain string) (lists.ChainRecord, error)
	// report reports what the client has loaded and serves; a zero report takes one back.
	report(ctx context.Context, client string, reports map[string]lists.ClientReport) error
	close()
}

// found is what a segment says of an id. With a reason it says nothing.
type found struct {
	entry entry
	why   Reason
}

func foundOf(f lists.ListFound) found {
	return found{entry: entry{has: f.Member, expires: f.ExpiresMS}, why: reasonOf(f.Why)}
}

// reasonOf converts a reason; it also accepts reasons of later releases.
func reasonOf(why lists.Why) Reason {
	switch why {
	case "":
		return ReasonNone
	case lists.WhySegment:
		return ReasonSegment
	case lists.WhyMoved:
		return ReasonMoved
	case lists.WhyTimeout:
		return ReasonTimeout
	case lists.WhyInvalid:
		return ReasonInvalidID
	default:
		return ReasonFormat
	}
}
