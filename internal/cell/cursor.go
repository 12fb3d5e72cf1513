package cell

import (
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

// position is where a listing goes on: behind job, on the node of that name or,
// among the finished, at that microsecond, or in the queue of a class, at that score.
type position struct {
	finished   bool
	line       bool
	place, job string
}

// microsecond is place among the finished; infinite at their beginning.
func (p position) microsecond() float64 {
	if p.place == "" {
		return math.Inf(1)
	}
	return p.score()
}

// score is place where it is a number, which openCursor has checked.
func (p position) score() float64 {
	n, _ := strconv.ParseUint(p.place, 10, 64)
	return float64(n)
}

// cursor is the position's text. It is neither encrypted nor signed: whatever a reader makes of it,
// a page has jobs of the reader's tenant alone. It can name the id of another tenant's job, which
// opens nothing. It holds a mark of its reader, so that a cursor of another listing is refused.
func (p *position) cursor(tenant string) string {
	if p == nil {
		return ""
	}
	kind := "n"
	if p.finished {
		kind = "f"
	}
	if p.line {
		kind = "l"
	}
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join([]string{kind, reader(tenant), p.job, p.place}, "~")))
}

// reader stands for a tenant, in few bytes; "" lists for all of them.
func reader(tenant string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(tenant))) }

func badCursor() *freeslot.Error {
	return freeslot.Invalid("cursor", "is not one that a listing returned")
}

func openCursor(cursor, tenant string) (position, error) {
	if cursor == "" {
		return position{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	parts := strings.SplitN(string(text), "~", 4)
	if err != nil || len(parts) != 4 || parts[1] != reader(tenant) {
		return position{}, badCursor()
	}
	p := position{finished: parts[0] == "f", line: parts[0] == "l", job: parts[2], place: parts[3]}
	_, err = strconv.ParseUint(p.place, 10, 64)
	number := err == nil
	if parts[0] == "n" || p.line && number || p.finished && (number || p.place == "") {
		return p, nil
	}
	return position{}, badCursor()
}
