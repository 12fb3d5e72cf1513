package main

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/bench/system"
)

// monitorRest is how long MONITOR is read after the load has ended.
const monitorRest = 200 * time.Millisecond

// outOfOrder counts the grants of a window of the fair lock, and those that passed an older ticket.
func outOfOrder(ctx context.Context, redis *system.Redis, s shape, l length) (grants, passed int, err error) {
	e := &entrant{setting: setting{Library: ours, Fair: true}}
	if e.children, err = startChildren(ctx, s.processes, spec{Addr: redis.Addr(), Setting: e.setting}); err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, end(e.children)) }()
	// A waiter without a subscription may be passed: by the end of this round all have one.
	if err := e.round(ctx, redis, s, length{window: l.window / 5}); err != nil {
		return 0, 0, err
	}
	conn, err := net.Dial("tcp", redis.Addr())
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return 0, 0, err
	}
	read := make(chan struct{})
	var q queue
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			q.see(lines.Text())
		}
	}()
	err = e.round(ctx, redis, s, l)
	err = errors.Join(err, conn.SetReadDeadline(time.Now().Add(monitorRest)))
	<-read
	if err == nil && q.grants == 0 {
		err = errors.New("MONITOR showed no grant")
	}
	return q.grants, q.passed, err
}

// queue is the order of one lock, by the commands that Redis ran.
type queue struct {
	places         map[string]float64 // acquisition -> place
	grants, passed int
}

// see takes a line of MONITOR:
//
//	1732466190.1 [0 lua] "ZADD" "lock:queue:k0" "1732466190000001" "<process>:<number> <lease> <holder>"
//	1732466190.1 [0 lua] "HSET" "lock:held:k0" "layout" "1" "acquisition" "<process>:<number>" ...
func (q *queue) see(line string) {
	if q.places == nil {
		q.places = make(map[string]float64)
	}
	_, command, _ := strings.Cut(line, ` "`)
	words := strings.Split(strings.TrimSuffix(command, `"`), `" "`)
	switch {
	case len(words) < 3:
	case words[0] == "ZADD" && strings.HasPrefix(words[1], "lock:queue") && len(words) == 4:
		q.places[acquisitionOf(words[3])], _ = strconv.ParseFloat(words[2], 64)
	case words[0] == "ZREM" && strings.HasPrefix(words[1], "lock:queue"):
		delete(q.places, acquisitionOf(words[2]))
	case words[0] == "HSET" && len(words) > 6 && words[4] == "acquisition":
		q.grants++
		own, queued := q.places[words[5]]
		for _, place := range q.places {
			if !queued || place < own {
				q.passed++
				return
			}
		}
	}
}

func acquisitionOf(ticket string) string {
	name, _, _ := strings.Cut(ticket, " ")
	return name
}
