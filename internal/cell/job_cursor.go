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

// position says where a listing continues: after job, at a place. The place is the name of a node,
// or for finished jobs a microsecond, or in the queue of a class a score.
type position struct {
	finished   bool
	line       bool
	place, job string
	// scored is true at a place whose jobs are in a sorted set. Then job is a member of it, with this
	// score.
	scored bool
	score  float64
}

// microsecond returns the place among finished jobs; infinite at their beginning.
func (p position) microsecond() float64 {
	if p.place == "" {
		return math.Inf(1)
	}
	return p.number()
}

// number returns place as a number; openCursor has checked that it is one.
func (p position) number() float64 {
	n, _ := strconv.ParseUint(p.place, 10, 64)
	return float64(n)
}

// cursor returns the position as text. It is neither encrypted nor signed: a page only ever has
// jobs of the reader's tenant, however the cursor was changed. It can name the id of another
// tenant's job, which gives access to nothing. It holds a mark of its reader, so that a cursor of
// another listing is refused.
func (p *position) cursor(tenant string) string {
	if p == nil {
		return ""
	}
	kind, place := "n", p.place
	switch {
	case p.finished:
		kind = "f"
	case p.line:
		kind = "l"
	case p.scored:
		kind, place = "s", strconv.FormatFloat(p.score, 'f', -1, 64)+" "+p.place
	}
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join([]string{kind, reader(tenant), p.job, place}, "~")))
}

// reader returns a short mark for a tenant; "" stands for a listing of all tenants.
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
	if parts[0] == "s" {
		score, place, _ := strings.Cut(p.place, " ")
		p.scored, p.place = true, place
		if p.score, err = strconv.ParseFloat(score, 64); err != nil || math.IsNaN(p.score) || math.IsInf(p.score, 0) {
			return position{}, badCursor()
		}
		return p, nil
	}
	_, err = strconv.ParseUint(p.place, 10, 64)
	number := err == nil
	if parts[0] == "n" || p.line && number || p.finished && (number || p.place == "") {
		return p, nil
	}
	return position{}, badCursor()
}
