package cell

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// controlOverhead is the number of bytes that an item adds to a call besides its payload.
const controlOverhead = 128

// readParts splits text at single spaces and reads each part into a *string, *int or *int64. Only
// the last part may contain spaces.
func readParts(text string, into ...any) error {
	rest, more := text, true
	for i := range into {
		if !more {
			return fmt.Errorf("%.80q has %d parts, expected %d", text, i, len(into))
		}
		part := rest
		if i < len(into)-1 {
			part, rest, more = strings.Cut(rest, " ")
		}
		var err error
		switch to := into[i].(type) {
		case *string:
			*to = part
		case *int:
			*to, err = strconv.Atoi(part)
		case *int64:
			*to, err = strconv.ParseInt(part, 10, 64)
		default:
			panic(fmt.Sprintf("cell: part of type %T", to))
		}
		if err != nil {
			return fmt.Errorf("part %d of %.80q: %w", i+1, text, err)
		}
	}
	return nil
}

// wrap adds the name of the operation to *err, unless it is nil.
func wrap(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}

// rueidisNil returns err, or nil if err says that something does not exist.
func rueidisNil(err error) error {
	if rueidis.IsRedisNil(err) {
		return nil
	}
	return err
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// orNone returns n in the form that scripts read: an empty string stands for none, which is 0 here.
func orNone(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// mustJSON encodes a value of our own types, which cannot fail.
func mustJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("cell: encode %T: %v", v, err))
	}
	return string(data)
}

// shortHash returns a short name for a text of any form.
func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
