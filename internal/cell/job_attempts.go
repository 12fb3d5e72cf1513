package cell

import (
	"fmt"
	"strings"

	"github.com/freeslot/freeslot"
)

// decodeAttempts reads the field attempts, in the form of lib/attempts.lua. "" is no attempt.
func decodeAttempts(text string) (attempts []freeslot.PastAttempt, err error) {
	if text == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		if len(attempts) == freeslot.MaxPastAttempts {
			return nil, fmt.Errorf("more than %d attempts", freeslot.MaxPastAttempts)
		}
		var a freeslot.PastAttempt
		var ended string
		if err := readParts(one, &a.Attempt, &a.Node, &a.BeganAtMS, &a.EndedAtMS, &ended, &a.Code); err != nil {
			return nil, err
		}
		if a.Ended = freeslot.AttemptEnd(ended); a.Code == "-" {
			a.Code = ""
		}
		attempts = append(attempts, a)
	}
	return attempts, nil
}
