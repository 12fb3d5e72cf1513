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
	"github.com/freeslot/freeslot/internal/script"
)

// stateMoved is the state of a record that only points to another cell. No client sees it.
const stateMoved freeslot.State = "moved"

// OnTheMove reports whether a record in this state says that its job is in another cell, or soon
// will be.
func OnTheMove(s freeslot.State) bool { return s == freeslot.StateMoving || s == stateMoved }

const (
	// moveLife is how long a reading of a moving job may be acted upon. moveRetention must be far
	// longer.
	moveLife = 10 * time.Second
	// moveAgain is the time until the next look at a job whose target does not answer. moveLook is
	// how often a replica checks whether a record that points to another cell is still needed.
	moveAgain = 2 * time.Second
	moveLook  = 10 * time.Minute
)

// Target is the cell that jobs are to move to.
type Target struct {
	Cell int
	// Slots is the most slots that a job may need there.
	Slots int
}

// Begun says what BeginMoves did.
type Begun struct {
	// Jobs counts the jobs that move now. Stayed counts those that were looked at and stay.
	Jobs, Stayed int
	// More is true if further jobs follow in the queue.
	More bool
}

// Move is a job on its way to another cell, or one that has arrived there.
type Move struct {
	Job string
	// Cell is the cell that the job goes to, under the id that [MovedID] returns. It is -1 while a
	// key of the job decides and no replica has chosen yet. Hop numbers the moves of the job's
	// life, from 1.
	Cell, Hop int
	// Done is true if the job has arrived, and the record here only points to it.
	Done bool
	// fields holds names and values of the record of a job that is on its way.
	fields []string
}

// there returns the job's id in the cell that it goes to.
func (m *Move) there() string { return MovedID(m.Job, m.Cell) }

// text returns the move in the form that its record has. The hop in it is the record's own.
func (m *Move) text() string {
	to := strconv.Itoa(m.Cell)
	if m.Cell == keyDecides {
		to = "?"
	}
	return to + " " + strconv.Itoa(m.Hop-1)
}

// keyDecides stands for the cell that a key of the job decides on.
const keyDecides = -1

// what returns the job itself, and its tenant.
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

// decodeMove reads from a record's text which cell the job goes to.
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

// BeginMoves starts to move the first waiting jobs of a class. It skips the first from jobs of the
// queue and looks at the next limit jobs. Jobs that cannot move stay. Errors: from Redis; some jobs
// may move then.
func (c *Cell) BeginMoves(ctx context.Context, class string, to Target, from, limit int) (Begun, error) {
	l := c.layout
	keys := []string{l.Waiting(), l.WaitingVersion(), l.Due(), l.Moves()}
	args := []string{class, strconv.Itoa(to.Cell), strconv.Itoa(to.Slots), strconv.Itoa(from), strconv.Itoa(max(limit, 1))}
	r := script.ReadReply(c.runner.Call(ctx, c.scripts["move"], keys, args))
	begun := Begun{Jobs: int(r.Number()), Stayed: int(r.Number()), More: r.Text() == "1"}
	wrap(&r.Err, "begin moves")
	return begun, r.Err
}

// moves reads moves from an index. With jobs it reads their moves; without, it reads all moves that
// a replica should have looked at late ago or earlier. more is true if there are more.
func (c *Cell) moves(
	ctx context.Context, index string, late time.Duration, limit int, jobs ...string,
) (found []Move, more bool, err error) {
	defer wrap(&err, "read moves")
	args := append([]string{millis(late), strconv.Itoa(max(limit, 1))}, jobs...)
	r := script.ReadReply(c.runner.Call(ctx, c.scripts["moves"], []string{index}, args))
	more = r.Text() == "1"
	for r.Err == nil && len(r.Values) > 0 {
		found = append(found, readMove(&r))
	}
	if r.Err != nil {
		return nil, false, r.Err
	}
	return found, more, nil
}

// readMove reads one move in the answer of moves.lua.
func readMove(r *script.Reply) (m Move) {
	var to string
	m.Job, m.Done, to = r.Text(), r.Text() == string(stateMoved), r.Text()
	fields, _ := r.Next()
	if r.Err == nil {
		m.Cell, m.Hop, r.Err = decodeMove(to)
	}
	if r.Err == nil {
		m.fields, r.Err = fields.AsStrSlice()
	}
	return m
}

// The answers of move_in.lua for a job.
const (
	moveLate   = 0
	moveCame   = 1
	moveThere  = 2
	moveBroken = 3
)

// moveIn puts jobs that move from another cell into the queues here, unless this cell's clock is
// past till, in milliseconds.
func (c *Cell) moveIn(ctx context.Context, moves []*Move, till int64, guide *Guide) (what []int64, err error) {
	l := c.layout
	keys := []string{l.Due(), l.Waiting(), l.WaitingVersion(), l.Moved()}
	args := []string{strconv.FormatInt(till, 10)}
	for _, m := range moves {
		keys = append(keys, l.Job(m.there()))
		record, _ := parseJobRecord(m.field("job")) // the script refuses another form
		fields := m.carried()
		args = append(args, m.there(), cmp.Or(m.field("known"), m.Job), strconv.Itoa(m.Hop),
			strconv.Itoa(guide.weight(record.tenant)),
			limitsArg(guide.limits(m)), strconv.Itoa(len(fields)))
		args = append(args, fields...)
	}
	return c.clocked(c.runner.CallReplicated(ctx, c.scripts["move_in"], keys, args), len(moves))
}

// carried returns the fields that a record has in every cell.
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

// moveAck settles the moves of jobs that arrived here. It returns how many milliseconds each record
// is still kept: -1 for a job that has not ended, -2 for a job that is gone. Without moves it only
// reads the clock.
func (c *Cell) moveAck(ctx context.Context, moves []*Move) (left []int64, err error) {
	var args []string
	for _, m := range moves {
		args = append(args, m.there(), strconv.Itoa(m.Hop))
	}
	return c.clocked(c.runner.Call(ctx, c.scripts["move_ack"], []string{c.layout.Finished()}, args), len(moves))
}

// clocked reads an answer that holds the cell's clock and then n numbers.
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

// clockAt returns the least that the cell's clock can have shown at the local time t; false if it
// was never read.
func (c *Cell) clockAt(t time.Time) (ms int64, ok bool) {
	if read := c.clock.Load(); read != nil {
		return read.ms + t.Sub(read.at).Milliseconds(), true
	}
	return 0, false
}

// moveNote is one item for move_note.lua.
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

// route says where a record's job is.
type route struct {
	state freeslot.State // "" without a record
	to    int            // only for a job that moves or has moved
	hop   int            // of the record itself
}

func (r route) onward() bool { return OnTheMove(r.state) }

// routes reads the routes of several records, in one pipeline.
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
		out[i].hop, _ = strconv.Atoi(fields[2]) // absent for a job that never moved
		if !out[i].onward() {
			continue
		}
		if out[i].to, _, err = decodeMove(fields[1]); err != nil {
			return nil, &unreadableError{job: ids[i], err: err}
		}
	}
	return out, nil
}

func (g *Guide) weight(tenant string) int {
	if g == nil || g.Weight == nil {
		return 1
	}
	return min(max(g.Weight(tenant), 1), MaxWeight)
}

func (g *Guide) home(m *Move) (cell int, ok bool) {
	tenant, job, err := m.what()
	if g == nil || g.Home == nil || err != nil {
		return 0, false
	}
	return g.Home(tenant, job)
}

func (g *Guide) limits(m *Move) []Limit {
	if g == nil || g.Limits == nil || m.field("gates") == "" {
		return nil
	}
	tenant, job, err := m.what()
	if err != nil {
		return nil
	}
	return g.Limits(tenant, job, m.Cell)
}
