package registry

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/script"
)

const (
	// lookServices is the largest number of services in one look, pageSize of instances in a page.
	lookServices = 256
	pageSize     = 200
	// lookPages bounds how often one look asks for more late ids.
	lookPages = 1000
)

// lookItem is one service to look at.
type lookItem struct {
	service string
	timeout time.Duration
	skip    int // the number of late ids to leave out
}

// looked is what a look found out about one service.
type looked struct {
	head head
	// late holds the ids without a heartbeat for the timeout, or for twice the longest interval.
	late  []string
	count int // of late ids
	// history identifies the server's data, empty if it was not asked for. at is Redis' time in ms.
	history string
	at      int64
}

// lookOnce runs look.lua. All services have one tag.
func (c *conn) lookOnce(ctx context.Context, history bool, items []lookItem) ([]looked, error) {
	runner, k := c.of(items[0].service)
	keys, args := make([]string, 0, 2*len(items)), []string{"0"}
	if history {
		args[0] = "1"
	}
	for _, it := range items {
		keys = append(keys, k.record(it.service), k.heartbeats(it.service))
		args = append(args, milliseconds(it.timeout), strconv.Itoa(it.skip))
	}
	values, err := runner.Call(ctx, scripts["look"], keys, args).ToArray()
	if err != nil {
		return nil, fmt.Errorf("look: %w", c.explain(err, script.RoleRegistry))
	}
	out, err := readLook(values, len(items))
	if err != nil {
		return nil, fmt.Errorf("look: answer of redis: %w", err)
	}
	return out, nil
}

func readLook(values []rueidis.RedisMessage, services int) ([]looked, error) {
	if len(values) != 2+services {
		return nil, fmt.Errorf("%d values for %d services", len(values), services)
	}
	r := script.Reply{Values: values}
	history, at := r.Text(), r.Number()
	out := make([]looked, services)
	for i := range out {
		v, _ := r.Next()
		if r.Err != nil {
			return nil, r.Err
		}
		parts, err := v.ToArray()
		if err == nil && len(parts) < 2 {
			err = errors.New("a service has less than two parts")
		}
		if err != nil {
			return nil, err
		}
		one := looked{history: history, at: at, late: make([]string, len(parts)-2)}
		if one.head, err = readHead(parts[0]); err != nil {
			return nil, err
		}
		count, err := parts[1].AsInt64()
		if err != nil {
			return nil, err
		}
		one.count = int(count)
		for j, id := range parts[2:] {
			if one.late[j], err = id.ToString(); err != nil {
				return nil, err
			}
		}
		out[i] = one
	}
	return out, nil
}

// poll reads up to 256 services of one tag, and repeats that until it has all late ids.
func (c *conn) poll(ctx context.Context, history bool, items []lookItem) ([]looked, error) {
	out, err := c.lookOnce(ctx, history, items)
	if err != nil {
		return nil, err
	}
	for range lookPages {
		var rest []lookItem
		var of []int
		for i := range out {
			if n := len(out[i].late); n < out[i].count {
				rest, of = append(rest, lookItem{service: items[i].service, timeout: items[i].timeout, skip: n}), append(of, i)
			}
		}
		if len(rest) == 0 {
			break
		}
		more, err := c.lookOnce(ctx, false, rest)
		if err != nil {
			return nil, err
		}
		for j, i := range of {
			if len(more[j].late) == 0 && more[j].count <= len(out[i].late) {
				out[i].count = len(out[i].late) // some have sent a heartbeat meanwhile
				continue
			}
			out[i].late, out[i].count = append(out[i].late, more[j].late...), more[j].count
		}
	}
	return out, nil
}

// page is an answer of load or changes.
type page struct {
	head    head
	entries []entry
	// cursor comes from load: "0" at the end. more comes from changes. reload is true if the
	// changes do not reach back that far.
	cursor       string
	more, reload bool
}

// firstPage is the size of the first page of a load, since nothing is known of the instances yet.
// Later pages have about pageBytes, and at most pageSize instances.
const (
	firstPage = 20
	pageBytes = 256 << 10
)

// cutCursor splits the cursor of a page into the cursor of ZSCAN and the number of instances to
// read. "0" is the beginning.
func cutCursor(cursor string) (scan string, size int, ok bool) {
	scan, text, sized := strings.Cut(cursor, ".")
	if _, err := strconv.ParseUint(scan, 10, 64); err != nil {
		return "", 0, false
	}
	if !sized {
		return scan, firstPage, true
	}
	size, err := strconv.Atoi(text)
	return scan, size, err == nil && size > 0 && size <= pageSize
}

// load runs load.lua. The cursor says how large the next page is: Redis answers no one else while
// it reads one.
func (c *conn) load(ctx context.Context, service, cursor string) (page, error) {
	scan, size, ok := cutCursor(cursor)
	if !ok {
		return page{}, fmt.Errorf("load service %s: cursor %q", service, cursor)
	}
	runner, k := c.of(service)
	values, err := runner.Call(ctx, scripts["load"],
		[]string{k.record(service), k.heartbeats(service), k.overrides(service)},
		[]string{scan, strconv.Itoa(size), k.instance(service, "")}).ToArray()
	if err != nil {
		return page{}, fmt.Errorf("load service %s: %w", service, c.explain(err, script.RoleRegistry))
	}
	p, err := readLoad(values)
	if err != nil {
		return page{}, fmt.Errorf("load service %s: answer of redis: %w", service, err)
	}
	if p.cursor != "0" {
		p.cursor += "." + strconv.Itoa(nextPage(p.entries))
	}
	return p, nil
}

// nextPage returns how many instances as large as these make up pageBytes.
func nextPage(entries []entry) int {
	bytes := 0
	for i := range entries {
		bytes += entries[i].bytes()
	}
	if bytes == 0 {
		return firstPage
	}
	return max(1, min(pageSize, pageBytes*len(entries)/bytes))
}

func readLoad(values []rueidis.RedisMessage) (p page, err error) {
	r := script.Reply{Values: values}
	v, ok := r.Next()
	if !ok {
		return p, r.Err
	}
	if p.head, err = readHead(v); err != nil {
		return p, err
	}
	if p.cursor = r.Text(); r.Err != nil {
		return p, r.Err
	}
	p.entries, err = readEntries(r.Values)
	return p, err
}

// changed runs changes.lua.
func (c *conn) changed(ctx context.Context, service string, since int64, birth string) (page, error) {
	runner, k := c.of(service)
	values, err := runner.Call(ctx, scripts["changes"],
		[]string{k.record(service), k.changes(service), k.overrides(service), k.heartbeats(service)},
		[]string{strconv.FormatInt(since, 10), birth, k.instance(service, ""), strconv.Itoa(pageSize)}).ToArray()
	if err != nil {
		return page{}, fmt.Errorf("changes of service %s: %w", service, c.explain(err, script.RoleRegistry))
	}
	p, err := readChanges(values)
	if err != nil {
		return page{}, fmt.Errorf("changes of service %s: answer of redis: %w", service, err)
	}
	return p, nil
}

func readChanges(values []rueidis.RedisMessage) (p page, err error) {
	r := script.Reply{Values: values}
	code := r.Number()
	v, ok := r.Next()
	if !ok {
		return p, r.Err
	}
	if p.head, err = readHead(v); err != nil {
		return p, err
	}
	switch code {
	case 1:
		p.more = r.Number() == 1
	case 2:
		p.reload = true
	default:
		return p, fmt.Errorf("code %d is unknown", code)
	}
	if r.Err != nil {
		return p, r.Err
	}
	if p.entries, err = readEntries(r.Values); err == nil && p.more && len(p.entries) == 0 {
		err = errors.New("a page without entries has a next one")
	}
	return p, err
}

func readEntries(values []rueidis.RedisMessage) ([]entry, error) {
	out := make([]entry, len(values))
	for i, v := range values {
		var err error
		if out[i], err = readEntry(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}
