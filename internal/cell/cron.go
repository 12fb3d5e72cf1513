package cell

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// cronListBytes is about the most that one page of schedules has.
const cronListBytes = 4 << 20

// Cron is the hash of what schedules are, by their ids: "tenant/name".
func (l Layout) Cron() string { return l.key("cron", "") }

// CronState is the hash of how schedules stand.
func (l Layout) CronState() string { return l.key("cron:state", "") }

// CronIndex is the zset of all schedules, with the score 0: in the order of their ids.
func (l Layout) CronIndex() string { return l.key("cron:index", "") }

// CronDue is the zset of schedules by the time (ms) when somebody must look at them.
func (l Layout) CronDue() string { return l.key("cron:due", "") }

// CronID is the id of a schedule; tenants and names are names, which have no slash.
func CronID(tenant, name string) string { return tenant + "/" + name }

// SplitCronID is the reverse of CronID; false for what is no id.
func SplitCronID(id string) (tenant, name string, ok bool) {
	tenant, name, ok = strings.Cut(id, "/")
	return tenant, name, ok && freeslot.ValidateName("tenant", tenant) == nil && freeslot.ValidateName("name", name) == nil
}

// CronTime is a schedule and when somebody must look at it, by Redis' clock.
type CronTime struct {
	ID   string
	AtMS int64
}

// CronRecord is a schedule as it is in Redis, whoever put it there.
type CronRecord struct {
	ID string
	// Definition and State are empty where there is no such schedule.
	Definition, State string
}

// CronChange is a change of a schedule.
type CronChange struct {
	ID string
	// Seen is the state that the change was computed from; "" means that there was none.
	Seen string
	// State is the new one, different from all before; "" deletes the schedule.
	State string
	// Definition is what it is from now on; "" leaves it.
	Definition string
	// DueMS is when somebody must look at it; 0 is never.
	DueMS int64
	// Told is true for a change that somebody asked for, and is told of. At the replicated level it
	// counts once Redis' replicas have it. One that is lost otherwise is made again.
	Told bool
}

// CronPage is a part of a cell's schedules.
type CronPage struct {
	// NowMS is Redis' clock.
	NowMS   int64
	Records []CronRecord
	// More is true when there are further ones.
	More bool
}

// CronDue tells which schedules somebody must look at until so long from now, at most limit,
// the earliest first. nowMS is Redis' clock. Errors: what Redis said.
func (c *Cell) CronDue(ctx context.Context, ahead time.Duration, limit int) (due []CronTime, nowMS int64, err error) {
	reply, err := c.runner.Call(ctx, c.scripts["cron_due"], []string{c.layout.CronDue()}, []string{millis(ahead), strconv.Itoa(limit)}).ToArray()
	if err != nil {
		return nil, 0, fmt.Errorf("look for due schedules: %w", err)
	}
	if nowMS, err = intAt(reply, 0); err != nil {
		return nil, 0, fmt.Errorf("look for due schedules: %w", err)
	}
	for i := 1; i+1 < len(reply); i += 2 {
		id, err := reply[i].ToString()
		if err != nil {
			return nil, 0, fmt.Errorf("look for due schedules: %w", err)
		}
		at, err := reply[i+1].AsFloat64()
		if err != nil {
			return nil, 0, fmt.Errorf("look for due schedules: %w", err)
		}
		due = append(due, CronTime{ID: id, AtMS: int64(at)})
	}
	return due, nowMS, nil
}

// CronWrite makes a change unless the schedule has another state than the one seen; then it
// returns false. It can be repeated without harm. Errors: ErrNotReplicated, else what Redis said; then the change
// may have been made.
func (c *Cell) CronWrite(ctx context.Context, change CronChange) (bool, error) {
	l := c.layout
	due := ""
	if change.DueMS > 0 {
		due = strconv.FormatInt(change.DueMS, 10)
	}
	keys := []string{l.Cron(), l.CronState(), l.CronIndex(), l.CronDue()}
	args := []string{change.ID, change.Seen, change.State, change.Definition, due}
	var result rueidis.RedisResult
	if change.Told {
		result = c.runner.CallConfirmed(ctx, c.scripts["cron_write"], keys, args, isZero)
	} else {
		result = c.runner.Call(ctx, c.scripts["cron_write"], keys, args)
	}
	made, err := result.AsInt64()
	if err != nil {
		return false, fmt.Errorf("change schedule %s: %w", change.ID, err)
	}
	return made == 1, nil
}

// CronRead reads one schedule. nowMS is Redis' clock. Errors: what Redis said.
func (c *Cell) CronRead(ctx context.Context, id string) (r CronRecord, nowMS int64, err error) {
	page, err := c.cronList(ctx, id, "", 0)
	if err == nil && len(page.Records) != 1 {
		err = fmt.Errorf("%d records, expected one", len(page.Records))
	}
	if err != nil {
		return CronRecord{}, 0, fmt.Errorf("read schedule %s: %w", id, err)
	}
	return page.Records[0], page.NowMS, nil
}

// CronList reads the schedules of a tenant, or of all with "", with ids greater than after,
// in their order; at most limit, and fewer where they are large. Errors: what Redis said.
func (c *Cell) CronList(ctx context.Context, tenant, after string, limit int) (CronPage, error) {
	from, to := cronRange(tenant)
	if after > strings.TrimPrefix(from, "[") || after != "" && tenant == "" {
		from = "(" + after
	}
	page, err := c.cronList(ctx, from, to, limit)
	if err != nil {
		return CronPage{}, fmt.Errorf("list schedules: %w", err)
	}
	return page, nil
}

// CronCount is how many schedules of the tenant the cell has. Errors: what Redis said.
func (c *Cell) CronCount(ctx context.Context, tenant string) (int, error) {
	from, to := cronRange(tenant)
	n, err := c.runner.Do(ctx, "cron_count", c.client.B().Zlexcount().Key(c.layout.CronIndex()).Min(from).Max(to).Build()).AsInt64()
	if err != nil {
		return 0, fmt.Errorf("count schedules: %w", err)
	}
	return int(n), nil
}

// cronRange has all ids of a tenant, or of all with "".
func cronRange(tenant string) (from, to string) {
	if tenant == "" {
		return "-", "+"
	}
	return "[" + tenant + "/", "(" + tenant + "0" // which is what comes after the slash
}

func (c *Cell) cronList(ctx context.Context, from, to string, limit int) (page CronPage, err error) {
	l := c.layout
	reply, err := c.runner.Call(ctx, c.scripts["cron_list"], []string{l.Cron(), l.CronState(), l.CronIndex()},
		[]string{from, to, strconv.Itoa(limit), strconv.Itoa(cronListBytes)}).ToArray()
	if err != nil {
		return page, err
	}
	if len(reply) < 2 || len(reply)%3 != 2 {
		return page, fmt.Errorf("%d values, expected two and triples", len(reply))
	}
	if page.NowMS, err = intAt(reply, 0); err != nil {
		return page, err
	}
	text := make([]string, len(reply))
	for i := 1; i < len(reply); i++ {
		if text[i], err = reply[i].ToString(); err != nil {
			return page, err
		}
	}
	page.More = text[1] == "1"
	for i := 2; i < len(text); i += 3 {
		page.Records = append(page.Records, CronRecord{ID: text[i], Definition: text[i+1], State: text[i+2]})
	}
	return page, nil
}

// OfCron is the cell in which a schedule lives.
func (s *Set) OfCron(id string) *Cell { return s.cells[NodeCell(id, len(s.cells))] }

// onceStays is how long the marker of a job stays that nobody is going to enqueue again: a
// call that is late may be on its way.
const onceStays = time.Minute

// ForgetOnce drops the marker of a job that was enqueued under this Submission.Once, in a
// minute: nobody will enqueue it again. Errors: what Redis said.
func (s *Set) ForgetOnce(ctx context.Context, tenant, jobID, once string) error {
	c, err := s.ofJob(jobID)
	if err != nil {
		return err
	}
	cmd := c.client.B().Pexpire().Key(onceKey(c.layout, tenant, once)).Milliseconds(onceStays.Milliseconds()).Build()
	if err := c.runner.Do(ctx, "cron_forget", cmd).Error(); err != nil {
		return fmt.Errorf("forget the marker of job %s: %w", jobID, err)
	}
	return nil
}

// keyName is the key that names the job of a submission's idempotency key or Once; "" is none.
func (s *encodedSubmission) keyName(l Layout) string {
	switch {
	case s.Once != "":
		return onceKey(l, s.Tenant, s.Once)
	case s.Job.IdempotencyKey != "":
		return l.Idempotency(s.Tenant, s.Job.IdempotencyKey)
	default:
		return ""
	}
}

// onceKey is that of an idempotency key which no client can have.
func onceKey(l Layout, tenant, once string) string { return l.Idempotency(tenant, "\x00"+once) }

// CronCount is [Cell.CronCount] of all cells that answer. Errors: of one, where none did.
func (s *Set) CronCount(ctx context.Context, tenant string) (int, error) {
	counts := make([]int, len(s.cells))
	errs := s.each(func(c *Cell) (err error) {
		counts[c.cfg.Index], err = c.CronCount(ctx, tenant)
		return err
	})
	total := 0
	for i := range counts {
		total += counts[i]
	}
	if failed := byCell(errs); len(failed) == len(s.cells) {
		return 0, failed[0]
	}
	return total, nil
}

// CronList is [Cell.CronList] of all cells in one order; a page ends where a cell's part of
// it ends early. Errors: of one that did not answer, without which the page would have a gap.
func (s *Set) CronList(ctx context.Context, tenant, after string, limit int) (CronPage, error) {
	parts := make([]CronPage, len(s.cells))
	for _, err := range s.each(func(c *Cell) (err error) {
		parts[c.cfg.Index], err = c.CronList(ctx, tenant, after, limit)
		return err
	}) {
		if err != nil {
			return CronPage{}, err
		}
	}
	return mergeCron(parts, limit), nil
}

// mergeCron puts pages of cells, each in order, into one.
func mergeCron(parts []CronPage, limit int) (page CronPage) {
	end := "" // the least of what the cells with more to come have told; nothing behind it is sure
	for _, part := range parts {
		page.NowMS = max(page.NowMS, part.NowMS)
		page.Records = append(page.Records, part.Records...)
		if part.More {
			page.More = true
			if last := part.Records[len(part.Records)-1].ID; end == "" || last < end {
				end = last
			}
		}
	}
	slices.SortFunc(page.Records, func(a, b CronRecord) int { return strings.Compare(a.ID, b.ID) })
	for n, r := range page.Records {
		if n == limit || end != "" && r.ID > end {
			page.Records, page.More = page.Records[:n], true
			break
		}
	}
	return page
}
