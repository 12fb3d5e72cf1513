package version

import (
	"strconv"
	"strings"
	"time"
)

// Header returns the first line of a file in this format; empty if there is none.
func Header(f Format) string {
	if f == CSV {
		return "id,expiry\n"
	}
	return ""
}

// AppendLine appends an entry as a line that an import can read. TXT has no room for an expiry.
func AppendLine(dst []byte, f Format, id string, expiresMS int64) []byte {
	if f == TXT {
		return append(append(dst, id...), '\n')
	}
	if strings.ContainsAny(id, `",`) {
		dst = append(append(append(dst, '"'), strings.ReplaceAll(id, `"`, `""`)...), '"')
	} else {
		dst = append(dst, id...)
	}
	dst = append(dst, ',')
	switch {
	case expiresMS == 0:
	case expiresMS < FirstMS: // as a number it would be taken for seconds
		dst = time.UnixMilli(expiresMS).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z07:00")
	default:
		dst = strconv.AppendInt(dst, expiresMS, 10)
	}
	return append(dst, '\n')
}
