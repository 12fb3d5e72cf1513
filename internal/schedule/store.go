package schedule

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

//go:embed script
var sources embed.FS

var scripts = script.MustLoad(sources)

// listBytes is about the most bytes in one page of schedules.
const listBytes = 4 << 20

// idOf returns the id of a schedule. Tenants and names contain no slash.
func idOf(tenant, name string) string { return tenant + "/" + name }

// splitID is the reverse of idOf; false if id is not such an id.
func splitID(id string) (tenant, name string, ok bool) {
	tenant, name, ok = strings.Cut(id, "/")
	return tenant, name, ok && freeslot.ValidateName("tenant", tenant) == nil && freeslot.ValidateName("name", name) == nil
}

// dueTime is a schedule and the time at which a replica must look at it, by Redis' clock.
type dueTime struct {
	id   string
	atMS int64
}

// record is a schedule as Redis has it, no matter who wrote it.
type record struct {
	id string
	// definition and state are empty if there is no such schedule.
	definition, state string
}

// write is a change of a schedule in Redis.
type write struct {
	id string
	// seen is the state that the change was computed from; "" means that there was none.
	seen string
	// state is the new state, different from all before; "" deletes the schedule.
	state string
	// definition is the new definition; "" keeps the present one.
	definition string
	// dueMS is the time at which a replica must look at it; 0 means never.
	dueMS int64
	// confirmed is true for a change by a client. At the replicated level it counts once Redis'
	// replicas have it. Other changes are simply made again if they are lost.
	confirmed bool
}

// page is one page of a store's schedules.
type page struct {
	nowMS   int64 // Redis' clock
	records []record
	more    bool
}

// cellStore keeps the schedules of one cell. The errors of its methods come from Redis.
type cellStore struct {
	index  int
	runner *script.Runner
	keys   keys
}

// store keeps schedules in all cells of a system. It asks them at the same time.
type store []*cellStore

func newStore(runners []*script.Runner) store {
	s := make(store, len(runners))
	for i, runner := range runners {
		runner.Add(scripts)
		s[i] = &cellStore{index: i, runner: runner, keys: keysOf(runner.Layout())}
	}
	return s
}

// of returns the cell in which a schedule lives.
func (s store) of(id string) *cellStore { return s[script.CellOf(id, len(s))] }

// due returns the schedules that a replica must look at by now or within ahead, at most limit,
// earliest first. nowMS is Redis' clock.
func (c *cellStore) due(ctx context.Context, ahead time.Duration, limit int) (due []dueTime, nowMS int64, err error) {
	args := []string{strconv.FormatInt(ahead.Milliseconds(), 10), strconv.Itoa(limit)}
	reply, err := c.runner.Call(ctx, scripts["cron_due"], []string{c.keys.due}, args).ToArray()
	if err == nil {
		due, nowMS, err = decodeDue(reply)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("look for due schedules: %w", err)
	}
	return due, nowMS, nil
}

func decodeDue(reply []rueidis.RedisMessage) (due []dueTime, nowMS int64, err error) {
	if len(reply)%2 != 1 {
		return nil, 0, fmt.Errorf("%d values, expected one and pairs", len(reply))
	}
	if nowMS, err = reply[0].AsInt64(); err != nil {
		return nil, 0, err
	}
	for i := 1; i < len(reply); i += 2 {
		id, err := reply[i].ToString()
		if err != nil {
			return nil, 0, err
		}
		at, err := reply[i+1].AsFloat64()
		if err != nil {
			return nil, 0, err
		}
		due = append(due, dueTime{id: id, atMS: int64(at)})
	}
	return due, nowMS, nil
}

// write makes a change and returns true. It returns false and changes nothing if the schedule has
// another state than the one seen. It can be repeated without harm. After an error, including
// script.ErrNotReplicated, the change may have been made.
func (c *cellStore) write(ctx context.Context, w write) (bool, error) {
	due := ""
	if w.dueMS > 0 {
		due = strconv.FormatInt(w.dueMS, 10)
	}
	keys := []string{c.keys.definitions, c.keys.states, c.keys.index, c.keys.due}
	args := []string{w.id, w.seen, w.state, w.definition, due}
	call := c.runner.Call
	if w.confirmed {
		call = func(ctx context.Context, s *script.Script, keys, args []string) rueidis.RedisResult {
			return c.runner.CallConfirmed(ctx, s, keys, args, isZero)
		}
	}
	made, err := call(ctx, scripts["cron_write"], keys, args).AsInt64()
	if err != nil {
		return false, fmt.Errorf("change schedule %s: %w", w.id, err)
	}
	return made == 1, nil
}

// isZero reports whether cron_write refused the change.
func isZero(r rueidis.RedisResult) bool {
	n, err := r.AsInt64()
	return err == nil && n == 0
}

// read reads one schedule. nowMS is Redis' clock.
func (c *cellStore) read(ctx context.Context, id string) (r record, nowMS int64, err error) {
	page, err := c.page(ctx, id, "", 0)
	if err == nil && len(page.records) != 1 {
		err = fmt.Errorf("%d records, expected one", len(page.records))
	}
	if err != nil {
		return record{}, 0, fmt.Errorf("read schedule %s: %w", id, err)
	}
	return page.records[0], page.nowMS, nil
}

// list reads the schedules of a tenant ("" means all) whose ids are greater than after, in the
// order of their ids. It returns at most limit, and fewer if they are large.
func (c *cellStore) list(ctx context.Context, tenant, after string, limit int) (page, error) {
	from, to := rangeOf(tenant)
	if after > strings.TrimPrefix(from, "[") || after != "" && tenant == "" {
		from = "(" + after
	}
	found, err := c.page(ctx, from, to, limit)
	if err != nil {
		return page{}, fmt.Errorf("list schedules: %w", err)
	}
	return found, nil
}

// used returns what the schedules of the tenant take in the cell.
func (c *cellStore) used(ctx context.Context, tenant string) (Bounds, error) {
	from, to := rangeOf(tenant)
	reply, err := c.runner.Call(
		ctx, scripts["cron_used"], []string{c.keys.definitions, c.keys.index}, []string{from, to},
	).AsIntSlice()
	if err == nil && len(reply) != 2 {
		err = fmt.Errorf("%d values, expected two", len(reply))
	}
	if err != nil {
		return Bounds{}, fmt.Errorf("count schedules: %w", err)
	}
	return Bounds{Schedules: int(reply[0]), Bytes: reply[1]}, nil
}

// rangeOf returns the range of all ids of a tenant; "" means all tenants.
func rangeOf(tenant string) (from, to string) {
	if tenant == "" {
		return "-", "+"
	}
	return "[" + tenant + "/", "(" + tenant + "0" // '0' follows the slash
}

func (c *cellStore) page(ctx context.Context, from, to string, limit int) (p page, err error) {
	keys := []string{c.keys.definitions, c.keys.states, c.keys.index}
	args := []string{from, to, strconv.Itoa(limit), strconv.Itoa(listBytes)}
	text, err := c.runner.Call(ctx, scripts["cron_list"], keys, args).ToArray()
	if err != nil {
		return p, err
	}
	return decodePage(text)
}

func decodePage(reply []rueidis.RedisMessage) (p page, err error) {
	if len(reply)%3 != 2 {
		return p, fmt.Errorf("%d values, expected two and triples", len(reply))
	}
	if p.nowMS, err = reply[0].AsInt64(); err != nil {
		return p, err
	}
	text := make([]string, len(reply))
	for i := 1; i < len(reply); i++ {
		if text[i], err = reply[i].ToString(); err != nil {
			return p, err
		}
	}
	p.more = text[1] == "1"
	for r := range slices.Chunk(text[2:], 3) {
		p.records = append(p.records, record{id: r[0], definition: r[1], state: r[2]})
	}
	return p, nil
}

// used adds up [cellStore.used] for all cells that answer. It returns an error if no cell does.
func (s store) used(ctx context.Context, tenant string) (total Bounds, err error) {
	parts, errs := each(s, func(c *cellStore) (Bounds, error) { return c.used(ctx, tenant) })
	failed := 0
	for i, part := range parts {
		total.Schedules, total.Bytes = total.Schedules+part.Schedules, total.Bytes+part.Bytes
		if errs[i] != nil {
			failed++
		}
	}
	if failed == len(s) {
		return Bounds{}, errs[0]
	}
	return total, nil
}

// list merges [cellStore.list] of all cells into one order. The page ends where the first cell's
// part ends early. It returns an error if a cell does not answer, because the page would have a
// gap.
func (s store) list(ctx context.Context, tenant, after string, limit int) (page, error) {
	parts, errs := each(s, func(c *cellStore) (page, error) { return c.list(ctx, tenant, after, limit) })
	if err := cmp.Or(errs...); err != nil {
		return page{}, err
	}
	return merge(parts, limit), nil
}

// each calls f for every cell at the same time. The results are in the order of the cells.
func each[T any](s store, f func(*cellStore) (T, error)) ([]T, []error) {
	values, errs := make([]T, len(s)), make([]error, len(s))
	var calls sync.WaitGroup
	for i, c := range s {
		calls.Go(func() { values[i], errs[i] = f(c) })
	}
	calls.Wait()
	return values, errs
}

// merge joins the pages of cells, each in order, into one.
func merge(parts []page, limit int) (all page) {
	end := "" // the least last id of a cell with more to come; ids after it are uncertain
	for _, part := range parts {
		all.nowMS = max(all.nowMS, part.nowMS)
		all.records = append(all.records, part.records...)
		if part.more {
			all.more = true
			if last := part.records[len(part.records)-1].id; end == "" || last < end {
				end = last
			}
		}
	}
	slices.SortFunc(all.records, func(a, b record) int { return strings.Compare(a.id, b.id) })
	for n, r := range all.records {
		if n == limit || end != "" && r.id > end {
			all.records, all.more = all.records[:n], true
			break
		}
	}
	return all
}
