package dispatch

import (
	"errors"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// refusals are the codes with which Redis turns a write away because of the state
// that it is in. A script meets them before its first write or not at all, and reads
// may go on being answered.
var refusalCodes = map[string]bool{
	"NOREPLICAS": true, "READONLY": true, "MISCONF": true, "LOADING": true,
	"MASTERDOWN": true, "CLUSTERDOWN": true, "NOPERM": true,
}

// refusal is the code of such an answer; "" is any other error.
func refusalCode(err error) string {
	var answer *rueidis.RedisError
	if !errors.As(err, &answer) {
		return ""
	}
	code, text, _ := strings.Cut(answer.Error(), " ")
	// A command in the script is checked for its permission when its turn comes, and
	// others may have written before.
	if !refusalCodes[code] || code == "NOPERM" && strings.Contains(text, "script") {
		return ""
	}
	return code
}

// untouched reports whether it is certain that a call with this error has changed
// nothing, then or later: it was not sent, or Redis or we turned it away. Any other
// call may have been applied, or may still be.
func notApplied(err error) bool {
	return isNotSent(err) || isInvalid(err) || isOutOfMemory(err) || refusalCode(err) != ""
}

// isQueued reports whether the call was never sent.
func isNotSent(err error) bool {
	return errors.Is(err, cell.ErrStopped) || errors.Is(err, cell.ErrNotSent)
}

// isOurs reports whether the submission itself was at fault.
func isInvalid(err error) bool {
	var known *freeslot.Error
	return errors.As(err, &known)
}

func isOutOfMemory(err error) bool { return strings.Contains(err.Error(), "OOM ") }

// isAway reports whether err says that Redis did not do its part, as against a
// submission of ours that it refused, memory that is short, or this process that stops.
func isAway(err error) bool {
	return !isInvalid(err) && !isOutOfMemory(err) && !errors.Is(err, cell.ErrStopped)
}
