package pool

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

const (
	// maxPairs bounds the index of language pairs.
	maxPairs = 1 << 14

	maxAuthor = 128
	maxNote   = 1024
)

// edit describes a change of the configuration in Redis.
type edit struct {
	// seen is the version that the caller's change is based on; 0 means none.
	seen uint64
	// content is a JSON object without "version", in canonical form: equal configurations have
	// equal content.
	content []byte
	// pairs maps a language pair to its pools, joined by commas.
	pairs map[string]string
	// paused is a JSON object in canonical form. If it is empty, what is paused stays as it is.
	paused []byte
	// entry holds the author and the note, and for a pause the action.
	entry ConfigEntry
}

// Outcome is the result of a change.
type Outcome struct {
	Version    uint64
	Generation string
	// Unchanged is true if the content was already in force, as this version.
	Unchanged bool
	// NowMS is the time of the change by Redis' clock.
	NowMS int64
}

// ConflictError is returned if the current version is not the one that the caller saw. Nothing was
// changed.
type ConflictError struct{ Seen, Current uint64 }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("the configuration is at version %d, expected %d", e.Current, e.Seen)
}

// put puts content and pairs in force, and paused unless it is empty. Repeating a call is harmless:
// what is already in force is reported as Unchanged. Errors: *freeslot.Error (invalid_argument),
// *ConflictError, script.ErrNotReplicated, or the error from Redis.
func (s *Store) put(ctx context.Context, e edit) (Outcome, error) {
	if err := e.validate(); err != nil {
		return Outcome{}, err
	}
	e.entry.Action = "apply"
	if e.entry.Restores > 0 {
		e.entry.Action = "rollback"
	}
	k := &s.keys
	keys := []string{k.document, k.version, k.pairsVersion, k.pairs, k.history, k.paused}
	args := []string{
		strconv.FormatUint(e.seen, 10), newGeneration(), string(e.content), e.entry.remark(), k.channel,
		strconv.Itoa(historyKept), string(e.paused),
	}
	for _, pair := range slices.Sorted(maps.Keys(e.pairs)) {
		args = append(args, pair, e.pairs[pair])
	}
	return s.change(ctx, "config_apply", keys, args, e.seen)
}

// putPaused puts paused in force as a new version and leaves the rest as it is. Errors: as put.
func (s *Store) putPaused(ctx context.Context, e edit) (Outcome, error) {
	if err := e.validatePaused(); err != nil {
		return Outcome{}, err
	}
	k := &s.keys
	keys := []string{k.document, k.version, k.history, k.paused}
	args := []string{
		strconv.FormatUint(e.seen, 10), newGeneration(), string(e.paused), e.entry.remark(), k.channel,
		strconv.Itoa(historyKept),
	}
	return s.change(ctx, "config_pause", keys, args, e.seen)
}

func (s *Store) change(ctx context.Context, name string, keys, args []string, seen uint64) (Outcome, error) {
	reply, err := s.runner.CallConfirmed(ctx, scripts[name], keys, args, isConflict).ToArray()
	if err != nil {
		return Outcome{}, fmt.Errorf("change configuration: %w", err)
	}
	return decodeOutcome(reply, seen)
}

func isConflict(r rueidis.RedisResult) bool {
	reply, err := r.ToArray()
	if err != nil || len(reply) == 0 {
		return false
	}
	status, err := reply[0].AsInt64()
	return err == nil && status == -1
}

func decodeOutcome(reply []rueidis.RedisMessage, seen uint64) (Outcome, error) {
	if len(reply) != 4 {
		return Outcome{}, fmt.Errorf("change configuration: reply has %d values, expected 4", len(reply))
	}
	var number [4]int64
	var err error
	for _, i := range []int{0, 1, 3} {
		if number[i], err = reply[i].AsInt64(); err != nil {
			return Outcome{}, fmt.Errorf("change configuration: %w", err)
		}
	}
	generation, err := reply[2].ToString()
	if err != nil {
		return Outcome{}, fmt.Errorf("change configuration: %w", err)
	}
	out := Outcome{Version: uint64(number[1]), Generation: generation, NowMS: number[3]}
	switch number[0] {
	case 1:
		return out, nil
	case 0:
		out.Unchanged = true
		return out, nil
	case -1:
		return Outcome{}, &ConflictError{Seen: seen, Current: out.Version}
	default:
		return Outcome{}, fmt.Errorf("change configuration: unknown status %d", number[0])
	}
}

func newGeneration() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

func (e *edit) validate() error {
	switch {
	case len(e.content) < 3 || e.content[0] != '{' || e.content[len(e.content)-1] != '}' || !json.Valid(e.content):
		return freeslot.Invalid("config", "is not a JSON object")
	case len(e.content)+len(`,"version":9007199254740992`) > maxBytes:
		return freeslot.Invalid("config", "has %d bytes, expected fewer than %d", len(e.content), maxBytes)
	case len(e.pairs) > maxPairs:
		return freeslot.Invalid("config.pools", "cover %d pairs of languages, expected at most %d", len(e.pairs), maxPairs)
	case len(e.paused) > 0:
		return e.validatePaused()
	default:
		return e.validateRemarks()
	}
}

func (e *edit) validatePaused() error {
	if len(e.paused) < 2 || len(e.paused) > maxBytes || e.paused[0] != '{' || !json.Valid(e.paused) {
		return freeslot.Invalid("config.paused", "is not a JSON object of at most %d bytes", maxBytes)
	}
	return e.validateRemarks()
}

func (e *edit) validateRemarks() error {
	if err := validateRemark("author", e.entry.Author, maxAuthor); err != nil {
		return err
	}
	return validateRemark("note", e.entry.Note, maxNote)
}

// validateRemark refuses control characters, which could be commands to a terminal.
func validateRemark(field, text string, longest int) error {
	if len(text) > longest || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return freeslot.Invalid(
			field, "is not a remark, expected at most %d bytes of UTF-8 without control characters", longest,
		)
	}
	return nil
}
