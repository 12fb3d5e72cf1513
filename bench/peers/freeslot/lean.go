package main

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/internal/cell"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

const (
	leanPage  = 64
	leanDials = 64
	// leanLimit is how long nodes may be silent: lean ones send no heartbeats, so that what is
	// measured of Redis is jobs and nothing else.
	leanLimit = time.Hour
)

// leanNode is a small node, of which a process can have ten thousand: it has one connection of its
// own, on which it waits for jobs as a real one does, and shares the one for completions. It sends
// no heartbeats.
type leanNode struct {
	id    string
	epoch cell.Epoch
	cell  *cell.Cell
	conn  net.Conn
	in    *bufio.Reader
	jobs  sync.WaitGroup
}

// leanFiles is enough for the connections of 10,000 nodes.
const leanFiles = 11_000

func startLean(ctx context.Context, redisURL string, count, slots int) (func() error, error) {
	if _, err := measure.RaiseFiles(leanFiles); err != nil {
		return nil, err
	}
	u, err := url.Parse(redisURL)
	if err != nil {
		return nil, err
	}
	shared, err := redisclient.Commands(redisclient.Config{URL: redisURL, Name: "bench-lean"})
	if err != nil {
		return nil, err
	}
	nodes := make([]*leanNode, count)
	var readers sync.WaitGroup
	stop := func() error {
		for _, n := range nodes {
			if n != nil && n.conn != nil {
				_ = n.conn.Close() // ends its reader
			}
		}
		readers.Wait()
		for _, n := range nodes {
			if n != nil {
				n.stop()
			}
		}
		shared.Close()
		return nil
	}
	err = measure.InParallel(leanDials, count, func(i int) (err error) {
		n := &leanNode{id: nodeID(i), epoch: cell.NewEpoch()}
		nodes[i] = n
		if n.cell, err = cell.New(cell.Config{HeartbeatLimit: leanLimit}, shared, zap.NewNop(), nil); err != nil {
			return err
		}
		return n.start(ctx, u.Host, slots)
	})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	for _, n := range nodes {
		readers.Go(n.read)
	}
	return stop, nil
}

func (n *leanNode) start(ctx context.Context, addr string, slots int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, measure.StartLimit)
	defer cancel()
	if err := n.cell.Start(ctx); err != nil {
		return err
	}
	profile := freeslot.Node{ID: n.id, MaxConcurrency: slots, Services: []freeslot.Service{{Name: benchService}}}
	if _, err := n.cell.Register(ctx, profile, n.epoch); err != nil {
		return err
	}
	var d net.Dialer
	n.conn, err = d.DialContext(ctx, "tcp", addr)
	if err == nil {
		n.in = bufio.NewReaderSize(n.conn, 2<<10)
	}
	return err
}

func (n *leanNode) stop() {
	n.jobs.Wait()
	if n.cell != nil {
		ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
		defer cancel()
		_ = n.cell.Stop(ctx) // nothing is under way
	}
}

// read takes what is dispatched until the connection is closed.
func (n *leanNode) read() {
	key, last := n.cell.Layout().Dispatch(n.id), "0"
	for {
		read := measure.AppendCommand(nil, "XREAD", "COUNT", strconv.Itoa(leanPage), "BLOCK", "0", "STREAMS", key, last)
		if _, err := n.conn.Write(read); err != nil {
			return
		}
		reply, err := measure.ReadReply(n.in)
		if err != nil {
			return
		}
		for _, e := range entriesOf(reply) {
			last = e.id
			for _, job := range e.jobs {
				if at, ok := attemptOf(job); ok {
					stamp := load.Stamp()
					n.jobs.Go(func() { n.complete(at, stamp) })
				}
			}
		}
	}
}

func attemptOf(text string) (cell.Attempt, bool) {
	id, rest, _ := strings.Cut(text, " ")
	number, _, _ := strings.Cut(rest, " ")
	i, err := strconv.Atoi(number)
	return cell.Attempt{Job: id, N: i}, err == nil
}

func (n *leanNode) complete(at cell.Attempt, stamp string) {
	ctx, cancel := context.WithTimeout(context.Background(), measure.StopGrace)
	defer cancel()
	// What fails here is a job that does not end, which the submitter reports.
	_, _ = n.cell.Complete(ctx, cell.Completion{
		Node: n.id, Epoch: n.epoch, Attempt: at, State: freeslot.StateSucceeded, Result: []byte(`"` + stamp + `"`),
	})
}

// entry is one of a dispatch stream, with its fields j.
type entry struct {
	id   string
	jobs []string
}

// entriesOf reads the reply of XREAD of one stream: [[key, [[id, [field, value, ...]], ...]]].
func entriesOf(reply any) (out []entry) {
	streams, _ := reply.([]any)
	for _, s := range streams {
		pair, _ := s.([]any)
		if len(pair) != 2 {
			continue
		}
		entries, _ := pair[1].([]any)
		for _, e := range entries {
			parts, _ := e.([]any)
			if len(parts) != 2 {
				continue
			}
			id, _ := parts[0].(string)
			values, _ := parts[1].([]any)
			one := entry{id: id}
			for i := 0; i+1 < len(values); i += 2 {
				if job, ok := values[i+1].(string); ok && values[i] == "j" {
					one.jobs = append(one.jobs, job)
				}
			}
			out = append(out, one)
		}
	}
	return out
}
