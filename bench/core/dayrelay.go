package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/freeslot/freeslot/bench/load"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

const (
	relayMode     = "core-relay"
	relaySessions = 4
	// relayEvents and relayReplies stand for the channel of node events and the stream of results.
	relayEvents, relayReplies = "relay:events", "relay:replies"
	// relayKept bounds the stream, and relayPage is how much of it a read takes.
	relayKept, relayPage = "1000", "64"
)

// relay is a program that makes the socket calls of a replica for each job, and does nothing else:
// the least that this machine lets a replica spend. It takes a line from a client, makes one call to
// Redis and tells the client; hears an event; reads the result from a stream and passes it on. By
// strace a replica makes as many reads and writes a job.
type relay struct {
	calls, results, events net.Conn
	clients                []net.Conn

	mu sync.Mutex // guards waiting, whose order is that of the calls
	// waiting are the clients of calls under way, the oldest first.
	waiting []int
}

// runRelayProgram answers any question with the address at which clients connect.
func runRelayProgram(_ context.Context, arg []byte, serve func(func([]byte) any)) {
	redis := tool.Decode[string](arg)
	var r relay
	for _, conn := range []*net.Conn{&r.calls, &r.results, &r.events} {
		*conn = tool.Must(net.Dial("tcp", redis))
		defer (*conn).Close()
	}
	l := tool.Must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	go r.accept(l) // the process ends with its input
	serve(func([]byte) any { return l.Addr().String() })
}

// accept waits for all clients before it serves any.
func (r *relay) accept(l net.Listener) {
	for range relaySessions {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		r.clients = append(r.clients, conn)
	}
	go r.readCalls()
	go r.readResults()
	go r.readEvents()
	for i := range r.clients {
		go r.readClient(i)
	}
}

func (r *relay) readClient(i int) {
	in := bufio.NewReader(r.clients[i])
	var call []byte
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		call = measure.AppendCommand(call[:0], "PUBLISH", relayEvents, string(line))
		r.mu.Lock()
		r.waiting = append(r.waiting, i)
		_, err = r.calls.Write(call)
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// readCalls tells clients that their jobs are assigned.
func (r *relay) readCalls() {
	in := bufio.NewReader(r.calls)
	for {
		if _, err := measure.ReadReply(in); err != nil {
			return
		}
		r.mu.Lock()
		client := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.mu.Unlock()
		_, _ = r.clients[client].Write([]byte("assigned\n")) // its reader sees the error
	}
}

// readResults passes results on: each entry has the client's number and the result.
func (r *relay) readResults() {
	in, last := bufio.NewReader(r.results), "$"
	for {
		read := measure.AppendCommand(nil, "XREAD", "COUNT", relayPage, "BLOCK", "0", "STREAMS", relayReplies, last)
		if _, err := r.results.Write(read); err != nil {
			return
		}
		reply, err := measure.ReadReply(in)
		if err != nil {
			return
		}
		for _, stream := range reply.([]any) {
			for _, e := range stream.([]any)[1].([]any) {
				entry := e.([]any)
				last = entry[0].(string)
				values := entry[1].([]any)
				client, _ := strconv.Atoi(values[0].(string))
				_, _ = io.WriteString(r.clients[client], values[1].(string)+"\n") // its reader sees the error
			}
		}
	}
}

func (r *relay) readEvents() {
	if _, err := r.events.Write(measure.AppendCommand(nil, "SUBSCRIBE", relayEvents)); err != nil {
		return
	}
	in := bufio.NewReader(r.events)
	for {
		if _, err := measure.ReadReply(in); err != nil {
			return
		}
	}
}

// relaying is a relay under way, with its clients; this tool is both client and worker.
type relaying struct {
	redis    *system.Redis
	child    *measure.Child
	conns    []net.Conn
	readers  sync.WaitGroup
	returned chan error // an answer for each job
}

func (d *day) startRelay(ctx context.Context) *relaying {
	d.Say("A bare relay is the machine's floor: for each job it reads a line of %d bytes from a client, calls Redis, answers, "+
		"receives an event and a result, and passes the result on, by %d connections of clients and 3 to Redis. It does nothing else. "+
		"It and the replica get %s jobs/s in single frames.", load.PayloadBytes, relaySessions, measure.Thousands(calmRate))
	r := &relaying{redis: d.StartRedis(ctx), returned: make(chan error, 1<<16)}
	err := tool.Try(func() {
		r.child = tool.StartChild(ctx, "relay", relayMode, r.redis.Addr())
		addr := tool.Ask[string](ctx, r.child, 0, "address")
		for i := range relaySessions {
			conn := tool.Must(net.Dial("tcp", addr))
			r.conns = append(r.conns, conn)
			r.readers.Go(func() { r.read(ctx, i, conn) })
		}
	})
	if err != nil {
		tool.Check(errors.Join(err, r.stop()))
	}
	return r
}

// read does what a worker does when a job is assigned, and counts results.
func (r *relaying) read(ctx context.Context, client int, conn net.Conn) {
	c := r.redis.Client
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if lines.Text() != "assigned" {
			r.returned <- nil
			continue
		}
		end := c.B().Xadd().Key(relayReplies).Maxlen().Almost().Threshold(relayKept).Id("*").
			FieldValue().FieldValue(strconv.Itoa(client), load.Stamp()).Build()
		if err := c.Do(ctx, end).Error(); err != nil {
			r.returned <- err
		}
	}
}

// run has jobs due at a rate, and returns the relay's microseconds of processor time and its thread
// switches, both a job.
func (r *relaying) run(ctx context.Context, rate float64, window time.Duration) (us, switches float64) {
	ctx, cancel := context.WithTimeout(ctx, window+measure.StartLimit)
	defer cancel()
	pace := tool.Must(measure.NewPacer(ctx))
	defer pace.Close()
	m := tool.Must(system.NewMeter(ctx, nil, r.child.PID()))
	before := tool.Must(measure.Switches(r.child.PID()))
	line := append(bytes.Repeat([]byte("x"), load.PayloadBytes), '\n')
	jobs, begin := int(rate*window.Seconds()), time.Now()
	for i := range jobs {
		tool.Check(pace.Wait(ctx, begin.Add(time.Duration(float64(i)/rate*float64(time.Second)))))
		tool.Must(r.conns[i%relaySessions].Write(line))
	}
	for range jobs {
		select {
		case err := <-r.returned:
			tool.Check(err)
		case <-ctx.Done():
			tool.Check(fmt.Errorf("the relay has not returned all jobs: %w", ctx.Err()))
		}
	}
	used := tool.Must(m.Spent(ctx))
	switches = tool.Must(measure.Switches(r.child.PID())) - before
	return used.Processes * 1e6 / float64(jobs), switches / float64(jobs)
}

func (r *relaying) stop() error {
	for _, c := range r.conns {
		_ = c.Close() // ends its reader
	}
	r.readers.Wait()
	var err error
	if r.child != nil {
		err = r.child.End()
	}
	return errors.Join(err, r.redis.Stop())
}
