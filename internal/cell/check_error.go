package cell

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

// unreachableError is that a server does not serve now: it may be trusted or not.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }

func (e *unreachableError) Unwrap() error { return e.err }

// passing are the codes of answers that say that a server cannot serve now, and that
// end without anybody changing what we ask: it loads its data, waits for its master,
// has not been told yet that it is the master, cannot write to its disk, or its slots
// are on the move.
var passing = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "NOREPLICAS"}

// unreachableOr marks what is neither a finding of ours nor an answer of a Redis that
// serves.
func unreachableOr(err error) error {
	var answer *rueidis.RedisError
	var finding *refusal
	switch {
	case err == nil || errors.As(err, &finding):
		return err
	case errors.As(err, &answer):
		if code, _, _ := strings.Cut(answer.Error(), " "); !slices.Contains(passing, code) {
			return err
		}
	}
	return &unreachableError{err}
}

// refusal is a finding that somebody has to mend.
type refusal struct{ message string }

func (e *refusal) Error() string { return e.message }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }
