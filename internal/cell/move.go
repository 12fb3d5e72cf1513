package cell

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// stateMoved is the state of a record that only sends on to another cell. Nobody outside sees it.
const stateMoved freeslot.State = "moved"

// OnTheMove reports whether a record in this state says that its job is, or is about to be, in another cell.
func OnTheMove(s freeslot.State) bool { return s == freeslot.StateMoving || s == stateMoved }

const (
	// moveRetention is the shortest retention of a job that has moved, and moveLife how long what
	// was read of one that moves may be acted upon: the first is the longer by far.
	moveRetention = 2 * time.Minute
	moveLife      = 10 * time.Second
	// moveAgain is when a job is looked at again whose target does not answer, and moveLook how often
	// a record that sends on is asked for whether its job is still there.
	moveAgain = 2 * time.Second
	moveLook  = 10 * time.Minute
)

// Target is the cell that jobs are to move to.
type Target struct {
	Cell int
	// Slots is the most that a job may need there.
	Slots int
}

// Begun is what BeginMoves did.
type Begun struct {
	// Jobs move now; Stayed were looked at and stay.
	Jobs, Stayed int
	// More is true when the queue goes on behind those that were looked at.
	More bool
}

// Move is a job on its way to another cell, or one that has gone there.
type Move struct {
	Job string
	// Cell is where it goes, under the id that [MovedID] makes, and Hop which move of the job's
	// life that is, from 1. Cell is -1 where a key of the job decides, and nobody has said yet.
	Cell, Hop int
	// Done is true when the job is there, and the record here only sends on.
	Done bool
	// fields are names and values of the record of one that is on its way.
	fields []string
}

// MovedID is the id under which a job is in another cell: its ULID is the same in all.
func MovedID(jobID string, cell int) string {
	_, rest, _ := strings.Cut(jobID, "-")
	return strconv.Itoa(cell) + "-" + rest
}

// there is the job's id where it goes.
func (m *Move) there() string { return MovedID(m.Job, m.Cell) }

// text is how its record names the move: the hop is the one of the record itself.
func (m *Move) text() string {
	to := strconv.Itoa(m.Cell)
	if m.Cell == keyDecides {
		to = "?"
	}
	return to + " " + strconv.Itoa(m.Hop-1)
}

// keyDecides stands for the cell that a key of the job decides on.
const keyDecides = -1

// what is the job itself, and whose it is.
func (m *Move) what() (tenant string, job *freeslot.Job, err error) {
	record, err := parseJobRecord(m.field("job"))
	if err == nil {
		job, err = decodeSpec([]byte(m.field("spec")))
	}
	if err != nil {
		return "", nil, &unreadableError{job: m.Job, err: err}
	}
	return record.tenant, job, nil
}

func (m *Move) field(name string) string {
	for i := 0; i+1 < len(m.fields); i += 2 {
		if m.fields[i] == name {
			return m.fields[i+1]
		}
	}
	return ""
}

// decodeMove reads what a record says of where its job goes.
func decodeMove(text string) (cell, hop int, err error) {
	to, last, ok := strings.Cut(text, " ")
	if to == "?" {
		cell = keyDecides
	} else if cell, err = strconv.Atoi(to); err != nil || !ok {
		return 0, 0, fmt.Errorf("move is %q, expected a cell and a number", text)
	}
	if hop, err = strconv.Atoi(last); err != nil {
		return 0, 0, fmt.Errorf("move is %q: %w", text, err)
	}
	return cell, hop + 1, nil
}

// BeginMoves has the first jobs that wait in a class begin to move: from is how many of the
// queue are left out at its beginning, limit how many are looked at. The others stay.
// Errors: those of Redis; then some of them may move.
func (c *Cell) BeginMoves(ctx context.Context, class string, to Target, from, limit int) (begun Begun, err error) {
	defer wrap(&err, "begin moves")
	l := c.layout
	keys := []string{l.Waiting(), l.WaitingVersion(), l.Due(), l.Moves()}
	args := []string{class, strconv.Itoa(to.Cell), strconv.Itoa(to.Slots), strconv.Itoa(from), strconv.Itoa(max(limit, 1))}
	reply, err := c.runner.Call(ctx, c.scripts["move"], keys, args).ToArray()
	if err == nil {
		err = readReply(reply, &begun.Jobs, &begun.Stayed, &begun.More)
	}
	return begun, err
}

// moves reads moves of an index that are to be looked at: those of jobs, or, without any, all whose time came
// at least late ago. more is true when there are more.
func (c *Cell) moves(ctx context.Context, index string, late time.Duration, limit int, jobs ...string) (found []Move, more bool, err error) {
	defer wrap(&err, "read moves")
	args := append([]string{millis(late), strconv.Itoa(max(limit, 1))}, jobs...)
	reply, err := c.runner.Call(ctx, c.scripts["moves"], []string{index}, args).ToArray()
	if err == nil {
		err = readReply(reply, &more)
	}
	if err != nil {
		return nil, false, err
	}
	for values := range slices.Chunk(reply[1:], 4) {
		var m Move
		var state, to string
		if err = readReply(values, &m.Job, &state, &to); err == nil {
			m.Cell, m.Hop, err = decodeMove(to)
		}
		if err == nil {
			m.fields, err = values[len(values)-1].AsStrSlice()
		}
		if err != nil {
			return nil, false, err
		}
		m.Done = state == string(stateMoved)
		found = append(found, m)
	}
	return found, more, nil
}

// What move_in.lua answers for a job.
const (
	moveLate   = 0
	moveCame   = 1
	moveThere  = 2
	moveBroken = 3
)

// moveIn lets jobs wait here that move from another cell, unless it is later than till, by
// this cell's clock in milliseconds.
func (c *Cell) moveIn(ctx context.Context, moves []*Move, till int64, guide *Guide) (what []int64, err error) {
	l := c.layout
	keys := []string{l.Due(), l.Waiting(), l.WaitingVersion(), l.Moved()}
	args := []string{strconv.FormatInt(till, 10)}
	for _, m := range moves {
		keys = append(keys, l.Job(m.there()))
		record, _ := parseJobRecord(m.field("job")) // the script refuses another form
		fields := m.carried()
		args = append(args, m.there(), cmp.Or(m.field("known"), m.Job), strconv.Itoa(m.Hop), strconv.Itoa(guide.weight(record.tenant)),
			limitsArg(guide.limits(m)), strconv.Itoa(len(fields)))
		args = append(args, fields...)
	}
	return c.clocked(c.runner.CallReplicated(ctx, c.scripts["move_in"], keys, args), len(moves))
}

// carried are the fields that a record has in every cell.
func (m *Move) carried() (fields []string) {
	for field := range slices.Chunk(m.fields, 2) {
		switch field[0] {
		case "state", "move", "hop", "keep", "known":
		default:
			fields = append(fields, field...)
		}
	}
	return fields
}

// moveAck settles the moves of jobs that came here, and returns how many milliseconds the record of each is
// kept still: -1 for a job that has not ended, -2 for one that is gone. Without moves it only reads the clock.
func (c *Cell) moveAck(ctx context.Context, moves []*Move) (left []int64, err error) {
	var args []string
	for _, m := range moves {
		args = append(args, m.there(), strconv.Itoa(m.Hop))
	}
	return c.clocked(c.runner.Call(ctx, c.scripts["move_ack"], []string{c.layout.Finished()}, args), len(moves))
}

// clocked reads an answer that begins with the cell's clock, and n numbers.
func (c *Cell) clocked(result rueidis.RedisResult, n int) ([]int64, error) {
	reply, err := result.AsIntSlice()
	if err != nil {
		return nil, fmt.Errorf("move to cell %d: %w", c.cfg.Index, err)
	}
	if len(reply) != 1+n {
		return nil, fmt.Errorf("move to cell %d: %d values, expected %d", c.cfg.Index, len(reply), 1+n)
	}
	c.clock.Store(&clockReading{ms: reply[0], at: time.Now()})
	return reply[1:], nil
}

// clockReading is what a cell's clock said at a moment of ours, or before.
type clockReading struct {
	ms int64
	at time.Time
}

// clockAt is what the cell's clock said at least at a moment of ours; false when it was never read.
func (c *Cell) clockAt(t time.Time) (ms int64, ok bool) {
	if read := c.clock.Load(); read != nil {
		return read.ms + t.Sub(read.at).Milliseconds(), true
	}
	return 0, false
}

// moveNote is what move_note.lua is to note of a move.
type moveNote struct {
	move   *Move
	what   string // as in move_note.lua
	number string
}

func goesTo(m *Move, cell int) moveNote               { return moveNote{m, "t", strconv.Itoa(cell)} }
func isThere(m *Move) moveNote                        { return moveNote{m, "f", ""} }
func lookLater(m *Move, after time.Duration) moveNote { return moveNote{m, "l", millis(after)} }
func keptFor(m *Move, ms int64) moveNote              { return moveNote{m, "e", strconv.FormatInt(ms, 10)} }

func (c *Cell) noteMoves(ctx context.Context, notes []moveNote) error {
	if len(notes) == 0 {
		return nil
	}
	keys, args := []string{c.layout.Moves(), c.layout.Moved()}, []string(nil)
	for _, n := range notes {
		keys = append(keys, c.layout.Job(n.move.Job))
		args = append(args, n.move.Job, n.move.text(), n.what, n.number)
	}
	err := c.runner.Call(ctx, c.scripts["move_note"], keys, args).Error()
	wrap(&err, "note moves")
	return err
}

// route is what a record says of where its job is.
type route struct {
	state freeslot.State // "" where there is no record
	to    int            // only of one that moves or has moved
	hop   int            // of the record itself
}

func (r route) onward() bool { return OnTheMove(r.state) }

// routes reads those of several records, in one pipeline.
func (c *Cell) routes(ctx context.Context, ids []string) ([]route, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	cmds := make([]rueidis.Completed, len(ids))
	for i, id := range ids {
		cmds[i] = c.client.B().Hmget().Key(c.layout.Job(id)).Field("state", "move", "hop").Build().Pin()
	}
	out := make([]route, len(ids))
	for i, result := range c.client.DoMulti(ctx, cmds...) {
		fields, err := result.AsStrSlice() // absent fields are empty
		if err != nil {
			return nil, fmt.Errorf("read job %s: %w", ids[i], err)
		}
		out[i].state = freeslot.State(fields[0])
		out[i].hop, _ = strconv.Atoi(fields[2]) // absent of a job that never moved
		if !out[i].onward() {
			continue
		}
		if out[i].to, _, err = decodeMove(fields[1]); err != nil {
			return nil, &unreadableError{job: ids[i], err: err}
		}
	}
	return out, nil
}
