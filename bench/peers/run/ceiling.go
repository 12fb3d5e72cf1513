package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/peers/result"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
)

const (
	ceilingJobs  = 60_000
	ceilingSlots = 1 << 16
	// ceilingConns and ceilingDepth are how redis-benchmark is told to call, and how calls are sent here.
	ceilingConns = 8
	ceilingDepth = 16
	ceilingNode  = "bench-1"
	ceilingBatch = 32
	// randomDigits is what redis-benchmark writes in place of randomMark.
	randomMark   = "__rand_int__"
	randomDigits = len(randomMark)
)

// ceilings measures how many calls of the submit and the complete script Redis takes, if nothing else is to be
// done. What fails is noted and not fatal.
func (b *bench) ceilings(ctx context.Context, l *result.Limit) {
	for _, c := range []struct {
		name, how string
		jobs      int
		run       func(context.Context, *ceilingRig) (rate float64, jobs int, err error)
	}{
		{"submit.lua", "redis-benchmark", 1, func(ctx context.Context, r *ceilingRig) (float64, int, error) { return r.benchmark(ctx) }},
		{"submit.lua", "its calls sent ahead of the answers", 1, func(ctx context.Context, r *ceilingRig) (float64, int, error) { return r.submits(ctx, 1) }},
		{"submit.lua", "its calls sent ahead of the answers", ceilingBatch, func(ctx context.Context, r *ceilingRig) (float64, int, error) { return r.submits(ctx, ceilingBatch) }},
		{"complete.lua", "its calls sent ahead of the answers", 1, func(ctx context.Context, r *ceilingRig) (float64, int, error) { return r.completes(ctx, 1) }},
		{"complete.lua", "its calls sent ahead of the answers", ceilingBatch, func(ctx context.Context, r *ceilingRig) (float64, int, error) { return r.completes(ctx, ceilingBatch) }},
	} {
		out := result.Ceiling{Name: c.name, How: c.how, Jobs: c.jobs}
		rate, jobs, err := withCeilingRig(ctx, c.run)
		if err != nil {
			out.Error = err.Error()
		} else {
			out.Jobs = jobs
		}
		out.CallsPerSecond = measure.Rounded(rate)
		l.Ceilings = append(l.Ceilings, out)
		b.say("ceiling of %s (%s), %s a call: %s calls/s %s", c.name, c.how, measure.Plural(out.Jobs, "job"), measure.Thousands(rate), out.Error)
	}
}

// ceilingRig is a Redis with one node of many slots.
type ceilingRig struct {
	redis  *redisserver.Server
	client rueidis.Client
	cell   *cell.Cell
	epoch  cell.Epoch
	nodes  []string
}

func withCeilingRig(ctx context.Context, run func(context.Context, *ceilingRig) (float64, int, error)) (rate float64, jobs int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	r := &ceilingRig{redis: redisserver.New(redisserver.Config{}), epoch: cell.NewEpoch(), nodes: []string{ceilingNode}}
	if err := r.redis.Start(ctx); err != nil {
		return 0, 0, err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
		defer cancel()
		err = errors.Join(err, r.redis.Stop(stop))
	}()
	if r.client, err = redisclient.Commands(redisclient.Config{URL: r.redis.URL(), Name: "bench-ceiling"}); err != nil {
		return 0, 0, err
	}
	defer r.client.Close()
	if r.cell, err = cell.New(cell.Config{HeartbeatLimit: time.Hour}, r.client, zap.NewNop(), nil); err != nil {
		return 0, 0, err
	}
	if err := r.cell.Start(ctx); err != nil {
		return 0, 0, err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
		defer cancel()
		_ = r.cell.Stop(stop) // nothing is under way
	}()
	node := freeslot.Node{ID: ceilingNode, MaxConcurrency: ceilingSlots, Services: []freeslot.Service{{Name: "noop"}}}
	if _, err := r.cell.Register(ctx, node, r.epoch); err != nil {
		return 0, 0, err
	}
	return run(ctx, r)
}

// submit places count jobs side by side, so that a call takes many, and returns their ids.
func (r *ceilingRig) submit(ctx context.Context, count int) ([]string, error) {
	ids, errs := make([]string, count), make([]error, count)
	var all sync.WaitGroup
	for i := range count {
		ids[i] = cell.NewJobID(0)
		all.Go(func() {
			p, err := r.cell.Submit(ctx, cell.Submission{
				JobID: ids[i], Tenant: "bench", Job: &freeslot.Job{Service: "noop", Payload: load.Payload()}, Candidates: r.nodes,
			})
			if err == nil && !p.Assigned {
				err = errors.New("not assigned")
			}
			errs[i] = err
		})
	}
	all.Wait()
	return ids, errors.Join(errs...)
}

func (r *ceilingRig) complete(ctx context.Context, ids []string) error {
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			_, errs[i] = r.cell.Complete(ctx, cell.Completion{
				Node: ceilingNode, Epoch: r.epoch, Attempt: cell.Attempt{Job: id, N: 1}, State: freeslot.StateSucceeded, Result: []byte(`"` + load.Stamp() + `"`),
			})
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// mentions is how many of the ids a call is about.
func mentions(args, ids []string) (n int) {
	all := strings.Join(args, " ")
	for _, id := range ids {
		if strings.Contains(all, id) {
			n++
		}
	}
	return n
}

// monitored reads the arguments of a line of MONITOR: +1700000000.123456 [0 127.0.0.1:1] "get" "k\x00". Calls made
// by scripts are left out.
func monitored(line string) (args []string) {
	_, rest, ok := strings.Cut(line, "] ")
	if !ok || strings.Contains(line[:len(line)-len(rest)], " lua") {
		return nil
	}
	var b strings.Builder
	inside := false
	for i := 0; i < len(rest); i++ {
		c := rest[i]
		switch {
		case !inside && c == '"':
			inside = true
		case !inside:
		case c == '"':
			inside = false
			args = append(args, b.String())
			b.Reset()
		case c == '\\' && i+3 < len(rest) && rest[i+1] == 'x':
			v, err := strconv.ParseUint(rest[i+2:i+4], 16, 8)
			if err != nil {
				return nil
			}
			b.WriteByte(byte(v))
			i += 3
		case c == '\\' && i+1 < len(rest):
			i++
			b.WriteByte(unescaped(rest[i]))
		default:
			b.WriteByte(c)
		}
	}
	return args
}

func unescaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'a':
		return '\a'
	case 'b':
		return '\b'
	}
	return c
}

// benchmark has redis-benchmark call the submit script, each time for another job.
func (r *ceilingRig) benchmark(ctx context.Context) (float64, int, error) {
	program, err := exec.LookPath("redis-benchmark")
	if err != nil {
		return 0, 0, err
	}
	call, ids, err := r.captureOf(ctx, 1, func() ([]string, error) { return r.submit(ctx, 1) })
	if err != nil {
		return 0, 0, err
	}
	id := ids[0]
	args := []string{
		"-h", "127.0.0.1", "-p", strconv.Itoa(r.redis.Port()), "-c", strconv.Itoa(ceilingConns), "-P", strconv.Itoa(ceilingDepth),
		"-n", strconv.Itoa(ceilingJobs), "-r", "2000000000", "--csv",
	}
	for _, a := range call {
		if strings.ContainsRune(a, 0) {
			return 0, 0, errors.New("the call has bytes that no command line can carry")
		}
		args = append(args, strings.ReplaceAll(a, id, id[:len(id)-randomDigits]+randomMark))
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, 0, fmt.Errorf("redis-benchmark: %w: %s", err, lastLine(stderr.Bytes()))
	}
	if jobs, err := r.count(ctx); err != nil || jobs < ceilingJobs*9/10 {
		return 0, 0, fmt.Errorf("redis-benchmark made %d jobs, expected %d: %w", jobs, ceilingJobs, err)
	}
	// "test","rps",... and a line with as many values; the first is the command line, which may hold commas.
	fields := strings.Split(lastLine(out), `","`)
	for _, f := range fields[1:] {
		if v, err := strconv.ParseFloat(strings.Trim(f, `"`), 64); err == nil && v > 100 {
			return v, 1, nil
		}
	}
	return 0, 0, fmt.Errorf("redis-benchmark said %q", lastLine(out))
}

// count is how many keys there are, one a job and a few more.
func (r *ceilingRig) count(ctx context.Context) (int64, error) {
	return r.client.Do(ctx, r.client.B().Dbsize().Build()).AsInt64()
}

// submits sends the captured call of a batch again and again for other jobs.
func (r *ceilingRig) submits(ctx context.Context, batch int) (float64, int, error) {
	call, ids, err := r.captureOf(ctx, batch, func() ([]string, error) { return r.submit(ctx, batch) })
	if err != nil {
		return 0, 0, err
	}
	var calls [][]byte
	for range (ceilingJobs - batch) / len(ids) {
		calls = append(calls, encode(call, ids, nil))
	}
	rate, err := r.send(calls)
	return rate, len(ids), err
}

func (r *ceilingRig) completes(ctx context.Context, batch int) (float64, int, error) {
	const chunk = 4096
	var ids []string
	for len(ids) < ceilingJobs {
		more, err := r.submit(ctx, min(chunk, ceilingJobs-len(ids)))
		if err != nil {
			return 0, 0, err
		}
		ids = append(ids, more...)
	}
	first := ids[:2*batch]
	ids = ids[2*batch:]
	call, of, err := r.captureOf(ctx, batch, func() ([]string, error) { return first, r.complete(ctx, first[:batch]) })
	if err != nil {
		return 0, 0, err
	}
	var calls [][]byte
	for len(ids) >= len(of) {
		calls = append(calls, encode(call, of, ids[:len(of)]))
		ids = ids[len(of):]
	}
	rate, err := r.send(calls)
	return rate, len(of), err
}

// captureOf returns a call and the jobs that it is about, in whatever order. Calls gather what comes while others
// are under way, so a call of a batch may be about fewer.
func (r *ceilingRig) captureOf(ctx context.Context, batch int, do func() ([]string, error)) ([]string, []string, error) {
	var ids []string
	var call []string
	var err error
	// The ids are known only afterwards: everything is looked at again then.
	all, err := r.captureAll(ctx, func() error {
		ids, err = do()
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for _, c := range all {
		if mentions(c, ids) > mentions(call, ids) {
			call = c
		}
	}
	if call == nil {
		return nil, nil, errors.New("no call was seen")
	}
	text := strings.Join(call, " ")
	var of []string
	for _, id := range ids {
		if strings.Contains(text, id) {
			of = append(of, id)
		}
	}
	if batch > 1 && len(of) < 2 {
		return nil, nil, errors.New("no call took more than one job")
	}
	return call, of, nil
}

// captureAll returns all calls of scripts that do makes.
func (r *ceilingRig) captureAll(ctx context.Context, do func() error) (calls [][]string, err error) {
	conn, err := net.Dial("tcp", r.redis.Addr())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 1<<20)
	if _, err := io.WriteString(conn, "MONITOR\r\n"); err != nil {
		return nil, err
	}
	if _, err := in.ReadString('\n'); err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	if err := r.client.Do(ctx, r.client.B().Echo().Message("end of capture").Build()).Error(); err != nil {
		return nil, err
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		args := monitored(line)
		switch {
		case len(args) == 2 && strings.EqualFold(args[0], "echo"):
			return calls, nil
		case len(args) > 2 && strings.EqualFold(args[0], "evalsha"):
			calls = append(calls, args)
		}
	}
}

// encode writes a call for other jobs: new ones where others is nil.
func encode(call, ids, others []string) []byte {
	pairs := make([]string, 0, 2*len(ids))
	for i, id := range ids {
		other := cell.NewJobID(0)
		if others != nil {
			other = others[i]
		}
		pairs = append(pairs, id, other)
	}
	replace := strings.NewReplacer(pairs...)
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(call))
	for _, a := range call {
		a = replace.Replace(a)
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.Bytes()
}

// send sends the calls over several connections, a few ahead of the answers, and returns how many a second
// were answered. What Redis refuses is an error.
func (r *ceilingRig) send(calls [][]byte) (float64, error) {
	errs := make([]error, ceilingConns)
	var senders sync.WaitGroup
	begin := time.Now()
	for c := range ceilingConns {
		var own [][]byte
		for i := c; i < len(calls); i += ceilingConns {
			own = append(own, calls[i])
		}
		senders.Go(func() { errs[c] = sendAhead(r.redis.Addr(), own) })
	}
	senders.Wait()
	took := time.Since(begin)
	return float64(len(calls)) / took.Seconds(), errors.Join(errs...)
}

func sendAhead(addr string, calls [][]byte) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 64<<10)
	out := bufio.NewWriterSize(conn, 256<<10)
	for len(calls) > 0 {
		n := min(len(calls), ceilingDepth)
		for _, c := range calls[:n] {
			if _, err := out.Write(c); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
		for range n {
			if err := skipReply(in); err != nil {
				return err
			}
		}
		calls = calls[n:]
	}
	return nil
}

// skipReply reads one reply of RESP2.
func skipReply(in *bufio.Reader) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	if line[0] == '-' {
		return errors.New(strings.TrimSpace(line[1:]))
	}
	if line[0] != '$' && line[0] != '*' {
		return nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	if err != nil || n < 0 {
		return err
	}
	if line[0] == '$' {
		_, err := in.Discard(n + 2)
		return err
	}
	for range n {
		if err := skipReply(in); err != nil {
			return err
		}
	}
	return nil
}
